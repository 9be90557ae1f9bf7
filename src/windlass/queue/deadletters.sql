-- name: ended_slots
-- Of these jobs, those that have ended and were made for slots.
-- postgres
SELECT d.schedule_id, d.slot_at, d.id FROM done d WHERE d.id = ANY(CAST(:ids AS uuid[])) AND d.schedule_id IS NOT NULL AND d.slot_at IS NOT NULL
-- sqlite
SELECT d.schedule_id, d.slot_at, d.id FROM json_each(:ids) AS i CROSS JOIN done AS d ON d.id = i.value
 WHERE d.schedule_id IS NOT NULL AND d.slot_at IS NOT NULL

-- name: lock_dead
-- Lock the jobs of a tenant that lie in dead and may run again.
-- locks: dead rows by ascending id.  plan: `lane + 0` keeps it from beginning with all dead jobs of the tenant's lanes.
-- postgres
SELECT d.id, d.unique_key, d.finished_at FROM dead d JOIN lane l ON l.id = d.lane + 0
 WHERE d.id = ANY(CAST(:ids AS uuid[])) AND l.tenant = :tenant ORDER BY d.id FOR UPDATE OF d
-- sqlite
SELECT d.id, d.unique_key, d.finished_at FROM json_each(:ids) AS i CROSS JOIN dead AS d ON d.id = i.value CROSS JOIN lane AS l ON l.id = d.lane
 WHERE l.tenant = :tenant ORDER BY d.id

-- name: lock_done
-- Lock the jobs of a tenant that lie in done and may run again.
-- locks: done rows by ascending id.  plan: `lane + 0`, as above.
-- postgres
SELECT d.id, d.unique_key, d.finished_at FROM done d JOIN lane l ON l.id = d.lane + 0
 WHERE d.id = ANY(CAST(:ids AS uuid[])) AND l.tenant = :tenant AND d.outcome IN (4, 7) ORDER BY d.id FOR UPDATE OF d
-- sqlite
SELECT d.id, d.unique_key, d.finished_at FROM json_each(:ids) AS i CROSS JOIN done AS d ON d.id = i.value CROSS JOIN lane AS l ON l.id = d.lane
 WHERE l.tenant = :tenant AND d.outcome IN (4, 7) ORDER BY d.id

-- name: take_unique
-- Take the unique keys of jobs that are to live again, where no other live job has them and no key's time still runs.
-- postgres
INSERT INTO dedup AS d (scope, key, job_id, content_hash)
SELECT i.scope, i.key, i.job_id, '' FROM rows(:keys, scope text, key text, job_id uuid) AS i ORDER BY i.scope, i.key
ON CONFLICT (scope, key) DO UPDATE SET job_id = excluded.job_id, content_hash = excluded.content_hash, expires_at = NULL
 WHERE d.expires_at <= :now
RETURNING job_id
-- sqlite
INSERT INTO dedup AS d (scope, key, job_id, content_hash)
SELECT i.scope, i.key, i.job_id, '' FROM rows(:keys) AS i WHERE true
ON CONFLICT (scope, key) DO UPDATE SET job_id = excluded.job_id, content_hash = excluded.content_hash, expires_at = NULL
 WHERE d.expires_at <= :now
RETURNING job_id

-- name: drop_pauses
-- Forget the pauses of jobs that are to live again: they were of the run that has ended.
-- postgres
DELETE FROM pause WHERE kind = 'job' AND tenant = :tenant AND name = ANY(CAST(:names AS text[]))
-- sqlite
DELETE FROM pause WHERE kind = 'job' AND tenant = :tenant AND name IN (SELECT value FROM json_each(:names))

-- name: revive_dead
-- Let jobs of dead run again: a new run, attempts from 0, the fence goes on; the old end is kept as an attempt. No start deadline any more.
-- postgres
WITH d AS (DELETE FROM dead WHERE dead.id = ANY(CAST(:ids AS uuid[])) RETURNING dead.*),
a AS (
    INSERT INTO attempt (job_id, run, attempt, fence, lane, outcome, result, metrics, error_type, error, traceback, reason, worker,
                         session, claimed_at, started_at, finished_at)
    SELECT d.id, d.run, d.attempt, d.fence, d.lane, d.outcome, d.result, d.metrics, d.error_type, d.error, d.traceback, d.reason, d.worker,
           d.session, d.claimed_at, d.started_at, d.finished_at FROM d
),
j AS (
    INSERT INTO job (columns(job))
    SELECT d.id, d.task, coalesce(:payload, d.payload), d.headers, d.tags, d.priority, d.max_attempts, d.max_lost, d.timeout_s,
           d.retry, d.idempotency_key, d.unique_key, d.flow_id, d.parent_id, d.schedule_id, d.slot_at, d.run + 1, least(d.run_at, :now), d.created_at, NULL, d.defaults FROM d
)
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, pending, flags)
SELECT d.id, d.lane,
       CAST(floor(extract(epoch FROM CASE WHEN l.fifo = 1 THEN d.created_at ELSE :now END) * 1000) AS bigint)
       - CASE WHEN l.fifo = 1 THEN 0 ELSE d.priority * l.credit_ms END,
       0, 0, d.fence, 0, 0, 0, CASE WHEN d.unique_key IS NULL THEN 0 ELSE 4 END
       + CASE WHEN EXISTS (SELECT 1 FROM checkpoint c WHERE c.job_id = ANY(ARRAY[d.id]) AND c.value IS NOT NULL) THEN 32 ELSE 0 END
  FROM d JOIN lane l ON l.id = d.lane RETURNING id, lane, rank
-- sqlite
INSERT INTO attempt (job_id, run, attempt, fence, lane, outcome, result, metrics, error_type, error, traceback, reason, worker,
                     session, claimed_at, started_at, finished_at)
SELECT d.id, d.run, d.attempt, d.fence, d.lane, d.outcome, d.result, d.metrics, d.error_type, d.error, d.traceback, d.reason, d.worker,
       d.session, d.claimed_at, d.started_at, d.finished_at
  FROM json_each(:ids) AS i CROSS JOIN dead AS d ON d.id = i.value;
INSERT INTO job (columns(job))
SELECT d.id, d.task, coalesce(:payload, d.payload), d.headers, d.tags, d.priority, d.max_attempts, d.max_lost, d.timeout_s,
           d.retry, d.idempotency_key, d.unique_key, d.flow_id, d.parent_id, d.schedule_id, d.slot_at, d.run + 1, min(d.run_at, :now), d.created_at, NULL, d.defaults
  FROM json_each(:ids) AS i CROSS JOIN dead AS d ON d.id = i.value;
CREATE TEMP TABLE IF NOT EXISTS revive_pick (id);
DELETE FROM temp.revive_pick;
INSERT INTO temp.revive_pick SELECT d.id FROM json_each(:ids) AS i CROSS JOIN dead AS d ON d.id = i.value;
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, pending, flags)
SELECT d.id, d.lane,
       CASE WHEN l.fifo = 1 THEN d.created_at / 1000 ELSE :now / 1000 - d.priority * l.credit_ms END,
       0, 0, d.fence, 0, 0, 0, CASE WHEN d.unique_key IS NULL THEN 0 ELSE 4 END
       + CASE WHEN EXISTS (SELECT 1 FROM checkpoint AS c WHERE c.job_id = d.id AND c.value IS NOT NULL) THEN 32 ELSE 0 END
  FROM temp.revive_pick AS p CROSS JOIN dead AS d ON d.id = p.id CROSS JOIN lane AS l ON l.id = d.lane;
DELETE FROM dead WHERE id IN (SELECT id FROM temp.revive_pick);
SELECT q.id, q.lane, q.rank FROM temp.revive_pick AS p CROSS JOIN queue AS q ON q.id = p.id

-- name: revive_done
-- Let jobs of done run again: a new run, attempts from 0, the fence goes on; the old end is kept as an attempt. No start deadline any more.
-- postgres
WITH d AS (DELETE FROM done WHERE done.id = ANY(CAST(:ids AS uuid[])) AND done.outcome IN (4, 7) RETURNING done.*),
a AS (
    INSERT INTO attempt (job_id, run, attempt, fence, lane, outcome, result, metrics, error_type, error, traceback, reason, worker,
                         session, claimed_at, started_at, finished_at)
    SELECT d.id, d.run, d.attempt, d.fence, d.lane, d.outcome, d.result, d.metrics, d.error_type, d.error, d.traceback, d.reason, d.worker,
           d.session, d.claimed_at, d.started_at, d.finished_at FROM d
),
j AS (
    INSERT INTO job (columns(job))
    SELECT d.id, d.task, coalesce(:payload, d.payload), d.headers, d.tags, d.priority, d.max_attempts, d.max_lost, d.timeout_s,
           d.retry, d.idempotency_key, d.unique_key, d.flow_id, d.parent_id, d.schedule_id, d.slot_at, d.run + 1, least(d.run_at, :now), d.created_at, NULL, d.defaults FROM d
)
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, pending, flags)
SELECT d.id, d.lane,
       CAST(floor(extract(epoch FROM CASE WHEN l.fifo = 1 THEN d.created_at ELSE :now END) * 1000) AS bigint)
       - CASE WHEN l.fifo = 1 THEN 0 ELSE d.priority * l.credit_ms END,
       0, 0, d.fence, 0, 0, 0, CASE WHEN d.unique_key IS NULL THEN 0 ELSE 4 END
       + CASE WHEN EXISTS (SELECT 1 FROM checkpoint c WHERE c.job_id = ANY(ARRAY[d.id]) AND c.value IS NOT NULL) THEN 32 ELSE 0 END
  FROM d JOIN lane l ON l.id = d.lane RETURNING id, lane, rank
-- sqlite
INSERT INTO attempt (job_id, run, attempt, fence, lane, outcome, result, metrics, error_type, error, traceback, reason, worker,
                     session, claimed_at, started_at, finished_at)
SELECT d.id, d.run, d.attempt, d.fence, d.lane, d.outcome, d.result, d.metrics, d.error_type, d.error, d.traceback, d.reason, d.worker,
       d.session, d.claimed_at, d.started_at, d.finished_at
  FROM json_each(:ids) AS i CROSS JOIN done AS d ON d.id = i.value AND d.outcome IN (4, 7);
INSERT INTO job (columns(job))
SELECT d.id, d.task, coalesce(:payload, d.payload), d.headers, d.tags, d.priority, d.max_attempts, d.max_lost, d.timeout_s,
           d.retry, d.idempotency_key, d.unique_key, d.flow_id, d.parent_id, d.schedule_id, d.slot_at, d.run + 1, min(d.run_at, :now), d.created_at, NULL, d.defaults
  FROM json_each(:ids) AS i CROSS JOIN done AS d ON d.id = i.value AND d.outcome IN (4, 7);
CREATE TEMP TABLE IF NOT EXISTS revive_pick (id);
DELETE FROM temp.revive_pick;
INSERT INTO temp.revive_pick SELECT d.id FROM json_each(:ids) AS i CROSS JOIN done AS d ON d.id = i.value AND d.outcome IN (4, 7);
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, pending, flags)
SELECT d.id, d.lane,
       CASE WHEN l.fifo = 1 THEN d.created_at / 1000 ELSE :now / 1000 - d.priority * l.credit_ms END,
       0, 0, d.fence, 0, 0, 0, CASE WHEN d.unique_key IS NULL THEN 0 ELSE 4 END
       + CASE WHEN EXISTS (SELECT 1 FROM checkpoint AS c WHERE c.job_id = d.id AND c.value IS NOT NULL) THEN 32 ELSE 0 END
  FROM temp.revive_pick AS p CROSS JOIN done AS d ON d.id = p.id CROSS JOIN lane AS l ON l.id = d.lane;
DELETE FROM done WHERE id IN (SELECT id FROM temp.revive_pick);
SELECT q.id, q.lane, q.rank FROM temp.revive_pick AS p CROSS JOIN queue AS q ON q.id = p.id

-- name: purge
-- Remove dead jobs of a tenant for good.
-- postgres
DELETE FROM dead USING lane l WHERE dead.id = ANY(CAST(:ids AS uuid[])) AND l.id = dead.lane + 0 AND l.tenant = :tenant RETURNING dead.id
-- sqlite
DELETE FROM dead WHERE id IN (SELECT value FROM json_each(:ids)) AND lane IN (SELECT l.id FROM lane AS l WHERE l.tenant = :tenant)
RETURNING id
