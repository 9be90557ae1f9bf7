-- name: publish
-- Keep what a worker tells of its tasks; what was told within a minute is left as it is, unless another build came after it.
-- A worker that registers makes its build the newest (registered_at); one that only goes on does not, and brings back nothing that went
-- with its tenant.
-- locks: task rows by ascending name.  returns: the tasks of which something was written.
-- postgres
INSERT INTO task AS t (tenant, name, fingerprint, signature, seen_at, registered_at)
SELECT i.tenant, i.name, i.fingerprint, i.signature, :now, :now
  FROM rows(:tasks, tenant text, name text, fingerprint text, signature text) AS i
 WHERE CAST(:again AS int) = 0 OR EXISTS (SELECT 1 FROM task x WHERE x.tenant = i.tenant AND x.name = i.name AND x.fingerprint = i.fingerprint)
 ORDER BY i.name, i.fingerprint
ON CONFLICT (tenant, name, fingerprint) DO UPDATE SET seen_at = excluded.seen_at,
       registered_at = CASE WHEN CAST(:again AS int) = 1 THEN t.registered_at ELSE excluded.registered_at END
 WHERE t.seen_at < excluded.seen_at - interval '1 minute'
    OR (CAST(:again AS int) = 0 AND EXISTS (SELECT 1 FROM task o WHERE o.tenant = t.tenant AND o.name = t.name AND o.fingerprint <> t.fingerprint
                                               AND o.registered_at >= t.registered_at))
RETURNING t.name
-- sqlite
INSERT INTO task AS t (tenant, name, fingerprint, signature, seen_at, registered_at)
SELECT i.tenant, i.name, i.fingerprint, i.signature, :now, :now FROM rows(:tasks) AS i
 WHERE :again = 0 OR EXISTS (SELECT 1 FROM task AS x WHERE x.tenant = i.tenant AND x.name = i.name AND x.fingerprint = i.fingerprint)
ON CONFLICT (tenant, name, fingerprint) DO UPDATE SET seen_at = excluded.seen_at,
       registered_at = CASE WHEN :again = 1 THEN t.registered_at ELSE excluded.registered_at END
 WHERE t.seen_at < excluded.seen_at - 60000000
    OR (:again = 0 AND EXISTS (SELECT 1 FROM task AS o WHERE o.tenant = t.tenant AND o.name = t.name AND o.fingerprint <> t.fingerprint
                                  AND o.registered_at >= t.registered_at))
RETURNING name

-- name: recent
-- What was published within an age, of all tenants, the oldest first. There are as many as builds of tasks: no index is needed.
-- postgres
SELECT t.tenant, t.name, t.fingerprint, t.signature, CAST(extract(epoch FROM :now - t.seen_at) AS double precision) AS age_s, t.registered_at
  FROM task t WHERE t.seen_at > :now - CAST(:age_ms AS bigint) * interval '1 millisecond' ORDER BY t.seen_at
-- sqlite
SELECT t.tenant, t.name, t.fingerprint, t.signature, (:now - t.seen_at) / 1e6 AS age_s, t.registered_at
  FROM task AS t WHERE t.seen_at > :now - :age_ms * 1000 ORDER BY t.seen_at

-- name: of_tasks
-- What was published of these tasks, the oldest first.
-- hot: a submit waits for it.
-- postgres
SELECT t.tenant, t.name, t.fingerprint, t.signature, CAST(extract(epoch FROM :now - t.seen_at) AS double precision) AS age_s, t.registered_at
  FROM rows(:tasks, tenant text, name text) AS i JOIN task t ON t.tenant = i.tenant AND t.name = i.name ORDER BY t.seen_at
-- sqlite
SELECT t.tenant, t.name, t.fingerprint, t.signature, (:now - t.seen_at) / 1e6 AS age_s, t.registered_at
  FROM rows(:tasks) AS i CROSS JOIN task AS t ON t.tenant = i.tenant AND t.name = i.name ORDER BY t.seen_at

-- name: tenants_made
-- How long ago these tenants were made; those that are not there are left out.
-- hot: a submit waits for it.
-- postgres
SELECT t.name, CAST(extract(epoch FROM :now - t.created_at) AS double precision) AS age_s FROM tenant t WHERE t.name = ANY(CAST(:tenants AS text[]))
-- sqlite
SELECT t.name, (:now - t.created_at) / 1e6 AS age_s FROM tenant AS t WHERE t.name IN (SELECT value FROM json_each(:tenants))

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
