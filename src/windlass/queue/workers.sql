-- name: register
-- Open a session, or say the same again; one that has ended, or is another worker's, is not returned. A presence that is named is
-- a session from then on. One that was never heard since is still starting: its beginning moves with it.
-- both
INSERT INTO session AS s (id, worker, tenant, state, lease_ms, expires_at, heartbeat_at, started_at, capacity, busy, bare, draining,
                     host, pid, version, build, region, labels, tasks, queues)
VALUES (:id, :worker, :tenant, 0, :lease_ms, :now + CAST(:lease_ms AS int) * interval '1 millisecond', :now, :now, :capacity, 0, 0, 0,
        :host, :pid, :version, :build, :region, :labels, :tasks, :queues)
ON CONFLICT (id) DO UPDATE SET lease_ms = excluded.lease_ms, expires_at = excluded.expires_at, heartbeat_at = excluded.heartbeat_at,
   presence = 0, capacity = excluded.capacity, busy = 0, host = excluded.host, pid = excluded.pid, version = excluded.version,
   build = excluded.build, region = excluded.region, labels = excluded.labels, tasks = excluded.tasks, queues = excluded.queues,
   started_at = CASE WHEN s.heartbeat_at = s.started_at THEN excluded.started_at ELSE s.started_at END
 WHERE s.state = 0 AND s.worker = excluded.worker AND s.tenant = excluded.tenant
RETURNING id

-- name: open_session
-- Open a session that a call names and that was not registered; a presence that is named becomes one, as it was registered.
-- One that has ended, or is another worker's, is not returned.
-- both
INSERT INTO session AS s (id, worker, tenant, state, lease_ms, expires_at, heartbeat_at, started_at, capacity, busy, bare, draining)
VALUES (:id, :worker, :tenant, 0, :lease_ms, :now + CAST(:lease_ms AS int) * interval '1 millisecond', :now, :now, 1, 0, 0, 0)
ON CONFLICT (id) DO UPDATE SET presence = 0, heartbeat_at = :now, expires_at = :now + s.lease_ms * interval '1 millisecond'
 WHERE s.state = 0 AND s.bare = 0 AND s.worker = excluded.worker AND s.tenant = excluded.tenant
RETURNING id

-- name: register_bare
-- Open sessions for claims of bare callers, one for each job they may get.
-- both
INSERT INTO session (id, worker, tenant, state, lease_ms, expires_at, heartbeat_at, started_at, capacity, busy, bare, draining)
SELECT i.id, i.worker, i.tenant, 0, i.lease_ms, :now + i.lease_ms * interval '1 millisecond', :now, :now, 1, 1, 1, 0
  FROM rows(:sessions, id uuid, worker text, tenant text, lease_ms int) AS i

-- name: forget
-- Remove sessions that were made for a bare claim and got no job.
-- both
DELETE FROM session WHERE id = ANY(CAST(:sessions AS uuid[]))

-- name: renew
-- Renew the leases of sessions that are alive; one that has ended is not returned and never comes back.
-- A beat for a presence renews nothing else: its row may be a session by now, whose leases live by its own beats.
-- lease_ms: what a caller without a session shows by its beats; what was asked for stands.
-- locks: session rows; a session beats at one server, so rivals are rare and may run again.  HOT: no indexed column changes.
-- plan: `state + 0` keeps out session_live, which would be read whole for a hash join.
-- postgres
UPDATE session s SET heartbeat_at = :now, lease_ms = CASE WHEN s.presence = 1 THEN greatest(s.lease_ms, i.lease_ms) ELSE s.lease_ms END,
       expires_at = :now + CASE WHEN s.presence = 1 THEN greatest(s.lease_ms, i.lease_ms) ELSE s.lease_ms END * interval '1 millisecond',
       busy = coalesce(i.busy, s.busy), skew_ms = coalesce(i.skew_ms, s.skew_ms),
       completed = least(CAST(s.completed AS bigint) + i.completed, 2147483647), failed = least(CAST(s.failed AS bigint) + i.failed, 2147483647),
       draining = greatest(s.draining, i.draining)
  FROM rows(:beats, id uuid, tenant text, busy int, skew_ms int, completed int, failed int, draining int, presence int, lease_ms int) AS i
 WHERE s.id = ANY(ARRAY[i.id]) AND s.tenant = i.tenant AND s.state + 0 = 0 AND s.presence >= i.presence
RETURNING s.id, s.tenant, s.draining, s.lease_ms
-- sqlite
UPDATE session SET heartbeat_at = :now,
       lease_ms = CASE WHEN session.presence = 1 THEN max(session.lease_ms, i.lease_ms) ELSE session.lease_ms END,
       expires_at = :now + CASE WHEN session.presence = 1 THEN max(session.lease_ms, i.lease_ms) ELSE session.lease_ms END * 1000,
       busy = coalesce(i.busy, session.busy), skew_ms = coalesce(i.skew_ms, session.skew_ms),
       completed = min(session.completed + i.completed, 2147483647), failed = min(session.failed + i.failed, 2147483647),
       draining = max(session.draining, i.draining)
  FROM rows(:beats) AS i
 WHERE session.id = i.id AND session.tenant = i.tenant AND session.state = 0 AND session.presence >= i.presence
RETURNING id, tenant, draining, lease_ms

-- name: start
-- Note since when jobs run, once: so long ago as was said, but not before the claim. Their time-outs count from there.
-- late_ms: from due to the start.
-- locks: queue rows by ascending id, skipping locked ones: an application may lock the place of a job that it finishes for as long as
-- its transaction is open, and nobody's heartbeat waits for that. The next heartbeat tells the start again.
-- postgres
WITH l AS MATERIALIZED (
    SELECT q.id, greatest(:now - i.ran_ms * interval '1 millisecond', least(q.claimed_at, :now + interval '1 minute')) AS began_at
      FROM rows(:begun, id uuid, fence int, session uuid, ran_ms bigint) AS i JOIN queue q ON q.id = ANY(ARRAY[i.id])
     WHERE q.fence = i.fence AND q.place + 0 = 1 AND q.session = i.session AND q.started_at IS NULL
     ORDER BY i.id FOR UPDATE OF q SKIP LOCKED
)
UPDATE queue q SET started_at = l.began_at,
       deadline_at = CASE WHEN q.flags & 2 = 2 THEN q.deadline_at
                          ELSE l.began_at + (j.timeout_s * 1000 + CAST(:grace_ms AS bigint)) * interval '1 millisecond' END
  FROM l JOIN job j ON j.id = ANY(ARRAY[l.id]) WHERE q.id = ANY(ARRAY[l.id])
RETURNING q.session, q.attempt, greatest(ms(q.started_at - j.run_at), 0) AS late_ms
-- sqlite
UPDATE queue SET started_at = max(:now - i.ran_ms * 1000, queue.claimed_at),
       deadline_at = CASE WHEN queue.flags & 2 = 2 THEN queue.deadline_at
                          ELSE max(:now - i.ran_ms * 1000, queue.claimed_at) + (j.timeout_s * 1000 + :grace_ms) * 1000 END
  FROM rows(:begun, id uuid, fence int, session uuid, ran_ms bigint) AS i CROSS JOIN job AS j ON j.id = i.id
 WHERE queue.id = i.id AND queue.fence = i.fence AND queue.place = 1 AND queue.session = i.session AND queue.started_at IS NULL
RETURNING session, attempt, max(started_at - (SELECT job.run_at FROM job WHERE job.id = queue.id), 0) / 1000 AS late_ms

-- name: held
-- Which of the named leases are really the session's own, with their flags (2: cancel).
-- place: 1 leased; 3 held, with a session: finished in a transaction of the application's, and its body may go on.
-- both
SELECT q.id, q.fence, q.session, q.flags
  FROM rows(:named, id uuid, fence int, session uuid) AS i JOIN queue q ON q.id = ANY(ARRAY[i.id])
 WHERE q.fence = i.fence AND q.place + 0 IN (1, 3) AND q.session = i.session

-- name: succeeded
-- Which of the named leases have ended as succeeded: nobody else has them, and their bodies need not be stopped.
-- hot: workers wait for it.
-- both
SELECT d.id, d.fence, d.session
  FROM rows(:named, id uuid, fence int, session uuid) AS i JOIN done d ON d.id = ANY(ARRAY[i.id])
 WHERE d.fence = i.fence AND d.outcome = 0 AND d.session = i.session

-- name: old_leases
-- The leases of sessions, but for those younger than :older_ms.
-- index: queue_leased.
-- postgres
SELECT x.id, x.fence, x.session
  FROM unnest(CAST(:sessions AS uuid[])) AS i (session) CROSS JOIN LATERAL (
       SELECT q.id, q.fence, q.session, q.claimed_at FROM queue q WHERE q.place = 1 AND q.session = i.session OFFSET 0) x
 WHERE x.claimed_at <= :now - CAST(:older_ms AS bigint) * interval '1 millisecond'
-- sqlite
SELECT id, fence, session FROM queue
 WHERE place = 1 AND session IN (SELECT value FROM json_each(:sessions)) AND claimed_at <= :now - :older_ms * 1000

-- name: cancelled
-- The leases of sessions that are to be cancelled (flag 2).
-- hot: workers wait for it.
-- index: queue_leased.
-- postgres
SELECT x.id, x.session
  FROM unnest(CAST(:sessions AS uuid[])) AS i (session) CROSS JOIN LATERAL (
       SELECT q.id, q.session, q.flags FROM queue q WHERE q.place = 1 AND q.session = i.session OFFSET 0) x
 WHERE x.flags & 2 = 2
 ORDER BY x.id
-- sqlite
SELECT id, session FROM queue INDEXED BY queue_leased
 WHERE place = 1 AND session IN (SELECT value FROM json_each(:sessions)) AND flags & 2 = 2
 ORDER BY id

-- name: close
-- End a session: by its worker's wish, or because its process died.
-- both
UPDATE session SET state = CAST(:state AS smallint), busy = 0, ended_at = :now WHERE id = :session AND tenant = :tenant AND state + 0 = 0

-- name: drain
-- Ask the live sessions of a worker to finish and leave.
-- both
UPDATE session SET draining = 1 WHERE tenant = :tenant AND worker = :worker AND state = 0 RETURNING id

-- name: forget_ended
-- Remove sessions that ended more than :keep_ms ago (those of bare callers :keep_bare_ms) and hold nothing.
-- index: session_ended, queue_leased.  plan: counted, and not NOT EXISTS, which may become a join with all leases.
-- postgres
WITH old AS MATERIALIZED (
    SELECT s.id FROM session s
     WHERE s.state <> 0
       AND s.ended_at < :now - CASE WHEN s.bare = 1 THEN CAST(:keep_bare_ms AS bigint) ELSE CAST(:keep_ms AS bigint) END * interval '1 millisecond'
       AND (SELECT count(*) FROM (SELECT 1 FROM queue q WHERE q.place = 1 AND q.session = s.id LIMIT 1) held) = 0 LIMIT :limit
)
DELETE FROM session USING old WHERE session.id = ANY(ARRAY[old.id]) RETURNING session.id
-- sqlite
DELETE FROM session WHERE id IN (
    SELECT s.id FROM session AS s
     WHERE s.state <> 0 AND s.ended_at < :now - CASE WHEN s.bare = 1 THEN :keep_bare_ms ELSE :keep_ms END * 1000
       AND NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.place = 1 AND q.session = s.id) LIMIT :limit)
RETURNING id

-- name: find_sessions
-- Sessions by their ids: whose they are, whether they may hold leases, how long ago they were heard, and whether retries are kept
-- for them.
-- hot: workers wait for it.
-- index: session_pkey, timer_kept.
-- postgres
SELECT s.id, s.worker, s.tenant, s.lease_ms, s.state, s.draining, s.bare, s.presence,
       CAST(extract(epoch FROM :now - s.heartbeat_at) AS double precision) AS silent_s,
       CASE WHEN EXISTS (SELECT 1 FROM timer t WHERE t.session = ANY(ARRAY[s.id])) THEN 1 ELSE 0 END AS kept
  FROM session s WHERE s.id = ANY(CAST(:ids AS uuid[]))
-- sqlite
SELECT s.id, s.worker, s.tenant, s.lease_ms, s.state, s.draining, s.bare, s.presence, (:now - s.heartbeat_at) / 1000000.0 AS silent_s,
       CASE WHEN EXISTS (SELECT 1 FROM timer AS t WHERE t.session = s.id) THEN 1 ELSE 0 END AS kept
  FROM session AS s WHERE s.id IN (SELECT value FROM json_each(:ids))

-- name: find_lease
-- Who has a job at this moment, with which fence.
-- hot: workers wait for it.
-- both
SELECT q.id, q.fence, q.flags, s.id AS session, s.worker, s.lease_ms, s.bare
  FROM queue q JOIN lane l ON l.id = q.lane JOIN session s ON s.id = ANY(ARRAY[q.session])
 WHERE q.id = :id AND q.place + 0 = 1 AND l.tenant = :tenant
