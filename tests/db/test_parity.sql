-- name: tables
-- Tables and views; partitions are seen through their parents.
-- postgres
SELECT c.relname AS name, CASE WHEN c.relkind = 'v' THEN 'view' ELSE 'table' END AS kind
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'windlass' AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition ORDER BY 1
-- sqlite
SELECT name, type AS kind FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY 1

-- name: columns
-- The columns of a table or view, in order.
-- postgres
SELECT a.attname AS name, format_type(a.atttypid, NULL) AS kind, CASE WHEN a.attnotnull THEN 1 ELSE 0 END AS required
  FROM pg_catalog.pg_attribute a
 WHERE a.attrelid = CAST('windlass.' || CAST(:relation AS text) AS regclass) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum
-- sqlite
SELECT name, type AS kind, "notnull" AS required FROM pragma_table_info(:relation) ORDER BY cid

-- name: indexes
-- The indexes of a table: columns, whether unique or primary, and the predicate of a partial one.
-- postgres
SELECT c.relname AS name, CASE WHEN i.indisunique THEN 1 ELSE 0 END AS single, CASE WHEN i.indisprimary THEN 1 ELSE 0 END AS first,
       coalesce(pg_get_expr(i.indpred, i.indrelid), '') AS predicate,
       array_to_string(ARRAY(SELECT pg_get_indexdef(i.indexrelid, n, true) FROM generate_series(1, i.indnkeyatts) AS n), ', ') AS columns
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
 WHERE i.indrelid = CAST('windlass.' || CAST(:relation AS text) AS regclass)
-- sqlite
SELECT l.name, l."unique" AS single, CASE WHEN l.origin = 'pk' THEN 1 ELSE 0 END AS first,
       coalesce((SELECT substr(m.sql, instr(m.sql, 'WHERE ') + 6) FROM sqlite_master m WHERE m.name = l.name AND l.partial = 1), '') AS predicate,
       (SELECT group_concat(x.name, ', ') FROM (SELECT name FROM pragma_index_info(l.name) ORDER BY seqno) AS x) AS columns
  FROM pragma_index_list(:relation) AS l
UNION ALL
SELECT 'rowid', 1, 1, '', group_concat(name, ', ') FROM pragma_table_info(:relation) WHERE pk > 0 AND type = 'INTEGER'
   AND NOT EXISTS (SELECT 1 FROM pragma_index_list(:relation) WHERE origin = 'pk') HAVING count(*) > 0

-- name: without_rowid
-- Tables whose rows lie in the B-tree of their key; only SQLite has such.
-- postgres
SELECT '' AS name WHERE false
-- sqlite
SELECT name FROM pragma_table_list WHERE schema = 'main' AND wr = 1 ORDER BY name
