-- name: make_key
-- Store a key that is not there yet: its id and the hash of its token.
-- guard: an id that is taken stays as it is.  returns: the key, or nothing.
-- both
INSERT INTO key (id, name, hash, tenant, scopes, queues, created_at, expires_at)
VALUES (:id, :name, :hash, :tenant, :scopes, :queues, :now, :expires_at)
ON CONFLICT (id) DO NOTHING
RETURNING id AS key, name, tenant, scopes, queues, created_at, expires_at, revoked_at

-- name: keep_tenant
-- See that a tenant is there, and keep it until the transaction ends: deleting it waits, or was first.
-- locks: tenant.
-- both
SELECT name, erasing FROM tenant WHERE name = :tenant FOR KEY SHARE

-- name: keep_key
-- See that a key may be used now, and keep it so until the transaction ends: revoking it waits, or was first.
-- Not FOR SHARE: those who share a row come before a revoke that waits, so a key could put its own end off.
-- locks: key, after its tenant.
-- both
SELECT 1 AS one FROM key WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now) FOR NO KEY UPDATE

-- name: last_key
-- When the last key of a tenant ended, by a revoke, by its expiry, or with all of the tenant, and how long ago; null if none has.
-- A revoke counts whenever it was: to a transaction that has waited for a lock it may be later than :now.
-- postgres
SELECT max(x.ended_at) AS ended_at, CAST(extract(epoch FROM :now - max(x.ended_at)) * 1000 AS bigint) AS age_ms
  FROM (SELECT created_at AS ended_at FROM tenant WHERE name = :tenant AND erasing = ''
         UNION ALL
        SELECT least(revoked_at, expires_at) FROM key WHERE tenant = :tenant AND (revoked_at IS NOT NULL OR expires_at <= :now)) x
-- sqlite
SELECT max(x.ended_at) AS ended_at, (:now - max(x.ended_at)) / 1000 AS age_ms
  FROM (SELECT created_at AS ended_at FROM tenant WHERE name = :tenant AND erasing = ''
         UNION ALL
        SELECT min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)) FROM key
         WHERE tenant = :tenant AND (revoked_at IS NOT NULL OR expires_at <= :now)) x

-- name: find_keys
-- The keys that may be used now: not revoked, not expired by the database's clock, of a tenant that is there.
-- hot: every caller waits for it.
-- postgres
SELECT k.id AS key, k.name, k.hash, k.tenant, k.scopes, k.queues, k.created_at, k.expires_at, k.revoked_at
  FROM key k
 WHERE k.id = ANY (CAST(:ids AS text[])) AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
   AND (k.tenant IS NULL OR EXISTS (SELECT 1 FROM tenant t WHERE t.name = k.tenant))
-- sqlite
SELECT k.id AS key, k.name, k.hash, k.tenant, k.scopes, k.queues, k.created_at, k.expires_at, k.revoked_at
  FROM key k
 WHERE k.id IN (SELECT value FROM json_each(:ids)) AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
   AND (k.tenant IS NULL OR EXISTS (SELECT 1 FROM tenant t WHERE t.name = k.tenant))

-- name: hash_of
-- The hash stored under an id, whether its key may be used or not.
-- both
SELECT hash FROM key WHERE id = :id

-- name: list_keys
-- A page of keys by id, of one tenant or, with none named, of all.
-- both
SELECT id AS key, name, tenant, scopes, queues, created_at, expires_at, revoked_at
  FROM key WHERE (CAST(:tenant AS text) IS NULL OR tenant = CAST(:tenant AS text)) AND id > :cursor
 ORDER BY id LIMIT :limit

-- name: revoke_key
-- End a key for good; one that was revoked before keeps its time.
-- guard: within the tenant, when one is named.  returns: the key, or nothing.
-- both
UPDATE key SET revoked_at = coalesce(revoked_at, :now)
 WHERE id = :id AND (CAST(:tenant AS text) IS NULL OR tenant = CAST(:tenant AS text))
RETURNING id AS key, name, tenant, scopes, queues, created_at, expires_at, revoked_at

-- name: queues_of
-- In which queues a tenant's jobs are, for keys that are limited to some.
-- plan: the inner limit keeps the tenant out of the search, or it would begin with all jobs of its lanes.
-- postgres
SELECT i.id, x.queue
  FROM unnest(CAST(:ids AS uuid[])) AS i (id)
 CROSS JOIN LATERAL (SELECT j.queue, j.tenant FROM jobs j WHERE j.id = i.id LIMIT 1) x WHERE x.tenant = :tenant
-- sqlite
SELECT id, queue FROM jobs WHERE id IN (SELECT value FROM json_each(:ids)) AND tenant = :tenant

-- name: queues_held
-- In which queues sessions hold leases, for keys that are limited to some.
-- hot: workers wait for it.
-- index: queue_leased.
-- postgres
SELECT DISTINCT l.queue
  FROM unnest(CAST(:sessions AS uuid[])) AS i (session)
 CROSS JOIN LATERAL (SELECT q.lane FROM queue q WHERE q.place = 1 AND q.session = i.session OFFSET 0) x JOIN lane l ON l.id = x.lane
 WHERE l.tenant = :tenant
-- sqlite
SELECT DISTINCT l.queue FROM queue AS q INDEXED BY queue_leased CROSS JOIN lane AS l ON l.id = q.lane
 WHERE q.place = 1 AND q.session IN (SELECT value FROM json_each(:sessions)) AND l.tenant = :tenant
