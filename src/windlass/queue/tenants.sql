-- name: create_tenant
-- Make a tenant that is not there, or that was erased.  returns: the tenant, or nothing.
-- both
INSERT INTO tenant (name, created_at) VALUES (:tenant, :now)
ON CONFLICT (name) DO UPDATE SET created_at = excluded.created_at, erasing = NULL WHERE tenant.erasing = ''
RETURNING name, created_at

-- name: get_tenant
-- One tenant by its name, and its pause.
-- both
SELECT t.name, t.created_at, t.erasing, p.reason, p.actor, p.paused_at, p.resume_at
  FROM tenant t LEFT JOIN pause p ON p.kind = 'tenant' AND p.tenant = t.name AND p.name = ''
 WHERE t.name = :tenant AND coalesce(t.erasing, 'no') <> ''

-- name: list_tenants
-- A page of tenants by name, and their pauses.
-- both
SELECT t.name, t.created_at, t.erasing, p.reason, p.actor, p.paused_at, p.resume_at
  FROM tenant t LEFT JOIN pause p ON p.kind = 'tenant' AND p.tenant = t.name AND p.name = ''
 WHERE t.name > :cursor AND coalesce(t.erasing, 'no') <> '' ORDER BY t.name LIMIT :limit

-- name: count_held
-- What a tenant still has, each counted up to :most: live jobs (also those in the outbox), finished ones, attempts of jobs that are gone, schedules, and keys that
-- may be used.
-- Blocked, held and timed jobs are found by reading all of them, on a connection that reads.
-- both
SELECT (SELECT count(*) FROM (SELECT 1 FROM queue q JOIN lane l ON l.id = q.lane WHERE l.tenant = :tenant
                               UNION ALL
                              SELECT 1 FROM timer t JOIN lane l ON l.id = t.lane WHERE l.tenant = :tenant
                               UNION ALL
                              SELECT 1 FROM outbox o WHERE o.tenant = :tenant AND o.error IS NULL LIMIT :most) AS x) AS live,
       (SELECT count(*) FROM (SELECT 1 FROM lane l JOIN done d ON d.lane = l.id WHERE l.tenant = :tenant
                               UNION ALL
                              SELECT 1 FROM lane l JOIN dead d ON d.lane = l.id WHERE l.tenant = :tenant LIMIT :most) AS x) AS finished,
       (SELECT count(*) FROM (SELECT 1 FROM lane l JOIN attempt a ON a.lane = l.id WHERE l.tenant = :tenant LIMIT :most) AS x) AS attempts,
       (SELECT count(*) FROM (SELECT 1 FROM schedule s WHERE s.tenant = :tenant LIMIT :most) AS x) AS schedules,
       (SELECT count(*) FROM (SELECT 1 FROM key k WHERE k.tenant = :tenant AND k.revoked_at IS NULL
                                 AND (k.expires_at IS NULL OR k.expires_at > :now) LIMIT :most) AS x) AS keys

-- name: retire_lanes
-- Take the lanes of a tenant out of use for this delete, settings kept: a submit that sees it puts nothing there. Also those of another delete,
-- which then is refused.
-- locks: lane rows by ascending id.
-- postgres
WITH l AS MATERIALIZED (SELECT id FROM lane WHERE tenant = :tenant AND retired <> 1 ORDER BY id FOR UPDATE)
UPDATE lane SET retired = :delete FROM l WHERE lane.id = l.id
-- sqlite
UPDATE lane SET retired = :delete WHERE tenant = :tenant AND retired <> 1

-- name: use_lanes_again
-- Take the lanes that this delete has retired into use again: their tenant, which is locked, stays.
-- locks: lane rows by ascending id.
-- postgres
WITH l AS MATERIALIZED (SELECT id FROM lane WHERE tenant = :tenant AND retired = :delete ORDER BY id FOR UPDATE)
UPDATE lane SET retired = 0 FROM l WHERE lane.id = l.id
-- sqlite
UPDATE lane SET retired = 0 WHERE tenant = :tenant AND retired = :delete

-- name: lanes_in_use
-- A row if a lane of a tenant is in use, or another delete has retired one after this delete.
-- both
SELECT 1 AS one FROM lane WHERE tenant = :tenant AND retired <> 1 AND retired <> :delete LIMIT 1

-- name: reset_lanes
-- Make the retired lanes of a tenant plain, and leave them behind. Their numbers stay: servers remember them.
-- locks: lane rows by ascending id.
-- postgres
WITH l AS MATERIALIZED (SELECT id FROM lane WHERE tenant = :tenant ORDER BY id FOR UPDATE)
UPDATE lane SET paused = 0, limited = 0, credit_ms = :credit_ms, fifo = 0, max_running = NULL, rate_per_s = NULL, burst = NULL, tat_at = NULL,
       retired = 1
  FROM l WHERE lane.id = l.id
-- sqlite
UPDATE lane SET paused = 0, limited = 0, credit_ms = :credit_ms, fifo = 0, max_running = NULL, rate_per_s = NULL, burst = NULL, tat_at = NULL,
       retired = 1
 WHERE tenant = :tenant

-- name: leave_mark
-- Leave a retired lane of no queue, also of a tenant that had no lanes: it says that the tenant was deleted.
-- both
INSERT INTO lane (tenant, queue, task, labels, key, paused, limited, credit_ms, fifo, retired) VALUES (:tenant, '', '', '', '', 0, 0, :credit_ms, 0, 1)
ON CONFLICT (tenant, queue, task, labels, key) DO NOTHING

-- name: drop_tenant
-- Remove a tenant that is locked.
-- both
DELETE FROM tenant WHERE name = :tenant
