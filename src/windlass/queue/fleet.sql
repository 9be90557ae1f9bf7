-- name: list_workers
-- A page of the workers of a tenant, or one of them, by name, each as its newest session is.
-- A session that was not heard for its lease is dead, also before rescue has said so; one that has not beaten yet is starting.
-- index: session_worker.
-- both
SELECT * FROM (
    SELECT s.worker, s.id AS session,
           CASE WHEN s.state = 2 THEN 'stopped' WHEN s.state = 1 OR s.expires_at <= :now THEN 'dead' WHEN s.draining = 1 THEN 'draining'
                WHEN s.busy = 0 AND s.heartbeat_at = s.started_at THEN 'starting' WHEN s.busy = 0 THEN 'idle'
                WHEN s.busy < s.capacity THEN 'active' ELSE 'busy' END AS status,
           s.heartbeat_at, s.expires_at, s.started_at, s.ended_at, s.lease_ms, s.capacity AS total_threads, s.busy AS busy_threads,
           s.completed, s.failed, s.host, s.pid, s.version, s.build, s.region, s.labels, s.tasks, s.queues, s.skew_ms
      FROM session s
     WHERE s.bare = 0 AND s.tenant = :tenant AND s.worker > CAST(:cursor AS text) AND (CAST(:worker AS text) IS NULL OR s.worker = :worker)
       AND s.id = (SELECT n.id FROM session n WHERE n.bare = 0 AND n.tenant = s.tenant AND n.worker = s.worker
                    ORDER BY n.started_at DESC, n.id DESC LIMIT 1)
) w WHERE CAST(:status AS text) IS NULL OR w.status = :status
 ORDER BY w.worker LIMIT :limit

-- name: held_jobs
-- The jobs that sessions hold, up to :most of each, smallest id first.
-- index: queue_leased.
-- postgres
SELECT i.session, x.id FROM unnest(CAST(:sessions AS uuid[])) AS i (session) CROSS JOIN LATERAL (
       SELECT q.id FROM queue q WHERE q.place = 1 AND q.session = i.session ORDER BY q.id LIMIT :most) x
-- sqlite
SELECT session, id FROM (
    SELECT session, id, row_number() OVER (PARTITION BY session ORDER BY id) AS place_in_line
      FROM queue INDEXED BY queue_leased WHERE place = 1 AND session IN (SELECT value FROM json_each(:sessions)))
 WHERE place_in_line <= :most

-- name: threads
-- The threads of all live workers, busy ones, and the largest difference of a worker's clock.
-- index: session_live.
-- postgres
SELECT CAST(coalesce(sum(capacity), 0) AS bigint) AS total, CAST(coalesce(sum(busy), 0) AS bigint) AS busy,
       coalesce(max(abs(skew_ms)), 0) AS skew_ms
  FROM session WHERE state = 0 AND bare = 0
-- sqlite
SELECT coalesce(sum(capacity), 0) AS total, coalesce(sum(busy), 0) AS busy, coalesce(max(abs(skew_ms)), 0) AS skew_ms
  FROM session WHERE state = 0 AND bare = 0
