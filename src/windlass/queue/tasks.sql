-- name: publish
-- Keep which arguments tasks take, as a worker tells; one that was told within a minute is left as it is.
-- locks: task rows by ascending name.
-- postgres
INSERT INTO task AS t (tenant, name, fingerprint, signature, seen_at)
SELECT i.tenant, i.name, i.fingerprint, i.signature, :now
  FROM rows(:tasks, tenant text, name text, fingerprint text, signature text) AS i ORDER BY i.name, i.fingerprint
ON CONFLICT (tenant, name, fingerprint) DO UPDATE SET seen_at = excluded.seen_at
 WHERE t.seen_at < excluded.seen_at - interval '1 minute'
-- sqlite
INSERT INTO task AS t (tenant, name, fingerprint, signature, seen_at)
SELECT i.tenant, i.name, i.fingerprint, i.signature, :now FROM rows(:tasks) AS i WHERE true
ON CONFLICT (tenant, name, fingerprint) DO UPDATE SET seen_at = excluded.seen_at
 WHERE t.seen_at < excluded.seen_at - 60000000

-- name: recent
-- What was published within an age, of all tenants, the oldest first. There are as many as builds of tasks: no index is needed.
-- postgres
SELECT t.tenant, t.name, t.fingerprint, t.signature, CAST(extract(epoch FROM :now - t.seen_at) AS double precision) AS age_s
  FROM task t WHERE t.seen_at > :now - CAST(:age_ms AS bigint) * interval '1 millisecond' ORDER BY t.seen_at
-- sqlite
SELECT t.tenant, t.name, t.fingerprint, t.signature, (:now - t.seen_at) / 1e6 AS age_s
  FROM task AS t WHERE t.seen_at > :now - :age_ms * 1000 ORDER BY t.seen_at

-- name: list_tasks
-- The signatures of a page of tasks by name, the newest of each first.
-- both
SELECT t.name, t.signature, t.seen_at FROM task AS t
 WHERE t.tenant = :tenant
   AND t.name IN (SELECT DISTINCT n.name FROM task AS n WHERE n.tenant = :tenant AND n.name > :cursor ORDER BY n.name LIMIT :limit)
 ORDER BY t.name, t.seen_at DESC
