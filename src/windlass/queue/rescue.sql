-- name: beat_pulse
-- Say that rescue is awake; after a gap longer than :gap_ms, or when the clock went back as far, its waking time begins anew.
-- postgres
INSERT INTO pulse AS p (name, beat_at, unbroken_at) VALUES ('rescue', :now, :now)
ON CONFLICT (name) DO UPDATE SET
   beat_at = CASE WHEN p.beat_at > :now + CAST(:gap_ms AS bigint) * interval '1 millisecond' THEN :now ELSE greatest(p.beat_at, :now) END,
   unbroken_at = CASE WHEN p.beat_at BETWEEN :now - CAST(:gap_ms AS bigint) * interval '1 millisecond'
                                         AND :now + CAST(:gap_ms AS bigint) * interval '1 millisecond' THEN p.unbroken_at ELSE :now END
-- sqlite
INSERT INTO pulse AS p (name, beat_at, unbroken_at) VALUES ('rescue', :now, :now)
ON CONFLICT (name) DO UPDATE SET beat_at = max(p.beat_at, excluded.beat_at),
   unbroken_at = CASE WHEN p.beat_at < :now - :gap_ms * 1000 THEN :now ELSE p.unbroken_at END

-- name: declare_dead
-- Declare sessions dead that were not heard for their lease, if we have been awake as long.
-- The test stands in the update: after waiting for a heartbeat's lock it is made again.
-- index: session_live.
-- postgres
UPDATE session s SET state = 1, ended_at = :now
 WHERE s.state = 0 AND s.expires_at < :now
   AND EXISTS (SELECT 1 FROM pulse p WHERE p.name = 'rescue' AND p.unbroken_at + s.lease_ms * interval '1 millisecond' < :now)
RETURNING s.id
-- sqlite
UPDATE session SET state = 1, ended_at = :now
 WHERE state = 0 AND expires_at < :now
   AND EXISTS (SELECT 1 FROM pulse AS p WHERE p.name = 'rescue' AND p.unbroken_at + session.lease_ms * 1000 < :now)
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
-- When the first of the living sessions lapses, and when rescue was last awake. Sessions are few: expires_at has no index.
-- index: session_live.
-- hot: a duty must not wait for lists.
-- both
SELECT (SELECT min(s.expires_at) FROM session AS s WHERE s.state = 0) AS expires_at,
       (SELECT p.beat_at FROM pulse AS p WHERE p.name = 'rescue') AS beat_at, :now AS now_at
