-- name: publish
-- Keep what a worker that registers tells of its tasks: its build is the newest. What was told within a minute is left as it is,
-- unless another build came after it.
-- locks: task rows by ascending name.  returns: the tasks of which something was written.
-- both
INSERT INTO task AS t (tenant, name, fingerprint, signature, seen_at, registered_at)
SELECT i.tenant, i.name, i.fingerprint, i.signature, :now, :now
  FROM rows(:tasks, tenant text, name text, fingerprint text, signature text) AS i ORDER BY i.name, i.fingerprint
ON CONFLICT (tenant, name, fingerprint) DO UPDATE SET seen_at = excluded.seen_at, registered_at = excluded.registered_at
 WHERE t.seen_at < excluded.seen_at - interval '1 minute'
    OR EXISTS (SELECT 1 FROM task o WHERE o.tenant = t.tenant AND o.name = t.name AND o.fingerprint <> t.fingerprint
                  AND o.registered_at >= t.registered_at)
RETURNING name

-- name: renew
-- Note that workers which go on still have these tasks; none of them becomes the newest build.
-- locks: task rows by ascending name, skipping locked ones: whoever has them locked says the same.
-- postgres
WITH l AS MATERIALIZED (
    SELECT t.tenant, t.name, t.fingerprint FROM rows(:tasks, tenant text, name text, fingerprint text) AS i
      JOIN task t ON t.tenant = i.tenant AND t.name = i.name AND t.fingerprint = i.fingerprint
     WHERE t.seen_at < :now - interval '1 minute' ORDER BY t.name, t.fingerprint FOR UPDATE OF t SKIP LOCKED
)
UPDATE task t SET seen_at = :now FROM l WHERE t.tenant = l.tenant AND t.name = l.name AND t.fingerprint = l.fingerprint
-- sqlite
UPDATE task SET seen_at = :now FROM rows(:tasks) AS i
 WHERE task.tenant = i.tenant AND task.name = i.name AND task.fingerprint = i.fingerprint AND task.seen_at < :now - 60000000

-- name: trim
-- Remove those of a tenant's signatures that were told longest ago, beyond so many and so many bytes.
-- locks: task rows by ascending name, skipping locked ones.
-- postgres
WITH old AS MATERIALIZED (
    SELECT t.tenant, t.name, t.fingerprint FROM task t JOIN (
        SELECT k.name, k.fingerprint, row_number() OVER w AS place, sum(octet_length(k.signature)) OVER w AS size
          FROM task k WHERE k.tenant = :tenant WINDOW w AS (ORDER BY k.seen_at DESC, k.registered_at DESC, k.name, k.fingerprint)) o
        ON o.name = t.name AND o.fingerprint = t.fingerprint
     WHERE t.tenant = :tenant AND (o.place > :most OR o.size > :most_bytes) ORDER BY t.name, t.fingerprint FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM task t USING old WHERE t.tenant = old.tenant AND t.name = old.name AND t.fingerprint = old.fingerprint
-- sqlite
DELETE FROM task WHERE tenant = :tenant AND (name, fingerprint) IN (
    SELECT o.name, o.fingerprint FROM (
        SELECT k.name, k.fingerprint, row_number() OVER w AS place, sum(length(CAST(k.signature AS BLOB))) OVER w AS size
          FROM task AS k WHERE k.tenant = :tenant WINDOW w AS (ORDER BY k.seen_at DESC, k.registered_at DESC, k.name, k.fingerprint)) AS o
     WHERE o.place > :most OR o.size > :most_bytes)

-- name: recent
-- What was published within an age by a tenant, the oldest first. A tenant has few: none is beyond the bounds of trim.
-- Nothing under a deleted name: a late worker of its last owner has published that.
-- postgres
SELECT t.tenant, t.name, t.fingerprint, t.signature, CAST(extract(epoch FROM :now - t.seen_at) AS double precision) AS age_s, t.registered_at
  FROM task t
 WHERE t.tenant = :tenant AND t.seen_at > :now - CAST(:age_ms AS bigint) * interval '1 millisecond'
   AND (EXISTS (SELECT 1 FROM tenant n WHERE n.name = :tenant) OR NOT EXISTS (SELECT 1 FROM lane l WHERE l.tenant = :tenant AND l.retired = 1))
 ORDER BY t.seen_at
-- sqlite
SELECT t.tenant, t.name, t.fingerprint, t.signature, (:now - t.seen_at) / 1e6 AS age_s, t.registered_at
  FROM task AS t WHERE t.tenant = :tenant AND t.seen_at > :now - :age_ms * 1000
   AND (EXISTS (SELECT 1 FROM tenant n WHERE n.name = :tenant) OR NOT EXISTS (SELECT 1 FROM lane l WHERE l.tenant = :tenant AND l.retired = 1))
 ORDER BY t.seen_at

-- name: of_tasks
-- What was published of these tasks, the oldest first; nothing under a deleted name.
-- hot: a submit waits for it.
-- postgres
SELECT t.tenant, t.name, t.fingerprint, t.signature, CAST(extract(epoch FROM :now - t.seen_at) AS double precision) AS age_s, t.registered_at
  FROM rows(:tasks, tenant text, name text) AS i JOIN task t ON t.tenant = i.tenant AND t.name = i.name
 WHERE EXISTS (SELECT 1 FROM tenant n WHERE n.name = i.tenant) OR NOT EXISTS (SELECT 1 FROM lane l WHERE l.tenant = i.tenant AND l.retired = 1)
 ORDER BY t.seen_at
-- sqlite
SELECT t.tenant, t.name, t.fingerprint, t.signature, (:now - t.seen_at) / 1e6 AS age_s, t.registered_at
  FROM rows(:tasks) AS i CROSS JOIN task AS t ON t.tenant = i.tenant AND t.name = i.name
 WHERE EXISTS (SELECT 1 FROM tenant n WHERE n.name = i.tenant) OR NOT EXISTS (SELECT 1 FROM lane l WHERE l.tenant = i.tenant AND l.retired = 1)
 ORDER BY t.seen_at

-- name: tenant_made
-- How long ago a tenant was made; no row if there is none.
-- hot: a submit waits for it.
-- postgres
SELECT t.name, CAST(extract(epoch FROM :now - t.created_at) AS double precision) AS age_s FROM tenant t WHERE t.name = :tenant
-- sqlite
SELECT t.name, (:now - t.created_at) / 1e6 AS age_s FROM tenant AS t WHERE t.name = :tenant

-- name: list_tasks
-- The signatures of a page of tasks by name, the newest build of each first, up to :builds of them; of as many tasks as fit into :most bytes,
-- the first always.  found: how many tasks there were to show, up to :limit.
-- both
WITH built AS MATERIALIZED (
    SELECT t.name, t.fingerprint, octets(t.signature) AS bytes,
           row_number() OVER (PARTITION BY t.name ORDER BY t.registered_at DESC, t.fingerprint DESC) AS place
      FROM task AS t
     WHERE t.tenant = :tenant
       AND t.name IN (SELECT DISTINCT n.name FROM task AS n WHERE n.tenant = :tenant AND n.name > :cursor ORDER BY n.name LIMIT :limit)
),
sized AS MATERIALIZED (SELECT b.name, sum(b.bytes) AS bytes FROM built AS b WHERE b.place <= :builds GROUP BY b.name),
cut AS MATERIALIZED (
    SELECT name, found FROM (SELECT s.name, count(*) OVER () AS found, s.bytes, sum(s.bytes) OVER (ORDER BY s.name) AS upto FROM sized AS s) AS c
     WHERE c.upto <= :most OR c.upto = c.bytes
)
SELECT t.name, t.signature, t.seen_at, c.found FROM cut AS c JOIN built AS b ON b.name = c.name AND b.place <= :builds
  JOIN task AS t ON t.tenant = :tenant AND t.name = b.name AND t.fingerprint = b.fingerprint
 ORDER BY t.name, b.place
