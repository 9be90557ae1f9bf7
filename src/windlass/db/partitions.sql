-- name: clock
-- The database's clock.
-- both
SELECT :now AS clock_at

-- name: partitions
-- Day partitions of history, attached or on their way out, with the database's own estimate of their rows;
-- reltuples is below 0 where nobody has analysed them yet.
-- postgres
SELECT c.relname AS name, CASE WHEN i.inhrelid IS NULL THEN 0 ELSE 1 END AS attached,
       CASE WHEN i.inhdetachpending THEN 1 ELSE 0 END AS pending,
       CAST(CASE WHEN c.reltuples < 0 THEN pg_catalog.pg_stat_get_live_tuples(c.oid) ELSE c.reltuples END AS bigint) AS row_estimate
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
 WHERE n.nspname = 'windlass' AND c.relkind = 'r' AND c.relname ~ '^(done|attempt|event|log|schedule_runs)_[0-9]{8}$'
 ORDER BY c.relname
-- sqlite
SELECT name, 0 AS attached, 0 AS pending, 0 AS row_estimate FROM sqlite_master WHERE false

-- name: lock_partitions
-- Let one server make partitions at a time; those who write to history go on.
-- locks: the partitioned tables, in this order, against other changes of their shape; not their partitions, which autovacuum may hold.
-- postgres
LOCK TABLE ONLY windlass.done, ONLY windlass.attempt, ONLY windlass.event, ONLY windlass.log, ONLY windlass.schedule_runs
        IN SHARE UPDATE EXCLUSIVE MODE
-- sqlite
SELECT 1 WHERE false
