-- name: beat_pulse
-- Say that rescue is awake, in one row for each gap. After a longer silence, or when the clock went back as far, the waking
-- time of that row begins anew.
-- postgres
INSERT INTO pulse AS p (name, beat_at, unbroken_at) SELECT i.name, :now, :now FROM rows(:gaps, name text, gap_ms bigint) AS i
ON CONFLICT (name) DO UPDATE SET (beat_at, unbroken_at) = (
   SELECT CASE WHEN p.beat_at > :now + i.gap_ms * interval '1 millisecond' THEN :now ELSE greatest(p.beat_at, :now) END,
          CASE WHEN p.beat_at BETWEEN :now - i.gap_ms * interval '1 millisecond'
                                  AND :now + i.gap_ms * interval '1 millisecond' THEN p.unbroken_at ELSE :now END
     FROM rows(:gaps, name text, gap_ms bigint) AS i WHERE i.name = p.name)
-- sqlite
INSERT INTO pulse AS p (name, beat_at, unbroken_at) SELECT i.name, :now, :now FROM rows(:gaps, name text, gap_ms bigint) AS i WHERE true
ON CONFLICT (name) DO UPDATE SET beat_at = max(p.beat_at, excluded.beat_at),
   unbroken_at = CASE WHEN p.beat_at < :now - 1000 * (SELECT i.gap_ms FROM rows(:gaps) AS i WHERE i.name = p.name)
                      THEN :now ELSE p.unbroken_at END

-- name: declare_dead
-- Declare sessions dead that were not heard for their lease, if we have been awake as long, without a silence of more than
-- a third of it. A row for a shorter gap says no less than one for a longer gap, and the shortest is for all.
-- The test stands in the update: after waiting for a heartbeat's lock it is made again.
-- index: session_live.
-- postgres
UPDATE session s SET state = 1, ended_at = :now
 WHERE s.state = 0 AND s.expires_at < :now
   AND EXISTS (SELECT 1 FROM pulse p JOIN rows(:gaps, name text, gap_ms bigint) AS i ON i.name = p.name
                WHERE i.gap_ms <= greatest(s.lease_ms / 3, CAST(:least_ms AS bigint)) AND p.unbroken_at + s.lease_ms * interval '1 millisecond' < :now)
RETURNING s.id
-- sqlite
UPDATE session SET state = 1, ended_at = :now
 WHERE state = 0 AND expires_at < :now
   AND EXISTS (SELECT 1 FROM pulse AS p JOIN rows(:gaps) AS i ON i.name = p.name
                WHERE i.gap_ms <= max(session.lease_ms / 3, :least_ms) AND p.unbroken_at + session.lease_ms * 1000 < :now)
RETURNING id

-- name: orphans
-- Leases of sessions that have ended.
-- index: session_ended, queue_leased.
-- postgres   (the inner limit makes the planner begin with the sessions, also on tables never analysed)
SELECT x.id, x.fence, x.session
  FROM session s CROSS JOIN LATERAL (
       SELECT q.id, q.fence, q.session FROM queue q WHERE q.place = 1 AND q.session = s.id LIMIT :limit) x
 WHERE s.state <> 0 ORDER BY x.id LIMIT :limit
-- sqlite
SELECT q.id, q.fence, q.session FROM session AS s CROSS JOIN queue AS q ON q.place = 1 AND q.session = s.id
 WHERE s.state <> 0 ORDER BY q.id LIMIT :limit

-- name: next_lapse
-- When the first of the living sessions lapses, how long the shortest of their leases is, and when rescue was last awake.
-- Sessions are few: expires_at has no index.
-- index: session_live.
-- hot: a duty must not wait for lists.
-- both
SELECT (SELECT min(s.expires_at) FROM session AS s WHERE s.state = 0) AS expires_at,
       (SELECT min(s.lease_ms) FROM session AS s WHERE s.state = 0) AS lease_ms,
       (SELECT p.beat_at FROM pulse AS p WHERE p.name = 'rescue') AS beat_at, :now AS now_at
