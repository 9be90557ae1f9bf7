-- The outbox: what an application says inside a transaction of its own, until the relay duty has done it by the ordinary path.
-- kind enqueue: a job to submit, under the row's id. kind finish: a lease (id, fence) whose end waits here, with its result as
-- payload; its place is held (3) and keeps its session meanwhile, so that rescue, deadlines and claims leave it alone.
-- A row that cannot be done is set aside with its error; one that cannot be done yet is due later.

-- postgres

CREATE TABLE windlass.outbox (
    id uuid NOT NULL, kind text NOT NULL DEFAULT 'enqueue', tenant text NOT NULL DEFAULT 'default', task text NOT NULL,
    payload text, options text NOT NULL DEFAULT '{}', fence integer, created_at timestamptz NOT NULL DEFAULT now(),
    due_at timestamptz NOT NULL DEFAULT to_timestamp(0), error text, PRIMARY KEY (id), CHECK (kind IN ('enqueue', 'finish'))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, vacuum_truncate = off);

CREATE INDEX outbox_due ON windlass.outbox (due_at, id) WHERE error IS NULL;

-- For applications: they may run as a role that has EXECUTE on it and nothing else. What is cheap to refuse is refused here,
-- the rest by the relay. Nothing is notified: with a NOTIFY all commits of the cluster would wait for each other.
-- The id is a UUIDv7 with microseconds, so that jobs of one transaction keep their order.
CREATE FUNCTION windlass.enqueue(task text, payload json DEFAULT NULL, options jsonb DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
DECLARE
    known CONSTANT text[] := ARRAY['tenant', 'queue', 'priority', 'run_at', 'delay', 'timeout_seconds', 'max_attempts', 'max_retries',
        'max_lost', 'retry_policy', 'delivery', 'idempotency_key', 'unique_key', 'unique_for', 'start_deadline', 'start_within', 'labels', 'tags',
        'headers'];
    unknown text;
    us CONSTANT bigint := CAST(floor(extract(epoch FROM clock_timestamp()) * 1000000) AS bigint);
    id CONSTANT uuid := CAST(encode(substring(int8send(us / 1000) FROM 3)
        || substring(int4send(CAST(28672 + (us % 1000) * 4096 / 1000 AS integer)) FROM 3)
        || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex') AS uuid);
BEGIN
    IF coalesce(length(task), 0) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'task: % characters; 1 to 200 are accepted.', coalesce(length(task), 0) USING ERRCODE = '22023';
    END IF;
    IF options IS NULL OR jsonb_typeof(options) <> 'object' THEN
        RAISE EXCEPTION 'options: an object is expected, such as {"queue": "mail"}.' USING ERRCODE = '22023';
    END IF;
    IF options ? 'concurrency_key' THEN
        RAISE EXCEPTION 'concurrency_key: it would limit nothing yet. Leave it out; max_running of the queue limits how many jobs run.'
            USING ERRCODE = '22023';
    END IF;
    SELECT k INTO unknown FROM jsonb_object_keys(options) AS k WHERE k <> ALL (known) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'options: there is no option "%". Known are: %.', unknown, array_to_string(known, ', ') USING ERRCODE = '22023';
    END IF;
    IF octet_length(CAST(payload AS text)) > 262144 THEN
        RAISE EXCEPTION 'payload: % bytes, more than 262144. Store the data elsewhere and pass its address.',
            octet_length(CAST(payload AS text)) USING ERRCODE = '54000';
    END IF;
    INSERT INTO windlass.outbox (id, tenant, task, payload, options, created_at)
    VALUES (id, coalesce(options ->> 'tenant', 'default'), task, CAST(payload AS text), CAST(options - 'tenant' AS text), windlass.clock());
    RETURN id;
END
$$;

-- For tasks that work on this database: the end of their attempt becomes part of their own transaction.
-- guard: job, fence, place (1 leased). A rescue, a time-out or another claim that came before is seen here, and refused.
CREATE FUNCTION windlass.finish(job uuid, fence integer, result json DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS
$$
DECLARE
    of_tenant text;
BEGIN
    IF octet_length(CAST(result AS text)) > 262144 THEN
        RAISE EXCEPTION 'result: % bytes, more than 262144. Store the data elsewhere and pass its address.',
            octet_length(CAST(result AS text)) USING ERRCODE = '54000';
    END IF;
    UPDATE windlass.queue AS q SET place = 3, flags = q.flags & ~2, deadline_at = NULL, start_by = NULL
     WHERE q.id = finish.job AND q.fence = finish.fence AND q.place = 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'Job % cannot be finished with fence %: its lease is over, or it was finished before.', job, fence
            USING ERRCODE = 'WL409', HINT = 'Roll this transaction back; the job is another worker''s now, or has ended.';
    END IF;
    SELECT l.tenant INTO of_tenant FROM windlass.queue AS q JOIN windlass.lane AS l ON l.id = q.lane WHERE q.id = finish.job;
    INSERT INTO windlass.outbox (id, kind, tenant, task, payload, fence, created_at)
    VALUES (finish.job, 'finish', of_tenant, '', CAST(finish.result AS text), finish.fence, windlass.clock());
END
$$;

REVOKE ALL ON FUNCTION windlass.enqueue(text, json, jsonb), windlass.finish(uuid, integer, json) FROM PUBLIC;

-- A lease whose end waits in the outbox shows the state it has.
CREATE OR REPLACE VIEW windlass.jobs_queued (
       id, tenant, queue, task, labels, state, paused, payload, headers, tags, priority, attempt, max_attempts, max_lost,
       timeout_s, retry, fence, lost, releases, run, idempotency_key, unique_key, flow_id, parent_id, schedule_id, slot_at, created_at,
       scheduled_at, next_run_at, start_by, defaults, worker, session, claimed_at, started_at, finished_at, heartbeat_at, lease_expires_at,
       deadline_at, result, metrics, error_type, error, reason, held, source) AS
SELECT j.id, l.tenant, l.queue, j.task, l.labels,
       CASE WHEN q.place = 1 AND q.flags & 2 = 2 THEN 'cancelling'
            WHEN q.session IS NOT NULL AND q.started_at IS NOT NULL THEN 'running'
            WHEN q.session IS NOT NULL THEN 'assigned'
            WHEN q.place = 2 OR q.pending > 0 THEN 'blocked'
            ELSE 'queued' END AS state,
       q.flags & 1 AS paused, j.payload, j.headers, j.tags, j.priority,
       q.attempt, j.max_attempts, j.max_lost, j.timeout_s, j.retry, q.fence, q.lost, q.releases, j.run,
       j.idempotency_key, j.unique_key, j.flow_id, j.parent_id, j.schedule_id, j.slot_at,
       j.created_at, j.run_at AS scheduled_at, greatest(j.run_at, j.created_at) AS next_run_at, j.start_by, j.defaults,
       s.worker, q.session, q.claimed_at, q.started_at, CAST(NULL AS timestamptz) AS finished_at,
       s.heartbeat_at, s.expires_at AS lease_expires_at, q.deadline_at,
       CAST(NULL AS text) AS result, CAST(NULL AS text) AS metrics, CAST(NULL AS text) AS error_type, CAST(NULL AS text) AS error, CAST(NULL AS text) AS reason,
       0 AS held,
       CASE WHEN j.schedule_id IS NULL THEN 'submit' WHEN j.slot_at IS NULL AND j.schedule_id <> j.id THEN 'manual' ELSE 'schedule' END AS source
  FROM windlass.queue q JOIN windlass.job j ON j.id = q.id JOIN windlass.lane l ON l.id = q.lane LEFT JOIN windlass.session s ON s.id = ANY(ARRAY[q.session]);

-- sqlite

-- The defaults are for applications that write rows by themselves: an id, a task and a payload are enough.
-- An id is a UUID in any spelling: with dashes or without, in upper or lower case.
CREATE TABLE outbox (
    id TEXT NOT NULL, kind TEXT NOT NULL DEFAULT 'enqueue', tenant TEXT NOT NULL DEFAULT 'default', task TEXT NOT NULL,
    payload TEXT, options TEXT NOT NULL DEFAULT '{}', fence INTEGER,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
    due_at INTEGER NOT NULL DEFAULT 0, error TEXT, PRIMARY KEY (id), CHECK (kind IN ('enqueue', 'finish')),
    CHECK (length(CAST(replace(id, '-', '') AS BLOB)) = 32 AND replace(id, '-', '') NOT GLOB '*[^0-9a-fA-F]*')
) STRICT;

CREATE INDEX outbox_due ON outbox (due_at, id) WHERE error IS NULL;

DROP VIEW jobs_queued;
CREATE VIEW jobs_queued (
       id, tenant, queue, task, labels, state, paused, payload, headers, tags, priority, attempt, max_attempts, max_lost,
       timeout_s, retry, fence, lost, releases, run, idempotency_key, unique_key, flow_id, parent_id, schedule_id, slot_at, created_at,
       scheduled_at, next_run_at, start_by, defaults, worker, session, claimed_at, started_at, finished_at, heartbeat_at, lease_expires_at,
       deadline_at, result, metrics, error_type, error, reason, held, source) AS
SELECT j.id, l.tenant, l.queue, j.task, l.labels,
       CASE WHEN q.place = 1 AND q.flags & 2 = 2 THEN 'cancelling'
            WHEN q.session IS NOT NULL AND q.started_at IS NOT NULL THEN 'running'
            WHEN q.session IS NOT NULL THEN 'assigned'
            WHEN q.place = 2 OR q.pending > 0 THEN 'blocked'
            ELSE 'queued' END AS state,
       q.flags & 1 AS paused, j.payload, j.headers, j.tags, j.priority,
       q.attempt, j.max_attempts, j.max_lost, j.timeout_s, j.retry, q.fence, q.lost, q.releases, j.run,
       j.idempotency_key, j.unique_key, j.flow_id, j.parent_id, j.schedule_id, j.slot_at,
       j.created_at, j.run_at AS scheduled_at, max(j.run_at, j.created_at) AS next_run_at, j.start_by, j.defaults,
       s.worker, q.session, q.claimed_at, q.started_at, NULL AS finished_at,
       s.heartbeat_at, s.expires_at AS lease_expires_at, q.deadline_at,
       NULL AS result, NULL AS metrics, NULL AS error_type, NULL AS error, NULL AS reason,
       0 AS held,
       CASE WHEN j.schedule_id IS NULL THEN 'submit' WHEN j.slot_at IS NULL AND j.schedule_id <> j.id THEN 'manual' ELSE 'schedule' END AS source
  FROM queue q JOIN job j ON j.id = q.id JOIN lane l ON l.id = q.lane LEFT JOIN session s ON s.id = q.session;
