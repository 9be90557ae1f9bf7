-- name: beat_pulse
-- Say that rescue is awake. Sessions get one full lease from now if we were silent for more than :tolerance of their lease:
-- we neither were awake nor heard them.
-- index: session_live.
-- postgres
WITH pardoned AS (
    UPDATE session s SET expires_at = greatest(s.expires_at, :now + s.lease_ms * interval '1 millisecond')
     WHERE s.state = 0 AND s.heartbeat_at < :now - CAST(:tolerance AS double precision) * s.lease_ms * interval '1 millisecond'
       AND NOT EXISTS (SELECT 1 FROM pulse p WHERE p.name = 'rescue'
                          AND p.beat_at >= :now - CAST(:tolerance AS double precision) * s.lease_ms * interval '1 millisecond')
)
INSERT INTO pulse (name, beat_at) VALUES ('rescue', :now) ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at
-- sqlite
UPDATE session SET expires_at = max(expires_at, :now + lease_ms * 1000)
 WHERE state = 0 AND heartbeat_at < :now - :tolerance * lease_ms * 1000
   AND NOT EXISTS (SELECT 1 FROM pulse AS p WHERE p.name = 'rescue' AND p.beat_at >= :now - :tolerance * session.lease_ms * 1000);
INSERT INTO pulse (name, beat_at) VALUES ('rescue', :now) ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at

-- name: declare_dead
-- Declare sessions dead that were not heard for their lease, if we have been awake: a process may be stopped before this statement.
-- The test stands in the update: after waiting for a heartbeat's lock it is made again.
-- index: session_live.
-- postgres
UPDATE session s SET state = 1, ended_at = :now
 WHERE s.state = 0 AND s.expires_at < :now
   AND EXISTS (SELECT 1 FROM pulse p WHERE p.name = 'rescue'
                  AND p.beat_at >= :now - CAST(:tolerance AS double precision) * s.lease_ms * interval '1 millisecond')
RETURNING s.id
-- sqlite
UPDATE session SET state = 1, ended_at = :now
 WHERE state = 0 AND expires_at < :now
   AND EXISTS (SELECT 1 FROM pulse AS p WHERE p.name = 'rescue' AND p.beat_at >= :now - :tolerance * session.lease_ms * 1000)
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
