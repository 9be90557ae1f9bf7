-- name: spans
-- The partitions of job in the order of their ids; until_id: the first id that lies in the next. One that is dropped this moment has none.
-- postgres
SELECT * FROM (
    SELECT c.relname AS name, CAST(substring(pg_catalog.pg_get_expr(c.relpartbound, c.oid) FROM 'TO .''([0-9a-f-]{36})''') AS uuid) AS until_id,
           CAST(CASE WHEN c.reltuples < 0 THEN pg_catalog.pg_stat_get_live_tuples(c.oid) ELSE c.reltuples END AS bigint) AS row_estimate
      FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass('windlass.job')
) s WHERE until_id IS NOT NULL ORDER BY until_id
-- sqlite
SELECT name, NULL AS until_id, 0 AS row_estimate FROM sqlite_master WHERE false

-- name: lock_spans
-- Let one server make partitions of job at a time; those who submit, claim and retry go on.
-- postgres
LOCK TABLE ONLY windlass.job IN SHARE UPDATE EXCLUSIVE MODE
-- sqlite
SELECT 1 WHERE false

-- name: close_job
-- Let nobody touch job while rows change their partition.
-- locks: job, before any partition of it, as all do who join it: no deadlock.
-- postgres
LOCK TABLE ONLY windlass.job IN ACCESS EXCLUSIVE MODE
-- sqlite
SELECT 1 WHERE false

-- name: stragglers
-- How many jobs with ids from :since on and below :until live, are dead, or ended in the days that are kept, and how long their texts
-- are as they are stored; up to :most are looked at.
-- index: the primary keys of queue, timer and dead; done_id of each day.
-- postgres
SELECT count(*) AS jobs, coalesce(sum(pg_column_size(j.payload) + coalesce(pg_column_size(j.headers), 0)), 0) AS bytes FROM (SELECT x.id FROM (
    SELECT id FROM queue WHERE id >= :since AND id < :until
    UNION ALL
    SELECT id FROM timer WHERE id >= :since AND id < :until
    UNION ALL
    SELECT id FROM dead WHERE id >= :since AND id < :until
    UNION ALL
    SELECT id FROM done WHERE id >= :since AND id < :until) x LIMIT :most) y JOIN job j ON j.id = ANY(ARRAY[y.id])
-- sqlite
SELECT 0 AS jobs, 0 AS bytes WHERE coalesce(:since, :until, :most) IS NOT NULL
