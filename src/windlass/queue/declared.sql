-- name: of_owner
-- The schedules that an application has declared.
-- index: schedule_owner.
-- both
SELECT * FROM schedule WHERE tenant = :tenant AND owner = :owner ORDER BY name

-- name: owners_of_names
-- Who has declared the schedules of these names.
-- postgres
SELECT s.name, s.owner FROM rows(:names, name text) AS i JOIN schedule s ON s.tenant = :tenant AND s.name = ANY(ARRAY[i.name]) ORDER BY s.name
-- sqlite
SELECT s.name, s.owner FROM rows(:names) AS i CROSS JOIN schedule AS s ON s.tenant = :tenant AND s.name = i.name ORDER BY s.name
