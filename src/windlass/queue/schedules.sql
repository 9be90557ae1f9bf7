-- name: get_by_id get_by_name
-- One schedule of a tenant by its {id|name}.
-- postgres
SELECT s.*, n.next_at, n.last_at, n.waiting_count, w.missing_at, p.reason AS pause_reason, p.actor AS pause_actor, p.paused_at, p.resume_at
  FROM schedule AS s
 CROSS JOIN LATERAL (SELECT x.* FROM schedule_next x WHERE x.id = s.id LIMIT 1) n
  LEFT JOIN LATERAL (SELECT x.missing_at FROM schedule_watch x WHERE x.schedule_id = s.id LIMIT 1) w ON true
  LEFT JOIN LATERAL (SELECT x.* FROM pause x WHERE x.kind = 'schedule' AND x.tenant = s.tenant AND x.name = CAST(s.id AS text) LIMIT 1) p ON true
 WHERE {s.id = :id|s.name = :name} AND s.tenant = :tenant
-- sqlite
SELECT s.*, n.next_at, n.last_at, n.waiting_count, w.missing_at, p.reason AS pause_reason, p.actor AS pause_actor, p.paused_at, p.resume_at
  FROM schedule AS s
  JOIN schedule_next AS n ON n.id = s.id LEFT JOIN schedule_watch AS w ON w.schedule_id = s.id
  LEFT JOIN pause AS p ON p.kind = 'schedule' AND p.tenant = s.tenant AND p.name = s.id
 WHERE {s.id = :id|s.name = :name} AND s.tenant = :tenant

-- name: ids_of_names
-- The schedules that have these names.
-- hot: part of transactions that write.
-- both
SELECT s.id, s.tenant, s.name FROM rows(:names, tenant text, name text) AS i
  JOIN schedule s ON s.tenant = ANY(ARRAY[i.tenant]) AND s.name = ANY(ARRAY[i.name])

-- name: find_schedules
-- Schedules of a tenant by name, after a name, among the next :examined of them; as many as fit into :most bytes, the first always.
-- found: how many there were to show, up to :limit.
-- index: the unique one of tenant and name.
-- postgres
WITH sized AS MATERIALIZED (
    SELECT x.id, x.name, octets(x.payload, x.headers, x.tags, x.retry, x.exclude) AS bytes
      FROM (SELECT x.* FROM schedule AS x
             WHERE x.tenant = :tenant AND x.name > CAST(:cursor AS text) AND x.name >= CAST(:first AS text) AND x.name <= CAST(:last AS text)
             ORDER BY x.name LIMIT :examined) AS x
     WHERE (CAST(:task AS text) IS NULL OR x.task = :task) AND (CAST(:queue AS text) IS NULL OR x.queue = :queue)
       AND (CAST(:owner AS text) IS NULL OR x.owner = :owner) AND (CAST(:paused AS int) IS NULL OR x.paused = :paused)
       AND (CAST(:named AS int) IS NULL OR x.defaults & 1 = 0)
     ORDER BY x.name LIMIT :limit
),
cut AS MATERIALIZED (
    SELECT id, found FROM (SELECT s.id, count(*) OVER () AS found, s.bytes, sum(s.bytes) OVER (ORDER BY s.name) AS upto FROM sized AS s) AS c
     WHERE c.upto <= :most OR c.upto = c.bytes
)
SELECT s.*, n.next_at, n.last_at, n.waiting_count, w.missing_at, p.reason AS pause_reason, p.actor AS pause_actor, p.paused_at, p.resume_at, c.found
  FROM cut AS c CROSS JOIN LATERAL (SELECT x.* FROM schedule x WHERE x.id = c.id LIMIT 1) s
 CROSS JOIN LATERAL (SELECT x.* FROM schedule_next x WHERE x.id = s.id LIMIT 1) n
  LEFT JOIN LATERAL (SELECT x.missing_at FROM schedule_watch x WHERE x.schedule_id = s.id LIMIT 1) w ON true
  LEFT JOIN LATERAL (SELECT x.* FROM pause x WHERE x.kind = 'schedule' AND x.tenant = s.tenant AND x.name = CAST(s.id AS text) LIMIT 1) p ON true
 ORDER BY s.name
-- sqlite
WITH sized AS MATERIALIZED (
    SELECT x.id, x.name, octets(x.payload, x.headers, x.tags, x.retry, x.exclude) AS bytes
      FROM (SELECT x.* FROM schedule AS x
             WHERE x.tenant = :tenant AND x.name > CAST(:cursor AS text) AND x.name >= CAST(:first AS text) AND x.name <= CAST(:last AS text)
             ORDER BY x.name LIMIT :examined) AS x
     WHERE (CAST(:task AS text) IS NULL OR x.task = :task) AND (CAST(:queue AS text) IS NULL OR x.queue = :queue)
       AND (CAST(:owner AS text) IS NULL OR x.owner = :owner) AND (CAST(:paused AS int) IS NULL OR x.paused = :paused)
       AND (CAST(:named AS int) IS NULL OR x.defaults & 1 = 0)
     ORDER BY x.name LIMIT :limit
),
cut AS MATERIALIZED (
    SELECT id, found FROM (SELECT s.id, count(*) OVER () AS found, s.bytes, sum(s.bytes) OVER (ORDER BY s.name) AS upto FROM sized AS s) AS c
     WHERE c.upto <= :most OR c.upto = c.bytes
)
SELECT s.*, n.next_at, n.last_at, n.waiting_count, w.missing_at, p.reason AS pause_reason, p.actor AS pause_actor, p.paused_at, p.resume_at, c.found
  FROM cut AS c CROSS JOIN schedule AS s ON s.id = c.id
  JOIN schedule_next AS n ON n.id = s.id LEFT JOIN schedule_watch AS w ON w.schedule_id = s.id
  LEFT JOIN pause AS p ON p.kind = 'schedule' AND p.tenant = s.tenant AND p.name = s.id
 ORDER BY s.name

-- name: examined
-- How many names `find` looks at, and the last of them.
-- both
SELECT count(*) AS examined, max(s.name) AS name
  FROM (SELECT x.name FROM schedule x
         WHERE x.tenant = :tenant AND x.name > CAST(:cursor AS text) AND x.name >= CAST(:first AS text) AND x.name <= CAST(:last AS text)
         ORDER BY x.name LIMIT :examined) s
