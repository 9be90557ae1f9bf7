-- name: list_workers
-- A page of the workers of a tenant, or one of them, by name, each as its newest start is: of rows that live before those that do not.
-- Rows of one start (a session, and the presence of calls that do not name it) are told together: counts, last heartbeat, skew.
-- A session that was not heard for its lease is dead, also before rescue has said so; one that has not beaten yet is starting.
-- It is as busy as it told, or as it holds leases in all its live sessions: `held` in its own, `alone` in those of single jobs.
-- As many as fit into :most bytes, the first always; found: how many there were to show, up to :limit. What a worker says of itself at length
-- is read of those that are shown, and only :with_texts.
-- index: session_worker, queue_leased.  cost: where the tenant has bare callers, all leases are looked through once.
-- both
WITH alone AS MATERIALIZED (
    SELECT b.worker, count(*) AS count FROM queue q JOIN session b ON b.id = q.session
     WHERE q.place = 1 AND b.bare = 1 AND b.state = 0 AND b.tenant = :tenant AND (CAST(:worker AS text) IS NULL OR b.worker = :worker)
       AND EXISTS (SELECT 1 FROM session p WHERE p.bare = 0 AND p.presence > 0 AND p.tenant = :tenant
                      AND (CAST(:worker AS text) IS NULL OR p.worker = :worker))
     GROUP BY b.worker
),
newest AS (
    SELECT s.id, s.tenant, s.worker, s.state, s.draining, s.expires_at, s.started_at, s.heartbeat_at, s.capacity, s.busy, s.completed, s.failed, s.skew_ms,
           row_number() OVER (PARTITION BY s.worker ORDER BY CASE WHEN s.state = 0 AND s.expires_at > :now THEN 0 ELSE 1 END,
                              s.started_at DESC, s.presence, s.id DESC) AS place
      FROM session s
     WHERE s.bare = 0 AND s.tenant = :tenant AND s.worker > CAST(:cursor AS text) AND (CAST(:worker AS text) IS NULL OR s.worker = :worker)
),
page AS MATERIALIZED (
SELECT x.* FROM (
    SELECT w.*, CASE WHEN w.told_busy > w.held + w.alone THEN w.told_busy ELSE w.held + w.alone END AS busy_threads,
           CASE WHEN w.state = 2 THEN 'stopped' WHEN w.state = 1 OR w.expires_at <= :now THEN 'dead' WHEN w.draining = 1 THEN 'draining'
                WHEN w.told_busy = 0 AND w.held + w.alone = 0 THEN CASE WHEN w.heartbeat_at = w.started_at THEN 'starting' ELSE 'idle' END
                WHEN w.told_busy < w.total_threads AND w.held + w.alone < w.total_threads THEN 'active' ELSE 'busy' END AS status
      FROM (
        SELECT s.worker, s.id AS session, s.state, s.draining, s.expires_at, s.started_at, s.capacity AS total_threads, s.busy AS told_busy,
               t.heartbeat_at, t.completed, t.failed, coalesce(s.skew_ms, t.skew_ms) AS skew_ms,
               coalesce((SELECT a.count FROM alone a WHERE a.worker = s.worker), 0) AS alone,
               CAST((SELECT coalesce(sum((SELECT count(*) FROM queue q WHERE q.place = 1 AND q.session = h.id)), 0) FROM session h
                      WHERE h.bare = 0 AND h.state = 0 AND h.tenant = s.tenant AND h.worker = s.worker) AS int) AS held
          FROM newest s JOIN (
               SELECT o.worker, o.started_at, max(o.heartbeat_at) AS heartbeat_at, CAST(sum(o.completed) AS bigint) AS completed,
                      CAST(sum(o.failed) AS bigint) AS failed, max(o.skew_ms) AS skew_ms
                 FROM newest o GROUP BY o.worker, o.started_at) t ON t.worker = s.worker AND t.started_at = s.started_at
         WHERE s.place = 1
      ) w
) x WHERE CAST(:status AS text) IS NULL OR x.status = :status ORDER BY x.worker LIMIT :limit
),
sized AS MATERIALIZED (
    SELECT p.worker, p.session, CASE WHEN CAST(:with_texts AS int) = 1 THEN octets(s.labels, s.tasks, s.queues) ELSE 0 END AS bytes
      FROM page p JOIN session s ON s.id = p.session
),
cut AS MATERIALIZED (
    SELECT c.session, c.found FROM (
        SELECT z.*, count(*) OVER () AS found, sum(z.bytes) OVER (ORDER BY z.worker) AS upto FROM sized AS z) AS c
     WHERE c.upto <= :most OR c.upto = c.bytes
)
SELECT c.found, p.worker, p.session, p.status, p.heartbeat_at, p.expires_at, p.started_at, s.ended_at, s.lease_ms, p.total_threads, p.busy_threads,
       p.held, p.alone, p.completed, p.failed, s.host, s.pid, s.version, s.build, s.region, p.skew_ms,
       CASE WHEN CAST(:with_texts AS int) = 1 THEN s.labels END AS labels, CASE WHEN CAST(:with_texts AS int) = 1 THEN s.tasks END AS tasks,
       CASE WHEN CAST(:with_texts AS int) = 1 THEN s.queues END AS queues
  FROM cut c JOIN page p ON p.session = c.session JOIN session s ON s.id = c.session ORDER BY p.worker

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
-- The threads of all live workers, those in use, and the largest difference of a worker's clock. A worker's presence beside a session of
-- its own adds no threads. In use: what its rows tell, or the leases under its name.
-- index: session_live, queue_leased.  cost: all leases are counted once.
-- both
SELECT CAST(coalesce(sum(CASE WHEN w.own > 0 THEN w.own ELSE w.present END), 0) AS bigint) AS total,
       CAST(coalesce(sum(greatest(w.told, w.held)), 0) AS bigint) AS busy, coalesce(max(w.skew_ms), 0) AS skew_ms
  FROM (
    SELECT sum(CASE WHEN s.bare + s.presence = 0 THEN s.capacity ELSE 0 END) AS own,
           sum(CASE WHEN s.presence > 0 THEN s.capacity ELSE 0 END) AS present,
           sum(CASE WHEN s.bare = 0 THEN s.busy ELSE 0 END) AS told, sum(coalesce(q.held, 0)) AS held, max(abs(s.skew_ms)) AS skew_ms
      FROM session s LEFT JOIN (SELECT session, count(*) AS held FROM queue WHERE place = 1 GROUP BY session) q ON q.session = s.id
     WHERE s.state = 0 GROUP BY s.tenant, s.worker) w
