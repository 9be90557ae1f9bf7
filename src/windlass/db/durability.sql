-- name: undurable
-- The settings of the database by which a crash of its machine may lose or spoil what was committed.
-- postgres
SELECT name FROM pg_catalog.pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name
-- sqlite   (its URL says so, and the settings warn of it)
SELECT '' AS name WHERE false
