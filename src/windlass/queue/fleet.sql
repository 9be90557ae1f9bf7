-- name: list_workers
-- A page of the workers of a tenant, or one of them, by name, each as its newest session is.
-- A session that was not heard for its lease is dead, also before rescue has said so; one that has not beaten yet is starting.
-- It is as busy as it told, or as it holds leases in all its live sessions: `held` in its own, `alone` in those of single jobs.
-- index: session_worker, queue_leased.  cost: where the tenant has bare callers, all leases are looked through once.
-- both
WITH alone AS MATERIALIZED (
    SELECT b.worker, count(*) AS count FROM queue q JOIN session b ON b.id = q.session
     WHERE q.place = 1 AND b.bare = 1 AND b.state = 0 AND b.tenant = :tenant AND (CAST(:worker AS text) IS NULL OR b.worker = :worker)
       AND EXISTS (SELECT 1 FROM session p WHERE p.bare = 0 AND p.presence = 1 AND p.tenant = :tenant
                      AND (CAST(:worker AS text) IS NULL OR p.worker = :worker))
     GROUP BY b.worker
)
SELECT y.worker, y.session, y.status, y.heartbeat_at, y.expires_at, y.started_at, y.ended_at, y.lease_ms, y.total_threads, y.busy_threads,
       y.held, y.alone, y.completed, y.failed, y.host, y.pid, y.version, y.build, y.region, y.labels, y.tasks, y.queues, y.skew_ms FROM (
    SELECT w.*, CASE WHEN w.told_busy > w.held + w.alone THEN w.told_busy ELSE w.held + w.alone END AS busy_threads,
           CASE WHEN w.state = 2 THEN 'stopped' WHEN w.state = 1 OR w.expires_at <= :now THEN 'dead' WHEN w.draining = 1 THEN 'draining'
                WHEN w.told_busy = 0 AND w.held + w.alone = 0 THEN CASE WHEN w.heartbeat_at = w.started_at THEN 'starting' ELSE 'idle' END
                WHEN w.told_busy < w.total_threads AND w.held + w.alone < w.total_threads THEN 'active' ELSE 'busy' END AS status
      FROM (
        SELECT s.worker, s.id AS session, s.state, s.draining, s.heartbeat_at, s.expires_at, s.started_at, s.ended_at, s.lease_ms,
               s.capacity AS total_threads, s.busy AS told_busy, s.completed, s.failed, s.host, s.pid, s.version, s.build, s.region, s.labels,
               s.tasks, s.queues, s.skew_ms, coalesce((SELECT a.count FROM alone a WHERE a.worker = s.worker), 0) AS alone,
               CAST((SELECT coalesce(sum((SELECT count(*) FROM queue q WHERE q.place = 1 AND q.session = h.id)), 0) FROM session h
                      WHERE h.bare = 0 AND h.state = 0 AND h.tenant = s.tenant AND h.worker = s.worker) AS int) AS held
          FROM session s
         WHERE s.bare = 0 AND s.tenant = :tenant AND s.worker > CAST(:cursor AS text) AND (CAST(:worker AS text) IS NULL OR s.worker = :worker)
           AND s.id = (SELECT n.id FROM session n WHERE n.bare = 0 AND n.tenant = s.tenant AND n.worker = s.worker
                        ORDER BY n.started_at DESC, n.id DESC LIMIT 1)
      ) w
) y WHERE CAST(:status AS text) IS NULL OR y.status = :status
 ORDER BY y.worker LIMIT :limit

-- name: held_jobs
-- The jobs that the live sessions of workers hold, but for those of single jobs; up to :most of each session, smallest id first.
-- index: session_worker, queue_leased.
-- postgres
SELECT s.worker, x.id FROM session s CROSS JOIN LATERAL (
       SELECT q.id FROM queue q WHERE q.place = 1 AND q.session = s.id ORDER BY q.id LIMIT :most) x
 WHERE s.bare = 0 AND s.state = 0 AND s.tenant = :tenant AND s.worker = ANY(CAST(:workers AS text[]))
-- sqlite
SELECT worker, id FROM (
    SELECT s.worker, q.id, row_number() OVER (PARTITION BY q.session ORDER BY q.id) AS place_in_line
      FROM session AS s INDEXED BY session_worker CROSS JOIN queue AS q INDEXED BY queue_leased ON q.place = 1 AND q.session = s.id
     WHERE s.bare = 0 AND s.state = 0 AND s.tenant = :tenant AND s.worker IN (SELECT value FROM json_each(:workers)))
 WHERE place_in_line <= :most

-- name: held_alone
-- The jobs that bare callers hold, each in a session of its own; up to :most of each caller, smallest id first.
-- index: queue_leased.  cost: all leases are looked through.
-- postgres
SELECT worker, id FROM (
    SELECT s.worker, q.id, row_number() OVER (PARTITION BY s.worker ORDER BY q.id) AS place_in_line
      FROM queue q JOIN session s ON s.id = q.session
     WHERE q.place = 1 AND s.bare = 1 AND s.state = 0 AND s.tenant = :tenant AND s.worker = ANY(CAST(:workers AS text[]))) x
 WHERE place_in_line <= :most
-- sqlite
SELECT worker, id FROM (
    SELECT s.worker, q.id, row_number() OVER (PARTITION BY s.worker ORDER BY q.id) AS place_in_line
      FROM queue AS q INDEXED BY queue_leased CROSS JOIN session AS s ON s.id = q.session
     WHERE q.place = 1 AND s.bare = 1 AND s.state = 0 AND s.tenant = :tenant AND s.worker IN (SELECT value FROM json_each(:workers)))
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
