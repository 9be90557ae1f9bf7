-- name: get
-- One job of a tenant, wherever it lies. By its id alone first: the planner must not begin with the tenant's lanes.
-- both
WITH found AS MATERIALIZED (SELECT * FROM jobs WHERE id = :id) SELECT * FROM found WHERE tenant = :tenant

-- name: live_jobs
-- Which of these jobs have not ended.
-- hot: every wait of this server is in it.
-- postgres
SELECT id FROM job WHERE id = ANY(CAST(:ids AS uuid[]))
-- sqlite
SELECT id FROM job WHERE id IN (SELECT value FROM json_each(:ids))

-- name: ending_in
-- The jobs of a tenant whose id ends so, newest first, among the :examined newest of each place.
-- index: the primary keys of queue, timer and dead, and done_id, each read backwards.
-- both
SELECT x.id FROM (
    SELECT q.id, q.lane FROM (SELECT id, lane FROM queue ORDER BY id DESC LIMIT :examined) q
    UNION ALL
    SELECT t.id, t.lane FROM (SELECT id, lane FROM timer ORDER BY id DESC LIMIT :examined) t
    UNION ALL
    SELECT d.id, d.lane FROM (SELECT id, lane FROM done ORDER BY id DESC LIMIT :examined) d
    UNION ALL
    SELECT e.id, e.lane FROM (SELECT id, lane FROM dead ORDER BY id DESC LIMIT :examined) e
) x JOIN lane l ON l.id = x.lane WHERE l.tenant = :tenant AND CAST(x.id AS text) LIKE '%' || CAST(:end AS text)
 ORDER BY x.id DESC LIMIT :limit

-- name: list_queued
-- A page of the jobs in queue, newest first. Stale: the last attempt was lost, and no other has begun.
-- postgres
SELECT * FROM jobs_queued v WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[])) AND id < :cursor
   AND (CAST(:stale AS int) = 0 OR (lost > 0 AND started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
   AND {filters} ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT * FROM jobs_queued AS v WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states)) AND id < :cursor
   AND (CAST(:stale AS int) = 0 OR (lost > 0 AND started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
   AND {filters} ORDER BY id DESC LIMIT :limit

-- name: list_timed
-- A page of the jobs in timer, newest first. Stale: the last attempt was lost, and no other has begun.
-- postgres
SELECT * FROM jobs_timed v WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[])) AND id < :cursor
   AND (CAST(:stale AS int) = 0 OR (lost > 0 AND started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
   AND {filters} ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT * FROM jobs_timed AS v WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states)) AND id < :cursor
   AND (CAST(:stale AS int) = 0 OR (lost > 0 AND started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
   AND {filters} ORDER BY id DESC LIMIT :limit

-- name: list_done
-- A page of finished jobs, newest first, from :floor up.
-- postgres
SELECT * FROM jobs_done WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[])) AND id < :cursor AND id >= :floor AND {filters}
 ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT * FROM jobs_done WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states)) AND id < :cursor AND id >= :floor AND {filters}
 ORDER BY id DESC LIMIT :limit

-- name: floor_done
-- The id down to which there are :examined finished jobs of all tenants, from the cursor on; no row if there are fewer.
-- both
SELECT id FROM done WHERE id < :cursor ORDER BY id DESC LIMIT 1 OFFSET :examined

-- name: own_done
-- The newest finished jobs of a tenant below :floor that match, by the tenant's lanes, and how many were examined: if :examined, not all.
-- index: done_finished.
-- postgres
WITH own AS MATERIALIZED (
    SELECT d.id, d.outcome, d.task, d.worker, d.idempotency_key, d.tags, d.schedule_id, d.flow_id, d.created_at, l.queue
      FROM lane l CROSS JOIN LATERAL (SELECT * FROM done x WHERE x.lane = l.id AND x.id < :floor ORDER BY x.finished_at DESC LIMIT :examined) d
     WHERE l.tenant = :tenant LIMIT :examined
)
SELECT c.examined, m.id FROM (SELECT count(*) AS examined FROM own) c LEFT JOIN (
    SELECT o.id FROM own o WHERE CASE o.outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END = ANY(CAST(:states AS text[])) AND {filters} ORDER BY o.id DESC LIMIT :limit) m ON true
-- sqlite
WITH own AS MATERIALIZED (
    SELECT d.id, d.outcome, d.task, d.worker, d.idempotency_key, d.tags, d.schedule_id, d.flow_id, d.created_at, l.queue
      FROM lane AS l CROSS JOIN done AS d INDEXED BY done_finished ON d.lane = l.id AND d.id < :floor
     WHERE l.tenant = :tenant LIMIT :examined
)
SELECT c.examined, m.id FROM (SELECT count(*) AS examined FROM own) AS c LEFT JOIN (
    SELECT o.id FROM own AS o WHERE CASE o.outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END IN (SELECT value FROM json_each(:states)) AND {filters} ORDER BY o.id DESC LIMIT :limit) AS m ON true

-- name: done_by_id
-- Some finished jobs of a tenant.
-- postgres
SELECT * FROM jobs_done WHERE id = ANY(CAST(:ids AS uuid[])) AND tenant = :tenant
-- sqlite
SELECT * FROM jobs_done WHERE id IN (SELECT value FROM json_each(:ids)) AND tenant = :tenant

-- name: list_dead
-- A page of dead jobs, newest first, from :floor up.
-- postgres
SELECT * FROM jobs_dead WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[])) AND id < :cursor AND id >= :floor AND {filters}
 ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT * FROM jobs_dead WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states)) AND id < :cursor AND id >= :floor AND {filters}
 ORDER BY id DESC LIMIT :limit

-- name: floor_dead
-- The id down to which there are :examined dead jobs of all tenants, from the cursor on; no row if there are fewer.
-- both
SELECT id FROM dead WHERE id < :cursor ORDER BY id DESC LIMIT 1 OFFSET :examined

-- name: own_dead
-- The newest dead jobs of a tenant below :floor that match, by the tenant's lanes, and how many were examined: if :examined, not all.
-- index: dead_finished.
-- postgres
WITH own AS MATERIALIZED (
    SELECT d.id, d.outcome, d.task, d.worker, d.idempotency_key, d.tags, d.schedule_id, d.flow_id, d.created_at, l.queue
      FROM lane l CROSS JOIN LATERAL (SELECT * FROM dead x WHERE x.lane = l.id AND x.id < :floor ORDER BY x.finished_at DESC LIMIT :examined) d
     WHERE l.tenant = :tenant LIMIT :examined
)
SELECT c.examined, m.id FROM (SELECT count(*) AS examined FROM own) c LEFT JOIN (
    SELECT o.id FROM own o WHERE 'dead' = ANY(CAST(:states AS text[])) AND {filters} ORDER BY o.id DESC LIMIT :limit) m ON true
-- sqlite
WITH own AS MATERIALIZED (
    SELECT d.id, d.outcome, d.task, d.worker, d.idempotency_key, d.tags, d.schedule_id, d.flow_id, d.created_at, l.queue
      FROM lane AS l CROSS JOIN dead AS d INDEXED BY dead_finished ON d.lane = l.id AND d.id < :floor
     WHERE l.tenant = :tenant LIMIT :examined
)
SELECT c.examined, m.id FROM (SELECT count(*) AS examined FROM own) AS c LEFT JOIN (
    SELECT o.id FROM own AS o WHERE 'dead' IN (SELECT value FROM json_each(:states)) AND {filters} ORDER BY o.id DESC LIMIT :limit) AS m ON true

-- name: dead_by_id
-- Some dead jobs of a tenant.
-- postgres
SELECT * FROM jobs_dead WHERE id = ANY(CAST(:ids AS uuid[])) AND tenant = :tenant
-- sqlite
SELECT * FROM jobs_dead WHERE id IN (SELECT value FROM json_each(:ids)) AND tenant = :tenant

-- name: count_queued
-- How many of the first :examined jobs in queue match, and how many there were to look at.
-- postgres
SELECT count(*) AS examined, count(*) FILTER (WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[]))
   AND (CAST(:stale AS int) = 0 OR (lost > 0 AND started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
   AND {filters}) AS jobs
  FROM (SELECT * FROM jobs_queued LIMIT :examined) v
-- sqlite
SELECT count(*) AS examined, count(*) FILTER (WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states))
   AND (CAST(:stale AS int) = 0 OR (lost > 0 AND started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
   AND {filters}) AS jobs
  FROM (SELECT * FROM jobs_queued LIMIT :examined) AS v

-- name: count_timed
-- How many of the first :examined jobs in timer match, and how many there were to look at.
-- postgres
SELECT count(*) AS examined, count(*) FILTER (WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[]))
   AND (CAST(:stale AS int) = 0 OR (lost > 0 AND started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
   AND {filters}) AS jobs
  FROM (SELECT * FROM jobs_timed LIMIT :examined) v
-- sqlite
SELECT count(*) AS examined, count(*) FILTER (WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states))
   AND (CAST(:stale AS int) = 0 OR (lost > 0 AND started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
   AND {filters}) AS jobs
  FROM (SELECT * FROM jobs_timed LIMIT :examined) AS v

-- name: count_done
-- How many of :examined finished jobs of a tenant match, and how many there were to look at.
-- index: done_finished.
-- postgres
SELECT count(*) AS examined, count(*) FILTER (WHERE CASE o.outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END = ANY(CAST(:states AS text[])) AND {filters}) AS jobs
  FROM (SELECT d.id, d.outcome, d.task, d.worker, d.idempotency_key, d.tags, d.schedule_id, d.flow_id, d.created_at, l.queue
          FROM lane l CROSS JOIN LATERAL (SELECT * FROM done x WHERE x.lane = l.id ORDER BY x.finished_at DESC LIMIT :examined) d
         WHERE l.tenant = :tenant LIMIT :examined) o
-- sqlite
SELECT count(*) AS examined, count(*) FILTER (WHERE CASE o.outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END IN (SELECT value FROM json_each(:states)) AND {filters}) AS jobs
  FROM (SELECT d.id, d.outcome, d.task, d.worker, d.idempotency_key, d.tags, d.schedule_id, d.flow_id, d.created_at, l.queue
          FROM lane AS l CROSS JOIN done AS d INDEXED BY done_finished ON d.lane = l.id
         WHERE l.tenant = :tenant LIMIT :examined) AS o

-- name: count_dead
-- How many of :examined dead jobs of a tenant match, and how many there were to look at.
-- index: dead_finished.
-- postgres
SELECT count(*) AS examined, count(*) FILTER (WHERE 'dead' = ANY(CAST(:states AS text[])) AND {filters}) AS jobs
  FROM (SELECT d.id, d.outcome, d.task, d.worker, d.idempotency_key, d.tags, d.schedule_id, d.flow_id, d.created_at, l.queue
          FROM lane l CROSS JOIN LATERAL (SELECT * FROM dead x WHERE x.lane = l.id ORDER BY x.finished_at DESC LIMIT :examined) d
         WHERE l.tenant = :tenant LIMIT :examined) o
-- sqlite
SELECT count(*) AS examined, count(*) FILTER (WHERE 'dead' IN (SELECT value FROM json_each(:states)) AND {filters}) AS jobs
  FROM (SELECT d.id, d.outcome, d.task, d.worker, d.idempotency_key, d.tags, d.schedule_id, d.flow_id, d.created_at, l.queue
          FROM lane AS l CROSS JOIN dead AS d INDEXED BY dead_finished ON d.lane = l.id
         WHERE l.tenant = :tenant LIMIT :examined) AS o

-- name: attempts
-- The ended attempts of a job, oldest first.
-- both
SELECT job_id, run, attempt, fence, outcome, result, metrics, error_type, error, traceback, reason, worker, session, claimed_at,
       started_at, finished_at, next_run_at
  FROM attempts WHERE job_id = :id ORDER BY finished_at, fence

-- name: timeline
-- What happened to a job, in order; things of the same instant in the order they must have had.
-- both
SELECT happened_at, kind, worker, actor, detail FROM job_events WHERE job_id = :id ORDER BY happened_at, coalesce(fence, 0), step, kind
