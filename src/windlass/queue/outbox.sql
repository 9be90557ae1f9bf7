-- name: waiting
-- Rows of the outbox that are due, in the order in which they were written; looked at without a lock. On SQLite anything
-- may stand in a text, so its bytes are read; only the id is surely one, by its CHECK.
-- hot: a duty must not wait for lists.
-- index: outbox_due.
-- postgres
SELECT CAST(id AS text) AS name, kind, tenant, task, payload, options, fence,
       CAST(greatest(0, extract(epoch FROM :now - created_at) * 1000) AS bigint) AS age_ms FROM outbox
 WHERE error IS NULL AND due_at <= :now ORDER BY due_at, id LIMIT :limit
-- sqlite
SELECT id AS name, CAST(kind AS BLOB) AS kind, CAST(tenant AS BLOB) AS tenant, CAST(task AS BLOB) AS task,
       CAST(payload AS BLOB) AS payload, CAST(options AS BLOB) AS options, fence,
       CAST(max(0, min((:now - created_at) / 1000, 3153600000000)) AS INTEGER) AS age_ms
  FROM outbox WHERE error IS NULL AND due_at <= :now ORDER BY due_at, id LIMIT :limit

-- name: beyond
-- Which ids tell a time behind the last partition of job. SQLite has none.
-- hot: a duty must not wait for lists.
-- postgres
SELECT i.id FROM unnest(CAST(:ids AS uuid[])) AS i (id)
 WHERE i.id >= (SELECT CAST(max(substring(pg_catalog.pg_get_expr(c.relpartbound, c.oid) FROM 'TO .''([0-9a-f-]{36})''') COLLATE "C") AS uuid)
                  FROM pg_catalog.pg_inherits h JOIN pg_catalog.pg_class c ON c.oid = h.inhrelid
                 WHERE h.inhparent = to_regclass('windlass.job') AND NOT h.inhdetachpending)
-- sqlite
SELECT value AS id FROM json_each(:ids) WHERE false

-- name: find_row
-- The row that asks for the job of an id. On SQLite an id in another spelling is not found.
-- postgres
SELECT tenant, options, error FROM outbox WHERE id = :id AND kind = 'enqueue'
-- sqlite
SELECT CAST(tenant AS BLOB) AS tenant, CAST(options AS BLOB) AS options, error FROM outbox WHERE id = :id AND kind = 'enqueue'

-- name: take_rows
-- Remove rows that no rival is doing, by their ids as they are written; what follows in the transaction does them.
-- plan: `|| ''` keeps out outbox_due, which would be read whole, dead entries too.
-- locks: outbox rows, skipping locked ones; nobody else locks them.  returns: what was removed.
-- postgres
WITH l AS MATERIALIZED (
    SELECT o.id FROM unnest(CAST(:names AS text[])) AS i (name) JOIN outbox o ON o.id = ANY(ARRAY[CAST(i.name AS uuid)])
     WHERE (o.error || '') IS NULL FOR UPDATE OF o SKIP LOCKED
)
DELETE FROM outbox USING l WHERE outbox.id = ANY(ARRAY[l.id]) RETURNING CAST(outbox.id AS text) AS name
-- sqlite
DELETE FROM outbox WHERE id IN (SELECT value FROM json_each(:names)) AND error IS NULL RETURNING id AS name

-- name: known
-- Which ids are those of jobs, live or ended: a job keeps its row in job.
-- hot: it is asked between taking rows and storing their jobs.
-- postgres
SELECT x.id FROM unnest(CAST(:ids AS uuid[])) AS i (id) CROSS JOIN LATERAL (SELECT j.id FROM job j WHERE j.id = ANY(ARRAY[i.id]) LIMIT 1) x
-- sqlite
SELECT j.id FROM json_each(:ids) AS i CROSS JOIN job AS j ON j.id = i.value

-- name: reopen
-- Let leases whose finish was taken be leases again, for their end in the same transaction; nobody sees them so.
-- guard: job, fence, place (3 held) and a session, which no waiting job has.  locks: queue rows by ascending id.
-- postgres
WITH l AS MATERIALIZED (
    SELECT q.id FROM rows(:leases, id uuid, fence int) AS i JOIN queue q ON q.id = ANY(ARRAY[i.id])
     WHERE q.fence = i.fence AND q.place + 0 = 3 AND q.session IS NOT NULL ORDER BY i.id FOR UPDATE OF q
)
UPDATE queue q SET place = 1 FROM l WHERE q.id = ANY(ARRAY[l.id]) AND q.place + 0 = 3 RETURNING q.id
-- sqlite
UPDATE queue SET place = 1 FROM rows(:leases, id uuid, fence int) AS i
 WHERE queue.id = i.id AND queue.fence = i.fence AND queue.place = 3 AND queue.session IS NOT NULL RETURNING id

-- name: keep_rows
-- Keep rows that could not be done: set aside with an error, or due later without one.
-- postgres
UPDATE outbox SET error = i.error, due_at = :now + i.wait_ms * interval '1 millisecond'
  FROM rows(:kept, name text, error text, wait_ms bigint) AS i
 WHERE outbox.id = ANY(ARRAY[CAST(i.name AS uuid)]) AND (outbox.error || '') IS NULL
RETURNING CAST(outbox.id AS text) AS name
-- sqlite
UPDATE outbox SET error = i.error, due_at = :now + i.wait_ms * 1000
  FROM rows(:kept) AS i WHERE outbox.id = i.name AND outbox.error IS NULL
RETURNING outbox.id AS name
