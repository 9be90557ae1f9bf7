-- name: forget_done
-- Remove finished jobs older than the age; PostgreSQL drops their partitions instead.
-- Rows are added in the order of time, so the oldest have the smallest rowids: no index is needed, and at most :limit are read.
-- postgres
SELECT 0 * CAST(:limit AS bigint) * CAST(:age_ms AS bigint) AS removed
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS forget_pick (number INTEGER PRIMARY KEY, id);
DELETE FROM temp.forget_pick;
INSERT INTO temp.forget_pick
SELECT rowid, id FROM (SELECT rowid, id, finished_at FROM done ORDER BY rowid LIMIT :limit) WHERE finished_at < :now - :age_ms * 1000;
DELETE FROM job WHERE id IN (SELECT id FROM temp.forget_pick);
DELETE FROM done WHERE rowid IN (SELECT number FROM temp.forget_pick);
SELECT count(*) AS removed FROM temp.forget_pick

-- name: forget_jobs
-- Among the next :limit rows of job below :until, in spans that are past the retention, remove those that have neither a place nor an end any more;
-- the last row looked at, none if there were no more. SQLite removes them with their ends.
-- locks: the rows it removes. No act brings a job back that has neither a place nor an end.
-- postgres
WITH s AS MATERIALIZED (SELECT id FROM job WHERE id > :after AND id < :until ORDER BY id LIMIT :limit),
gone AS (
    DELETE FROM job USING s
     WHERE job.id = ANY(ARRAY[s.id])
       AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = ANY(ARRAY[s.id])) AND NOT EXISTS (SELECT 1 FROM timer t WHERE t.id = ANY(ARRAY[s.id]))
       AND NOT EXISTS (SELECT 1 FROM done d WHERE d.id = ANY(ARRAY[s.id])) AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.id = ANY(ARRAY[s.id]))
    RETURNING 1
)
SELECT (SELECT s.id FROM s ORDER BY s.id DESC LIMIT 1) AS last_id, (SELECT count(*) FROM gone) AS removed
-- sqlite
SELECT NULL AS last_id, 0 AS removed WHERE coalesce(:after, :until, :limit) IS NOT NULL

-- name: forget_attempts
-- Remove attempts older than the age; PostgreSQL drops their partitions instead. Read as finished jobs are, but for
-- the ends of jobs retried by hand: they are older than their neighbours, and the only ones after which nothing was to follow.
-- index: attempt_ended.
-- postgres
SELECT 0 * CAST(:limit AS bigint) * CAST(:age_ms AS bigint) AS removed
-- sqlite
DELETE FROM attempt WHERE rowid IN (
    SELECT rowid FROM (SELECT rowid, finished_at FROM attempt ORDER BY rowid LIMIT :limit) WHERE finished_at < :now - :age_ms * 1000
    UNION ALL
    SELECT rowid FROM (SELECT rowid FROM attempt WHERE next_run_at IS NULL AND finished_at < :now - :age_ms * 1000 LIMIT :limit));
SELECT changes() AS removed

-- name: forget_events
-- Remove events older than the age; PostgreSQL drops their partitions instead. Read as finished jobs are.
-- postgres
SELECT 0 * CAST(:limit AS bigint) * CAST(:age_ms AS bigint) AS removed
-- sqlite
DELETE FROM event WHERE rowid IN (
    SELECT rowid FROM (SELECT rowid, happened_at FROM event ORDER BY rowid LIMIT :limit) WHERE happened_at < :now - :age_ms * 1000);
SELECT changes() AS removed

-- name: forget_dead
-- Remove dead jobs older than the age, lane by lane.
-- index: dead_finished.
-- postgres
WITH old AS MATERIALIZED (
    SELECT d.place FROM lane l CROSS JOIN LATERAL (
        SELECT x.ctid AS place FROM dead x
         WHERE x.lane = l.id AND x.finished_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' LIMIT :limit) AS d
     LIMIT :limit
),
d AS (
    DELETE FROM dead WHERE dead.ctid = ANY(ARRAY(SELECT old.place FROM old)) AND dead.finished_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond'
    RETURNING dead.id
),
j AS (DELETE FROM job USING d WHERE job.id = ANY(ARRAY[d.id]))
SELECT count(*) AS removed FROM d
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS forget_dead_pick (id);
DELETE FROM temp.forget_dead_pick;
INSERT INTO temp.forget_dead_pick
SELECT d.id FROM lane AS l CROSS JOIN dead AS d INDEXED BY dead_finished ON d.lane = l.id AND d.finished_at < :now - :age_ms * 1000 LIMIT :limit;
DELETE FROM job WHERE id IN (SELECT id FROM temp.forget_dead_pick);
DELETE FROM dead WHERE id IN (SELECT id FROM temp.forget_dead_pick);
SELECT count(*) AS removed FROM temp.forget_dead_pick

-- name: expire_keys
-- Remove keys whose time is over.
-- index: dedup_expiry.
-- postgres
WITH old AS MATERIALIZED (SELECT ctid AS place FROM dedup WHERE expires_at <= :now LIMIT :limit),
gone AS (DELETE FROM dedup USING old WHERE dedup.ctid = old.place AND dedup.expires_at <= :now RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM dedup WHERE (scope, key) IN (SELECT scope, key FROM dedup WHERE expires_at <= :now LIMIT :limit);
SELECT changes() AS removed

-- name: forget_pauses
-- Remove pauses of jobs that have ended, and of schedules that are gone.
-- postgres
WITH old AS MATERIALIZED (
    SELECT ctid AS place FROM pause
     WHERE (kind = 'job' AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = CASE WHEN pause.kind = 'job' THEN CAST(pause.name AS uuid) END)
                         AND NOT EXISTS (SELECT 1 FROM timer t WHERE t.id = CASE WHEN pause.kind = 'job' THEN CAST(pause.name AS uuid) END))
        OR (kind = 'schedule' AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.id = CASE WHEN pause.kind = 'schedule' THEN CAST(pause.name AS uuid) END))
     LIMIT :limit
),
gone AS (DELETE FROM pause USING old WHERE pause.ctid = old.place AND pause.kind IN ('job', 'schedule') RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM pause WHERE (kind, tenant, name) IN (
    SELECT kind, tenant, name FROM pause
     WHERE (kind = 'job' AND NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.id = pause.name) AND NOT EXISTS (SELECT 1 FROM timer AS t WHERE t.id = pause.name))
        OR (kind = 'schedule' AND NOT EXISTS (SELECT 1 FROM schedule AS s WHERE s.id = pause.name)) LIMIT :limit);
SELECT changes() AS removed

-- name: forget_stats
-- Remove the statistics of minutes older than the age.
-- postgres
WITH old AS MATERIALIZED (SELECT ctid AS place FROM stat WHERE minute_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' LIMIT :limit),
gone AS (DELETE FROM stat WHERE stat.ctid = ANY(ARRAY(SELECT old.place FROM old)) AND stat.minute_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM stat WHERE (minute_at, tenant, queue) IN (
    SELECT minute_at, tenant, queue FROM stat WHERE minute_at < :now - :age_ms * 1000 LIMIT :limit);
SELECT changes() AS removed

-- name: forget_audit
-- Remove what people did longer ago than the age. Ids ascend with time, so the oldest stand first and at most :limit are read.
-- postgres
WITH old AS MATERIALIZED (
    SELECT x.id FROM (SELECT id, happened_at FROM audit ORDER BY id LIMIT :limit) x
     WHERE x.happened_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond'
),
gone AS (DELETE FROM audit WHERE audit.id = ANY(ARRAY(SELECT old.id FROM old)) RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM audit WHERE id IN (
    SELECT id FROM (SELECT id, happened_at FROM audit ORDER BY id LIMIT :limit) WHERE happened_at < :now - :age_ms * 1000);
SELECT changes() AS removed

-- name: forget_logs
-- Remove log lines older than the age; PostgreSQL drops their partitions instead. Read as finished jobs are.
-- postgres
SELECT 0 * CAST(:limit AS bigint) * CAST(:age_ms AS bigint) AS removed
-- sqlite
DELETE FROM log WHERE rowid IN (
    SELECT rowid FROM (SELECT rowid, written_at FROM log ORDER BY rowid LIMIT :limit) WHERE written_at < :now - :age_ms * 1000);
SELECT changes() AS removed

-- name: forget_runs
-- Remove what became of slots older than the age, but for those that a backfill has yet to come to; PostgreSQL drops their
-- partitions instead. Read as finished jobs are.
-- postgres
SELECT 0 * CAST(:limit AS bigint) * CAST(:age_ms AS bigint) AS removed
-- sqlite
DELETE FROM schedule_runs WHERE rowid IN (
    SELECT rowid FROM (SELECT rowid, slot_at FROM schedule_runs ORDER BY rowid LIMIT :limit)
     WHERE slot_at < min(:now - :age_ms * 1000, coalesce((SELECT min(cursor_at) FROM backfill WHERE state = 0), :now)));
SELECT changes() AS removed

-- name: backfilled_from
-- How far the backfill has come that is the furthest behind: which of the slots after that have run must be known; null: there is none.
-- index: backfill_open.
-- both
SELECT min(cursor_at) AS slot_at FROM backfill WHERE state = 0

-- name: forget_backfills
-- Remove backfills that ended longer ago than the age.
-- postgres
WITH old AS MATERIALIZED (SELECT id FROM backfill WHERE ended_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' LIMIT :limit),
gone AS (DELETE FROM backfill WHERE backfill.id = ANY(ARRAY(SELECT old.id FROM old)) RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM backfill WHERE id IN (SELECT id FROM backfill WHERE ended_at < :now - :age_ms * 1000 LIMIT :limit);
SELECT changes() AS removed

-- name: forget_checkpoints
-- Remove what jobs noted that are gone or have ended longer ago than the age; a dead job keeps it, for it may be retried.
-- postgres
WITH old AS MATERIALIZED (
    SELECT c.job_id FROM checkpoint c
     WHERE c.updated_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond'
       AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = c.job_id) AND NOT EXISTS (SELECT 1 FROM timer t WHERE t.id = c.job_id)
       AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.id = c.job_id)
     LIMIT :limit
),
gone AS (DELETE FROM checkpoint WHERE checkpoint.job_id = ANY(ARRAY(SELECT old.job_id FROM old)) RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM checkpoint WHERE job_id IN (
    SELECT c.job_id FROM checkpoint AS c
     WHERE c.updated_at < :now - :age_ms * 1000
       AND NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.id = c.job_id) AND NOT EXISTS (SELECT 1 FROM timer AS t WHERE t.id = c.job_id)
       AND NOT EXISTS (SELECT 1 FROM dead AS d WHERE d.id = c.job_id)
     LIMIT :limit);
SELECT changes() AS removed

-- name: forget_tasks
-- Remove signatures that no worker has published for the age.
-- postgres
WITH old AS MATERIALIZED (SELECT ctid AS place FROM task WHERE seen_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' LIMIT :limit),
gone AS (DELETE FROM task WHERE task.ctid = ANY(ARRAY(SELECT old.place FROM old)) AND task.seen_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM task WHERE (tenant, name, fingerprint) IN (
    SELECT tenant, name, fingerprint FROM task WHERE seen_at < :now - :age_ms * 1000 LIMIT :limit);
SELECT changes() AS removed

-- name: forget_erased
-- Forget that jobs were erased which are gone.
-- postgres
WITH old AS MATERIALIZED (
    SELECT e.job_id FROM erased e
     WHERE (SELECT count(*) FROM (SELECT 1 FROM done d WHERE d.id = ANY(ARRAY[e.job_id]) LIMIT 1) x) = 0
       AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.id = ANY(ARRAY[e.job_id])) LIMIT :limit
),
gone AS (DELETE FROM erased USING old WHERE erased.job_id = old.job_id RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM erased WHERE job_id IN (
    SELECT e.job_id FROM erased AS e
     WHERE NOT EXISTS (SELECT 1 FROM done AS d WHERE d.id = e.job_id) AND NOT EXISTS (SELECT 1 FROM dead AS d WHERE d.id = e.job_id) LIMIT :limit);
SELECT changes() AS removed
