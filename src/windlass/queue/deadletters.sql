-- name: ended_slots
-- Of these jobs, those that have ended without success and were made for slots.
-- both
SELECT j.schedule_id, j.slot_at, d.id FROM unnest(CAST(:ids AS uuid[])) AS i (id) JOIN done d ON d.id = ANY(ARRAY[i.id])
  JOIN job j ON j.id = ANY(ARRAY[d.id])
 WHERE d.outcome IN (4, 7) AND j.schedule_id IS NOT NULL AND j.slot_at IS NOT NULL

-- name: lock_dead lock_done
-- Lock the jobs of a tenant that lie in {dead|done} and may run again.
-- locks: {dead|done} rows by ascending id.  plan: `lane + 0` keeps it from beginning with all {dead|finished} jobs of the tenant's lanes.
-- postgres
SELECT d.id, j.unique_key, d.finished_at FROM {dead|done} d JOIN lane l ON l.id = d.lane + 0 JOIN job j ON j.id = ANY(ARRAY[d.id])
 WHERE d.id = ANY(CAST(:ids AS uuid[])) AND l.tenant = :tenant {|AND d.outcome IN (4, 7) }ORDER BY d.id FOR UPDATE OF d
-- sqlite
SELECT d.id, j.unique_key, d.finished_at FROM json_each(:ids) AS i CROSS JOIN {dead|done} AS d ON d.id = i.value CROSS JOIN lane AS l ON l.id = d.lane
 CROSS JOIN job AS j ON j.id = d.id WHERE l.tenant = :tenant {|AND d.outcome IN (4, 7) }ORDER BY d.id

-- name: take_unique
-- Take the unique keys of jobs that are to live again, where no other live job has them and no key's time still runs.
-- both
INSERT INTO dedup AS d (scope, key, job_id, content_hash)
SELECT i.scope, i.key, i.job_id, '' FROM rows(:keys, scope text, key text, job_id uuid) AS i ORDER BY i.scope, i.key
ON CONFLICT (scope, key) DO UPDATE SET job_id = excluded.job_id, content_hash = excluded.content_hash, expires_at = NULL
 WHERE d.expires_at <= :now
RETURNING job_id

-- name: drop_pauses
-- Forget the pauses of jobs that are to live again: they were of the run that has ended.
-- both
DELETE FROM pause WHERE kind = 'job' AND tenant = :tenant AND name = ANY(CAST(:names AS text[]))

-- name: revive_dead revive_done
-- Let jobs of {dead|done} run again: a new run, attempts from 0, the fence goes on; the old end is kept as an attempt. No start deadline any more.
-- guard: the end is there{|, and may be retried}; of one that a rival has let run there is none.
-- postgres
WITH d AS (
    DELETE FROM {dead|done} AS d USING unnest(CAST(:ids AS uuid[])) AS i (id) WHERE d.id = ANY(ARRAY[i.id]) {|AND d.outcome IN (4, 7) }RETURNING d.*
),
j AS (
    UPDATE job SET run = job.run + 1, run_at = least(job.run_at, :now), start_by = NULL, payload = coalesce(CAST(:payload AS text), job.payload)
      FROM d WHERE job.id = ANY(ARRAY[d.id])
    RETURNING job.run, job.unique_key, job.priority, job.created_at, d.*
),
a AS (
    INSERT INTO attempt (job_id, run, attempt, fence, lane, outcome, result, metrics, error_type, error, traceback, reason, worker,
                         session, queued_at, claimed_at, started_at, finished_at)
    SELECT j.id, j.run - 1, j.attempt, j.fence, j.lane, j.outcome, j.result, j.metrics, j.error_type, j.error, j.traceback, j.reason, j.worker,
           j.session, j.queued_at, j.claimed_at, j.started_at, j.finished_at FROM j
)
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, pending, flags)
SELECT j.id, j.lane,
       CAST(floor(extract(epoch FROM CASE WHEN l.fifo = 1 THEN j.created_at ELSE :now END) * 1000) AS bigint)
       - CASE WHEN l.fifo = 1 THEN 0 ELSE j.priority * l.credit_ms END,
       0, 0, j.fence, 0, 0, :now, 0, CASE WHEN j.unique_key IS NULL THEN 0 ELSE 4 END
       + CASE WHEN EXISTS (SELECT 1 FROM checkpoint c WHERE c.job_id = ANY(ARRAY[j.id]) AND c.value IS NOT NULL) THEN 32 ELSE 0 END
  FROM j JOIN lane l ON l.id = j.lane RETURNING id, lane, rank
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS revive_pick (id);
DELETE FROM temp.revive_pick;
INSERT INTO temp.revive_pick SELECT d.id FROM json_each(:ids) AS i CROSS JOIN {dead|done} AS d ON d.id = i.value{| AND d.outcome IN (4, 7)};
INSERT INTO attempt (job_id, run, attempt, fence, lane, outcome, result, metrics, error_type, error, traceback, reason, worker,
                     session, queued_at, claimed_at, started_at, finished_at)
SELECT d.id, j.run, d.attempt, d.fence, d.lane, d.outcome, d.result, d.metrics, d.error_type, d.error, d.traceback, d.reason, d.worker,
       d.session, d.queued_at, d.claimed_at, d.started_at, d.finished_at
  FROM temp.revive_pick AS p CROSS JOIN {dead|done} AS d ON d.id = p.id CROSS JOIN job AS j ON j.id = d.id;
UPDATE job SET run = run + 1, run_at = min(run_at, :now), start_by = NULL, payload = coalesce(:payload, payload)
 WHERE id IN (SELECT id FROM temp.revive_pick);
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, pending, flags)
SELECT d.id, d.lane,
       CASE WHEN l.fifo = 1 THEN j.created_at / 1000 ELSE :now / 1000 - j.priority * l.credit_ms END,
       0, 0, d.fence, 0, 0, :now, 0, CASE WHEN j.unique_key IS NULL THEN 0 ELSE 4 END
       + CASE WHEN EXISTS (SELECT 1 FROM checkpoint AS c WHERE c.job_id = d.id AND c.value IS NOT NULL) THEN 32 ELSE 0 END
  FROM temp.revive_pick AS p CROSS JOIN {dead|done} AS d ON d.id = p.id CROSS JOIN job AS j ON j.id = d.id CROSS JOIN lane AS l ON l.id = d.lane;
DELETE FROM {dead|done} WHERE id IN (SELECT id FROM temp.revive_pick);
SELECT q.id, q.lane, q.rank FROM temp.revive_pick AS p CROSS JOIN queue AS q ON q.id = p.id

-- name: purge
-- Remove dead jobs of a tenant for good.
-- postgres
WITH d AS (
    DELETE FROM dead USING lane l
     WHERE dead.id = ANY(CAST(:ids AS uuid[])) AND l.id = dead.lane + 0 AND l.tenant = :tenant RETURNING dead.id
)
DELETE FROM job USING d WHERE job.id = ANY(ARRAY[d.id]) RETURNING job.id
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS purge_dead_pick (id);
DELETE FROM temp.purge_dead_pick;
INSERT INTO temp.purge_dead_pick
SELECT d.id FROM json_each(:ids) AS i CROSS JOIN dead AS d ON d.id = i.value CROSS JOIN lane AS l ON l.id = d.lane WHERE l.tenant = :tenant;
DELETE FROM dead WHERE id IN (SELECT id FROM temp.purge_dead_pick);
DELETE FROM job WHERE id IN (SELECT id FROM temp.purge_dead_pick) RETURNING id
