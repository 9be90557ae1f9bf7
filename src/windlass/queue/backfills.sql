-- name: clock
-- The present instant.
-- hot: it is asked before a backfill is stored.
-- both
SELECT :now AS now_at

-- name: start
-- Store a backfill of a tenant's schedule; no row if there is none, or if it is being deleted.
-- locks: schedule, shared: a deletion that comes after it removes the backfill too.
-- both
INSERT INTO backfill (id, tenant, schedule_id, since_at, until_at, cursor_at, concurrency, state, made_count, known_count, actor, reason, created_at)
SELECT :id, s.tenant, s.id, :since_at, :until_at, :cursor_at, :concurrency, 0, 0, 0, :actor, :reason, :now
  FROM schedule s WHERE s.id = :schedule_id AND s.tenant = :tenant FOR SHARE OF s
RETURNING id, tenant, schedule_id, since_at, until_at, cursor_at, concurrency, state, made_count, known_count, actor, reason, created_at, ended_at

-- name: get
-- One backfill of a tenant.
-- both
SELECT id, tenant, schedule_id, since_at, until_at, cursor_at, concurrency, state, made_count, known_count, actor, reason, created_at, ended_at
  FROM backfill WHERE id = :id AND tenant = :tenant

-- name: of_schedule
-- The backfills of a schedule, newest first.
-- index: backfill_schedule.
-- both
SELECT id, tenant, schedule_id, since_at, until_at, cursor_at, concurrency, state, made_count, known_count, actor, reason, created_at, ended_at
  FROM backfill WHERE schedule_id = :schedule_id AND tenant = :tenant ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: under_way
-- Backfills that are under way, from after an id on.
-- hot: a duty must not wait for lists.
-- index: backfill_open.
-- both
SELECT id, tenant, schedule_id, since_at, until_at, cursor_at, concurrency, state, made_count, known_count, actor, reason, created_at, ended_at
  FROM backfill WHERE state = 0 AND id > :after ORDER BY id LIMIT :limit

-- name: definition
-- The schedule of a backfill as it is now.
-- hot: a duty must not wait for lists.
-- both
SELECT * FROM schedule WHERE id = :id

-- name: drop_ended
-- Forget the jobs of a backfill that live no more; return how many do.
-- postgres
WITH e AS (
    DELETE FROM backfill_job b
     WHERE b.backfill_id = :id AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = ANY(ARRAY[b.job_id]))
       AND NOT EXISTS (SELECT 1 FROM timer t WHERE t.id = ANY(ARRAY[b.job_id])) RETURNING 1
)
SELECT (SELECT count(*) FROM backfill_job WHERE backfill_id = :id) - (SELECT count(*) FROM e) AS live
-- sqlite
DELETE FROM backfill_job
 WHERE backfill_id = :id AND NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.id = backfill_job.job_id)
   AND NOT EXISTS (SELECT 1 FROM timer AS t WHERE t.id = backfill_job.job_id);
SELECT count(*) AS live FROM backfill_job WHERE backfill_id = :id

-- name: known
-- Which of the slots of a schedule have a job already.
-- hot: a duty must not wait for lists.
-- postgres
SELECT i.slot_at FROM rows(:slots, slot_at timestamptz) AS i CROSS JOIN LATERAL (
       SELECT r.job_id FROM schedule_runs r WHERE r.schedule_id = :schedule_id AND r.slot_at = i.slot_at LIMIT 1) x
 WHERE x.job_id IS NOT NULL
-- sqlite
SELECT i.slot_at FROM rows(:slots, slot_at timestamptz) AS i
 CROSS JOIN schedule_runs AS r ON r.schedule_id = :schedule_id AND r.slot_at = i.slot_at WHERE r.job_id IS NOT NULL

-- name: lock_schedule
-- Keep a schedule from being edited or deleted until the jobs of its backfill are stored.
-- locks: schedule.
-- both
SELECT version FROM schedule WHERE id = :id FOR SHARE

-- name: lock_backfill
-- Lock a backfill that is as it was read; no row if a rival has it, has moved it on, or it has ended.
-- guard: the cursor and the state.  locks: backfill, skipping a locked one.
-- both
SELECT id FROM backfill WHERE id = :id AND state + 0 = 0 AND cursor_at = :cursor_at FOR UPDATE SKIP LOCKED

-- name: decide
-- Decide slots: each gets a job (decision 3), also one that was skipped before; its row stands for its own slot only.
-- guard: the slot has no job.  returns: the slots that get theirs now.
-- both
INSERT INTO schedule_runs AS r (schedule_id, slot_at, decision, job_id, term, decided_at, slot_count)
SELECT :schedule_id, i.slot_at, 3, i.job_id, 0, :now, 1 FROM rows(:slots, slot_at timestamptz, job_id uuid) AS i WHERE true
ON CONFLICT (schedule_id, slot_at) DO UPDATE
   SET decision = 3, job_id = excluded.job_id, term = 0, decided_at = excluded.decided_at,
       slot_count = 1, first_at = NULL,
       reason = CASE r.decision WHEN 5 THEN 'It was overlapped before.' WHEN 6 THEN 'It was missed before.' ELSE 'It was paused before.' END
                || coalesce(' ' || r.reason, '')
 WHERE r.job_id IS NULL
RETURNING slot_at

-- name: keep_jobs
-- Remember the jobs of a backfill while they live.
-- postgres
INSERT INTO backfill_job (backfill_id, job_id) SELECT :id, i.job_id FROM unnest(CAST(:ids AS uuid[])) AS i (job_id)
-- sqlite
INSERT INTO backfill_job (backfill_id, job_id) SELECT :id, value FROM json_each(:ids)

-- name: go_on
-- Move a backfill on, and count what it made and what it found.
-- guard: the cursor and the state.
-- both
UPDATE backfill SET cursor_at = :reached_at, made_count = made_count + :made, known_count = known_count + :known
 WHERE id = :id AND state + 0 = 0 AND cursor_at = :cursor_at RETURNING id

-- name: finish
-- End a backfill: 1 done, 2 stopped.
-- guard: it is under way, and has not moved on since it was read (any cursor where none is given).
-- both
UPDATE backfill SET state = :state, ended_at = :now, reason = coalesce(:reason, reason)
 WHERE id = :id AND state + 0 = 0 AND (CAST(:cursor_at AS timestamptz) IS NULL OR cursor_at = :cursor_at) RETURNING id

-- name: not_started
-- Jobs of a backfill that no worker has.
-- plan: the lane keeps out timer_due, which would be read whole.
-- both
SELECT q.id AS job_id, q.lane FROM backfill_job b JOIN queue q ON q.id = ANY(ARRAY[b.job_id]) WHERE b.backfill_id = :id AND q.session IS NULL
UNION ALL
SELECT t.id, t.lane FROM backfill_job b JOIN timer t ON t.id = ANY(ARRAY[b.job_id]) WHERE b.backfill_id = :id

-- name: drop_jobs
-- Forget the jobs of a backfill that has ended.
-- both
DELETE FROM backfill_job WHERE backfill_id = :id

-- name: forget
-- Remove the backfills of schedules.
-- locks: backfill rows.
-- postgres
WITH b AS (DELETE FROM backfill WHERE schedule_id = ANY(CAST(:ids AS uuid[])) RETURNING id)
DELETE FROM backfill_job USING b WHERE backfill_job.backfill_id = ANY(ARRAY[b.id])
-- sqlite
DELETE FROM backfill_job WHERE backfill_id IN (SELECT id FROM backfill WHERE schedule_id IN (SELECT value FROM json_each(:ids)));
DELETE FROM backfill WHERE schedule_id IN (SELECT value FROM json_each(:ids))
