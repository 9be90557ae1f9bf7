-- name: of_owner
-- The schedules that an application has declared, and why they are paused.
-- index: schedule_owner.
-- postgres
SELECT s.*, p.reason AS pause_reason FROM schedule AS s
  LEFT JOIN LATERAL (SELECT x.reason FROM pause x WHERE x.kind = 'schedule' AND x.tenant = s.tenant AND x.name = CAST(s.id AS text) LIMIT 1) p ON true
 WHERE s.tenant = :tenant AND s.owner = :owner ORDER BY s.name
-- sqlite
SELECT s.*, p.reason AS pause_reason FROM schedule AS s LEFT JOIN pause AS p ON p.kind = 'schedule' AND p.tenant = s.tenant AND p.name = s.id
 WHERE s.tenant = :tenant AND s.owner = :owner ORDER BY s.name

-- name: owners_of_names
-- Who has declared the schedules of these names.
-- both
SELECT s.name, s.owner FROM rows(:names, name text) AS i JOIN schedule s ON s.name = ANY(ARRAY[i.name]) AND s.tenant = :tenant ORDER BY s.name
