-- name: undurable
-- The settings of the database by which a crash of its machine may lose or spoil what was committed, and what mends each where it is set.
-- Asked on a connection that reads: those that write have a synchronous_commit of their own, which would hide that of the database.
-- postgres
SELECT name, CASE source
       WHEN 'database' THEN format('ALTER DATABASE %I SET %I = on;', current_database(), name)
       WHEN 'user' THEN format('ALTER ROLE %I SET %I = on;', current_user, name)
       WHEN 'database user' THEN format('ALTER ROLE %I IN DATABASE %I SET %I = on;', current_user, current_database(), name)
       ELSE format('ALTER SYSTEM SET %I = on;', name) END AS mend
  FROM pg_catalog.pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name
-- sqlite   (its URL says so, and the settings warn of it)
SELECT '' AS name, '' AS mend WHERE false
