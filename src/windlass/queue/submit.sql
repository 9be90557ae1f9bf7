-- name: submit
-- Insert jobs: the due ones into queue, ready, the others into timer.
-- rank: due time less the credit of its priority, in milliseconds; of a fifo queue the time of creation.
-- late_ms: how long ago the time is that was asked for.
-- guard: the lane is in use; one that a deleted tenant left behind gets nothing, and is looked up again.
-- returns: id, lane, due_at, and the rank of those that are ready; the transaction, by which its fate can be asked for.
-- postgres
WITH i AS MATERIALIZED (
    SELECT r.*, coalesce(r.run_at, :now + coalesce(r.delay_ms, 0) * interval '1 millisecond') AS asked_at,
           coalesce(r.start_by, :now + r.start_within_ms * interval '1 millisecond') AS deadline_at,
           CAST(floor(extract(epoch FROM :now) * 1000) AS bigint) - CASE WHEN l.fifo = 1 THEN 0 ELSE r.priority * l.credit_ms END AS rank
      FROM rows(:jobs, id uuid, lane int, task text, payload text, headers text, tags text,
                priority smallint, max_attempts smallint, max_lost smallint, timeout_s int, retry text,
                idempotency_key text, unique_key text, flow_id uuid, parent_id uuid, schedule_id uuid, slot_at timestamptz,
                run_at timestamptz, delay_ms bigint, start_by timestamptz, start_within_ms bigint, defaults int, flags smallint) AS r
      JOIN lane l ON l.id = r.lane AND l.retired = 0
),
j AS (
    INSERT INTO job (id, lane, task, payload, headers, tags, priority, max_attempts, max_lost, timeout_s, retry, idempotency_key,
                     unique_key, flow_id, parent_id, schedule_id, slot_at, run, run_at, created_at, start_by, defaults)
    SELECT i.id, i.lane, i.task, i.payload, i.headers, i.tags, i.priority, i.max_attempts, i.max_lost, i.timeout_s, i.retry, i.idempotency_key,
           i.unique_key, i.flow_id, i.parent_id, i.schedule_id, i.slot_at, 1, i.asked_at, :now, i.deadline_at, i.defaults
      FROM i
),
q AS (
    INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, late_ms, start_by, pending, flags)
    SELECT i.id, i.lane, i.rank, 0, 0, 0, 0, 0, :now, CAST(least(greatest(extract(epoch FROM :now - i.asked_at) * 1000, 0), 2147483647) AS int), i.deadline_at, 0, i.flags
      FROM i WHERE i.asked_at <= :now
),
t AS (
    INSERT INTO timer (id, due_at, lane, attempt, fence, lost, releases, flags, reason)
    SELECT i.id, i.asked_at, i.lane, 0, 0, 0, 0, i.flags, 0 FROM i WHERE i.asked_at > :now
)
SELECT i.id, i.lane, greatest(i.asked_at, :now) AS due_at, CASE WHEN i.asked_at <= :now THEN i.rank END AS rank, transaction()
  FROM i
-- sqlite
INSERT INTO job (id, lane, task, payload, headers, tags, priority, max_attempts, max_lost, timeout_s, retry, idempotency_key,
                 unique_key, flow_id, parent_id, schedule_id, slot_at, run, run_at, created_at, start_by, defaults)
SELECT i.id, i.lane, i.task, i.payload, i.headers, i.tags, i.priority, i.max_attempts, i.max_lost, i.timeout_s, i.retry, i.idempotency_key,
       i.unique_key, i.flow_id, i.parent_id, i.schedule_id, i.slot_at, 1,
       coalesce(i.run_at, :now + coalesce(i.delay_ms, 0) * 1000), :now,
       coalesce(i.start_by, :now + i.start_within_ms * 1000), i.defaults
  FROM rows(:jobs) AS i;
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, late_ms, start_by, pending, flags)
SELECT i.id, i.lane, :now / 1000 - CASE WHEN l.fifo = 1 THEN 0 ELSE i.priority * l.credit_ms END, 0, 0, 0, 0, 0, :now,
       min((:now - coalesce(i.run_at, :now)) / 1000, 2147483647), coalesce(i.start_by, :now + i.start_within_ms * 1000), 0, i.flags
  FROM rows(:jobs) AS i CROSS JOIN lane AS l ON l.id = i.lane
 WHERE coalesce(i.run_at, :now + coalesce(i.delay_ms, 0) * 1000) <= :now;
INSERT INTO timer (id, due_at, lane, attempt, fence, lost, releases, flags, reason)
SELECT i.id, coalesce(i.run_at, :now + coalesce(i.delay_ms, 0) * 1000), i.lane, 0, 0, 0, 0, i.flags, 0
  FROM rows(:jobs) AS i
 WHERE coalesce(i.run_at, :now + coalesce(i.delay_ms, 0) * 1000) > :now;
SELECT i.id, i.lane, max(coalesce(i.run_at, :now + coalesce(i.delay_ms, 0) * 1000), :now) AS due_at,
       CASE WHEN coalesce(i.run_at, :now + coalesce(i.delay_ms, 0) * 1000) <= :now
            THEN :now / 1000 - CASE WHEN l.fifo = 1 THEN 0 ELSE i.priority * l.credit_ms END END AS rank, transaction()
  FROM rows(:jobs) AS i CROSS JOIN lane AS l ON l.id = i.lane AND l.retired = 0

-- name: take_keys
-- Take keys that are free or whose time is over; a rival's open transaction is waited for.
-- locks: dedup rows in the order given (sorted).  returns: what was taken.
-- both
INSERT INTO dedup AS d (scope, key, job_id, content_hash, expires_at)
SELECT i.scope, i.key, i.job_id, i.content_hash, :now + i.window_ms * interval '1 millisecond'
  FROM rows(:keys, scope text, key text, job_id uuid, content_hash text, window_ms bigint) AS i ORDER BY i.scope, i.key
ON CONFLICT (scope, key) DO UPDATE SET job_id = excluded.job_id, content_hash = excluded.content_hash,
                                       expires_at = excluded.expires_at
 WHERE d.expires_at <= :now
RETURNING scope, key

-- name: find_keys
-- Who holds these keys now.
-- both
SELECT d.scope, d.key, d.job_id, d.content_hash
  FROM rows(:keys, scope text, key text) AS i JOIN dedup d ON d.scope = ANY(ARRAY[i.scope]) AND d.key = ANY(ARRAY[i.key])

-- name: move_keys
-- Let idempotency keys, taken in this transaction, name another job.
-- both
UPDATE dedup SET job_id = i.job_id
  FROM rows(:keys, scope text, key text, job_id uuid) AS i WHERE dedup.scope = ANY(ARRAY[i.scope]) AND dedup.key = ANY(ARRAY[i.key])

-- name: find_jobs
-- The state of jobs that a key named.
-- postgres
SELECT i.id, x.state, x.next_run_at
  FROM unnest(CAST(:ids AS uuid[])) AS i (id) CROSS JOIN LATERAL (SELECT j.state, j.next_run_at FROM jobs j WHERE j.id = i.id LIMIT 1) x
-- sqlite
SELECT id, state, next_run_at FROM jobs WHERE id IN (SELECT value FROM json_each(:ids))
