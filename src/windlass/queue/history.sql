-- name: get
-- One job of a tenant, wherever it lies. By its id alone first: the planner must not begin with the tenant's lanes.
-- both
WITH found AS MATERIALIZED (SELECT * FROM jobs WHERE id = :id) SELECT * FROM found WHERE tenant = :tenant

-- name: live_jobs
-- Which of these jobs have not ended.
-- postgres
SELECT id FROM job WHERE id = ANY(CAST(:ids AS uuid[]))
-- sqlite
SELECT id FROM job WHERE id IN (SELECT value FROM json_each(:ids))

-- name: list_queued
-- A page of the jobs in queue, newest first.
-- postgres
SELECT * FROM jobs_queued WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[])) AND {filters} ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT * FROM jobs_queued WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states)) AND {filters} ORDER BY id DESC LIMIT :limit

-- name: list_timed
-- A page of the jobs in timer, newest first.
-- postgres
SELECT * FROM jobs_timed WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[])) AND {filters} ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT * FROM jobs_timed WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states)) AND {filters} ORDER BY id DESC LIMIT :limit

-- name: list_done
-- A page of finished jobs, newest first.
-- postgres
SELECT * FROM jobs_done WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[])) AND {filters} ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT * FROM jobs_done WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states)) AND {filters} ORDER BY id DESC LIMIT :limit

-- name: list_dead
-- A page of dead jobs, newest first.
-- postgres
SELECT * FROM jobs_dead WHERE tenant = :tenant AND state = ANY(CAST(:states AS text[])) AND {filters} ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT * FROM jobs_dead WHERE tenant = :tenant AND state IN (SELECT value FROM json_each(:states)) AND {filters} ORDER BY id DESC LIMIT :limit

-- name: counts
-- How many jobs are in each state, of all queues or of one; those in done by the time they ended, lane by lane.
-- postgres
SELECT state, count(*) AS jobs FROM jobs_queued WHERE tenant = :tenant AND (CAST(:queue AS text) IS NULL OR queue = :queue) GROUP BY state
UNION ALL
SELECT state, count(*) FROM jobs_timed WHERE tenant = :tenant AND (CAST(:queue AS text) IS NULL OR queue = :queue) GROUP BY state
UNION ALL
SELECT state, count(*) FROM jobs_dead WHERE tenant = :tenant AND (CAST(:queue AS text) IS NULL OR queue = :queue) GROUP BY state
UNION ALL
SELECT CASE d.outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END, count(*)
  FROM lane l JOIN done d ON d.lane = l.id AND d.finished_at >= :since
 WHERE l.tenant = :tenant AND (CAST(:queue AS text) IS NULL OR l.queue = :queue) GROUP BY d.outcome
-- sqlite
SELECT state, count(*) AS jobs FROM jobs_queued WHERE tenant = :tenant AND (:queue IS NULL OR queue = :queue) GROUP BY state
UNION ALL
SELECT state, count(*) FROM jobs_timed WHERE tenant = :tenant AND (:queue IS NULL OR queue = :queue) GROUP BY state
UNION ALL
SELECT state, count(*) FROM jobs_dead WHERE tenant = :tenant AND (:queue IS NULL OR queue = :queue) GROUP BY state
UNION ALL
SELECT state, count(*) FROM jobs_done WHERE tenant = :tenant AND (:queue IS NULL OR queue = :queue) AND finished_at >= :since GROUP BY state

-- name: attempts
-- The ended attempts of a job, oldest first.
-- both
SELECT job_id, run, attempt, fence, outcome, result, metrics, error_type, error, traceback, reason, worker, session, claimed_at,
       started_at, finished_at, next_run_at
  FROM attempts WHERE job_id = :id ORDER BY finished_at, fence

-- name: timeline
-- What happened to a job, in order; things of the same instant in the order they must have had.
-- both
SELECT happened_at, kind, worker, detail FROM job_events WHERE job_id = :id ORDER BY happened_at, coalesce(fence, 0), step, kind
