-- name: was_deleted
-- A row if a tenant of this name was deleted, and has not been erased since.
-- both
SELECT 1 AS one FROM lane WHERE tenant = :tenant AND retired = 1 LIMIT 1

-- name: leave_sessions
-- End sessions of a tenant, and forget whose they were and what they said of themselves. The rows stay until rescue needs them no more.
-- locks: session rows by ascending id.
-- postgres
WITH s AS MATERIALIZED (SELECT id FROM session WHERE tenant = :tenant ORDER BY id LIMIT :limit FOR UPDATE),
gone AS (
    UPDATE session SET tenant = '', worker = '', state = CASE WHEN session.state = 0 THEN 2 ELSE session.state END, busy = 0,
           ended_at = coalesce(session.ended_at, :now), host = NULL, pid = NULL, version = NULL, build = NULL, region = NULL,
           labels = NULL, tasks = NULL, queues = NULL
      FROM s WHERE session.id = s.id RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
UPDATE session SET tenant = '', worker = '', state = CASE WHEN state = 0 THEN 2 ELSE state END, busy = 0, ended_at = coalesce(ended_at, :now),
       host = NULL, pid = NULL, version = NULL, build = NULL, region = NULL, labels = NULL, tasks = NULL, queues = NULL
 WHERE id IN (SELECT id FROM session WHERE tenant = :tenant LIMIT :limit);
SELECT changes() AS removed

-- name: remove_idempotency
-- Remove the idempotency and unique keys of a tenant that no live job has.
-- postgres
WITH k AS MATERIALIZED (
    SELECT d.scope, d.key FROM dedup d
     WHERE d.scope = ANY(ARRAY[CAST(:tenant AS text) || '/key', CAST(:tenant AS text) || '/unique'])
       AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = d.job_id) AND NOT EXISTS (SELECT 1 FROM timer t WHERE t.id = d.job_id)
     ORDER BY d.scope, d.key LIMIT :limit),
gone AS (DELETE FROM dedup USING k WHERE dedup.scope = k.scope AND dedup.key = k.key RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM dedup WHERE (scope, key) IN (
    SELECT d.scope, d.key FROM dedup AS d WHERE d.scope IN (:tenant || '/key', :tenant || '/unique')
       AND NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.id = d.job_id) AND NOT EXISTS (SELECT 1 FROM timer AS t WHERE t.id = d.job_id) LIMIT :limit);
SELECT changes() AS removed

-- name: remove_tasks
-- Remove the signatures of a tenant's tasks.
-- postgres
WITH t AS MATERIALIZED (SELECT name, fingerprint FROM task WHERE tenant = :tenant ORDER BY name, fingerprint LIMIT :limit),
gone AS (DELETE FROM task USING t WHERE task.tenant = :tenant AND task.name = t.name AND task.fingerprint = t.fingerprint RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM task WHERE (tenant, name, fingerprint) IN (SELECT tenant, name, fingerprint FROM task WHERE tenant = :tenant LIMIT :limit);
SELECT changes() AS removed

-- name: remove_pauses
-- Forget what of a tenant was paused.
-- postgres
WITH p AS MATERIALIZED (SELECT kind, name FROM pause WHERE tenant = :tenant ORDER BY kind, name LIMIT :limit),
gone AS (DELETE FROM pause USING p WHERE pause.kind = p.kind AND pause.tenant = :tenant AND pause.name = p.name RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM pause WHERE (kind, tenant, name) IN (SELECT kind, tenant, name FROM pause WHERE tenant = :tenant LIMIT :limit);
SELECT changes() AS removed

-- name: remove_stats
-- Remove the statistics of a tenant. Not hot: its minutes are found by reading all of them.
-- postgres
WITH s AS MATERIALIZED (SELECT minute_at, queue FROM stat WHERE tenant = :tenant LIMIT :limit),
gone AS (DELETE FROM stat USING s WHERE stat.minute_at = s.minute_at AND stat.tenant = :tenant AND stat.queue = s.queue RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM stat WHERE (minute_at, tenant, queue) IN (SELECT minute_at, tenant, queue FROM stat WHERE tenant = :tenant LIMIT :limit);
SELECT changes() AS removed
