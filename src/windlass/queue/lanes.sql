-- name: make_tenant
-- Make the tenant on first use.  returns: a row if it was not there.
-- both
INSERT INTO tenant (name, created_at) VALUES (:tenant, :now) ON CONFLICT (name) DO NOTHING RETURNING name

-- name: lock_tenant
-- Take the tenant's row: making lanes, pausing and configuring queues come one after the other.
-- locks: tenant.
-- both
SELECT name, erasing FROM tenant WHERE name = :tenant FOR UPDATE

-- name: make_lanes
-- Insert lanes that do not exist, born paused (bit 1 queue, bit 2 tenant), ranked and limited as their queue says, and use those again
-- that a delete has retired; return both.
-- both
INSERT INTO lane (tenant, queue, task, labels, key, paused, limited, credit_ms, fifo)
SELECT i.tenant, i.queue, i.task, i.labels, i.key,
       CASE WHEN EXISTS (SELECT 1 FROM pause p WHERE p.kind = 'queue' AND p.tenant = i.tenant AND p.name = i.queue) THEN 1 ELSE 0 END
       + CASE WHEN EXISTS (SELECT 1 FROM pause p WHERE p.kind = 'tenant' AND p.tenant = i.tenant) THEN 2 ELSE 0 END,
       coalesce(o.limited, 0), coalesce(o.credit_ms, CAST(:credit_ms AS bigint)), coalesce(o.fifo, 0)
  FROM rows(:lanes, tenant text, queue text, task text, labels text, key text) AS i
  LEFT JOIN lane o ON o.tenant = i.tenant AND o.queue = i.queue AND o.task = '' AND o.labels = '' AND o.key = ''
ON CONFLICT (tenant, queue, task, labels, key) DO UPDATE SET retired = 0 WHERE lane.retired <> 0
RETURNING id AS number

-- name: count_lanes
-- How many lanes a tenant has, its queues' own rows included.
-- both
SELECT count(*) AS lanes FROM lane WHERE tenant = :tenant AND retired = 0

-- name: lanes_of_queues
-- The lanes of some queues of a tenant, without the queues' own rows.
-- both
SELECT id AS number, tenant, queue, task, labels, key, paused, limited, credit_ms, fifo, max_running, rate_per_s, burst
  FROM lane WHERE tenant = :tenant AND queue = ANY(CAST(:queues AS text[])) AND task <> '' ORDER BY id

-- name: lanes_of_queues_with_own
-- The lanes of some queues of a tenant, the queues' own rows included.
-- both
SELECT id AS number, tenant, queue, task, labels, key, paused, limited, credit_ms, fifo, max_running, rate_per_s, burst
  FROM lane WHERE tenant = :tenant AND queue = ANY(CAST(:queues AS text[])) ORDER BY id

-- name: lanes_by_number
-- Lanes by their numbers.
-- hot: claims wait for it.
-- both
SELECT id AS number, tenant, queue, task, labels, key, paused, limited, credit_ms, fifo, max_running, rate_per_s, burst
  FROM lane WHERE id = ANY(CAST(:numbers AS int[]))

-- name: configure_queue
-- Set how all lanes of a queue rank their jobs and whether they are limited, and on the queue's own row its limits.
-- limited: 2 when it was not before; limits.py makes it 1.
-- What was spent at another rate is forgotten: else a new rate would begin when the old one is paid off.
-- postgres
UPDATE lane SET credit_ms = :credit_ms, fifo = :fifo, limited_at = CASE WHEN CAST(:limited AS int) = 1 AND limited = 0 THEN :now ELSE limited_at END,
       limited = CASE WHEN CAST(:limited AS int) = 0 THEN 0 WHEN limited = 0 THEN 2 ELSE limited END,
       max_running = CASE WHEN task = '' THEN :max_running ELSE max_running END,
       rate_per_s = CASE WHEN task = '' THEN :rate_per_s ELSE rate_per_s END,
       burst = CASE WHEN task = '' THEN :burst ELSE burst END,
       tat_at = CASE WHEN task = '' AND rate_per_s IS DISTINCT FROM :rate_per_s THEN NULL ELSE tat_at END
 WHERE tenant = :tenant AND queue = :queue
-- sqlite
UPDATE lane SET credit_ms = :credit_ms, fifo = :fifo, limited_at = CASE WHEN CAST(:limited AS int) = 1 AND limited = 0 THEN :now ELSE limited_at END,
       limited = CASE WHEN CAST(:limited AS int) = 0 THEN 0 WHEN limited = 0 THEN 2 ELSE limited END,
       max_running = CASE WHEN task = '' THEN :max_running ELSE max_running END,
       rate_per_s = CASE WHEN task = '' THEN :rate_per_s ELSE rate_per_s END,
       burst = CASE WHEN task = '' THEN :burst ELSE burst END,
       tat_at = CASE WHEN task = '' AND rate_per_s IS NOT :rate_per_s THEN NULL ELSE tat_at END
 WHERE tenant = :tenant AND queue = :queue
