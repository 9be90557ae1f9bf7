-- name: clock
-- The database's clock.
-- both
SELECT :now AS clock_at

-- name: forget_done
-- Remove finished jobs older than the age; PostgreSQL drops their partitions instead.
-- postgres
SELECT 0 * CAST(:limit AS bigint) * CAST(:age_ms AS bigint) AS removed
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS sweep_count (rows);
DELETE FROM temp.sweep_count;
INSERT INTO temp.sweep_count SELECT count(*) FROM (SELECT 1 FROM done WHERE finished_at < :now - :age_ms * 1000 LIMIT :limit);
DELETE FROM done WHERE rowid IN (SELECT rowid FROM done WHERE finished_at < :now - :age_ms * 1000 LIMIT :limit);
SELECT rows AS removed FROM temp.sweep_count

-- name: forget_attempts
-- Remove attempts older than the age; PostgreSQL drops their partitions instead.
-- postgres
SELECT 0 * CAST(:limit AS bigint) * CAST(:age_ms AS bigint) AS removed
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS sweep_count (rows);
DELETE FROM temp.sweep_count;
INSERT INTO temp.sweep_count SELECT count(*) FROM (SELECT 1 FROM attempt WHERE finished_at < :now - :age_ms * 1000 LIMIT :limit);
DELETE FROM attempt WHERE rowid IN (SELECT rowid FROM attempt WHERE finished_at < :now - :age_ms * 1000 LIMIT :limit);
SELECT rows AS removed FROM temp.sweep_count

-- name: forget_events
-- Remove events older than the age; PostgreSQL drops their partitions instead.
-- postgres
SELECT 0 * CAST(:limit AS bigint) * CAST(:age_ms AS bigint) AS removed
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS sweep_count (rows);
DELETE FROM temp.sweep_count;
INSERT INTO temp.sweep_count SELECT count(*) FROM (SELECT 1 FROM event WHERE happened_at < :now - :age_ms * 1000 LIMIT :limit);
DELETE FROM event WHERE rowid IN (SELECT rowid FROM event WHERE happened_at < :now - :age_ms * 1000 LIMIT :limit);
SELECT rows AS removed FROM temp.sweep_count

-- name: forget_dead
-- Remove dead jobs older than the age.
-- postgres
WITH old AS MATERIALIZED (SELECT ctid AS place FROM dead WHERE finished_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' LIMIT :limit),
gone AS (DELETE FROM dead USING old WHERE dead.ctid = old.place AND dead.finished_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS sweep_count (rows);
DELETE FROM temp.sweep_count;
INSERT INTO temp.sweep_count SELECT count(*) FROM (SELECT 1 FROM dead WHERE finished_at < :now - :age_ms * 1000 LIMIT :limit);
DELETE FROM dead WHERE id IN (SELECT id FROM dead WHERE finished_at < :now - :age_ms * 1000 LIMIT :limit);
SELECT rows AS removed FROM temp.sweep_count

-- name: expire_keys
-- Remove keys whose time is over.
-- index: dedup_expiry.
-- postgres
WITH old AS MATERIALIZED (SELECT ctid AS place FROM dedup WHERE expires_at <= :now LIMIT :limit),
gone AS (DELETE FROM dedup USING old WHERE dedup.ctid = old.place AND dedup.expires_at <= :now RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS sweep_count (rows);
DELETE FROM temp.sweep_count;
INSERT INTO temp.sweep_count SELECT count(*) FROM (SELECT 1 FROM dedup WHERE expires_at <= :now LIMIT :limit);
DELETE FROM dedup WHERE (scope, key) IN (SELECT scope, key FROM dedup WHERE expires_at <= :now LIMIT :limit);
SELECT rows AS removed FROM temp.sweep_count

-- name: forget_pauses
-- Remove pauses of jobs that have ended.
-- postgres
WITH old AS MATERIALIZED (SELECT ctid AS place FROM pause WHERE kind = 'job' AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id = CASE WHEN pause.kind = 'job' THEN CAST(pause.name AS uuid) END) LIMIT :limit),
gone AS (DELETE FROM pause USING old WHERE pause.ctid = old.place AND pause.kind = 'job' RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS sweep_count (rows);
DELETE FROM temp.sweep_count;
INSERT INTO temp.sweep_count SELECT count(*) FROM (SELECT 1 FROM pause WHERE kind = 'job' AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id = pause.name) LIMIT :limit);
DELETE FROM pause WHERE (kind, tenant, name) IN (SELECT kind, tenant, name FROM pause WHERE kind = 'job' AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id = pause.name) LIMIT :limit);
SELECT rows AS removed FROM temp.sweep_count
