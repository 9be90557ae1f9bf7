-- name: schema_exists
-- One row if the table of applied migrations is there.
-- postgres
SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'windlass' AND c.relname = 'migration'
-- sqlite
SELECT 1 FROM sqlite_master WHERE name = 'migration'

-- name: applied_migrations
-- What has been applied, in order.
-- both
SELECT number, name, checksum, applied_at FROM migration ORDER BY number

-- name: record_migration
-- Write down that a migration was applied, in its own transaction.
-- both
INSERT INTO migration (number, name, checksum, applied_at) VALUES (:number, :name, :checksum, :now)
