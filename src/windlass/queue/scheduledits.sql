-- name: schedule_pauses_over
-- Schedules whose pause has an end that has come.
-- hot: a duty must not wait for lists.
-- index: pause_over.
-- both
SELECT tenant, name FROM pause WHERE resume_at <= :now AND kind = 'schedule' ORDER BY resume_at LIMIT :limit

-- name: put_off_pause
-- Let the pause of a schedule go on for a while, if its end has come.
-- hot: a duty must not wait for lists.
-- both
UPDATE pause SET resume_at = :now + CAST(:ms AS bigint) * interval '1 millisecond' WHERE kind = 'schedule' AND tenant = :tenant AND name = :name AND resume_at <= :now

-- name: remove_schedules
-- Remove schedules that are locked, and what is kept only while they are there.
-- postgres
WITH n AS (DELETE FROM schedule_next WHERE id = ANY(CAST(:ids AS uuid[]))),
w AS (DELETE FROM schedule_wait WHERE schedule_id = ANY(CAST(:ids AS uuid[]))),
x AS (DELETE FROM schedule_watch WHERE schedule_id = ANY(CAST(:ids AS uuid[])))
DELETE FROM schedule WHERE id = ANY(CAST(:ids AS uuid[])) RETURNING id
-- sqlite
DELETE FROM schedule_next WHERE id IN (SELECT value FROM json_each(:ids));
DELETE FROM schedule_wait WHERE schedule_id IN (SELECT value FROM json_each(:ids));
DELETE FROM schedule_watch WHERE schedule_id IN (SELECT value FROM json_each(:ids));
DELETE FROM schedule WHERE id IN (SELECT value FROM json_each(:ids)) RETURNING id

-- name: jobs_below
-- The newest :each jobs of each schedule below an id, live or ended. A schedule that runs each minute has half a million in a year, of
-- which few live, so they are looked at in portions.
-- index: job_schedule.
-- postgres
SELECT i.schedule_id, x.id FROM rows(:walks, schedule_id uuid, below uuid) AS i
 CROSS JOIN LATERAL (SELECT j.id FROM job j WHERE j.schedule_id = i.schedule_id AND j.id < i.below ORDER BY j.id DESC LIMIT :each) x
-- sqlite
SELECT i.schedule_id, j.id FROM rows(:walks) AS i CROSS JOIN job AS j ON j.id IN (
       SELECT x.id FROM job AS x INDEXED BY job_schedule WHERE x.schedule_id = i.schedule_id AND x.id < i.below ORDER BY x.id DESC LIMIT :each)

-- name: not_started
-- Which of these jobs live, and no worker has them.
-- plan: the lane keeps out timer_due, which would be read whole.
-- both
SELECT q.id, q.lane FROM unnest(CAST(:ids AS uuid[])) AS i (id) JOIN queue q ON q.id = ANY(ARRAY[i.id]) WHERE q.session IS NULL
UNION ALL
SELECT t.id, t.lane FROM unnest(CAST(:ids AS uuid[])) AS i (id) JOIN timer t ON t.id = ANY(ARRAY[i.id])

-- name: decided_slots
-- Slots of a schedule and their jobs, up to :limit.
-- both
SELECT slot_at, job_id FROM schedule_runs WHERE schedule_id = :id ORDER BY slot_at LIMIT :limit

-- name: purge_jobs
-- Remove what is left of jobs that have ended; those that live are left alone. The job itself goes with its end, which a retry by hand that
-- came first has taken away.
-- returns: how many jobs there were.
-- postgres
WITH i AS MATERIALIZED (
    SELECT x.id FROM unnest(CAST(:ids AS uuid[])) AS x(id)
      LEFT JOIN LATERAL (SELECT 1 AS live FROM queue y WHERE y.id = x.id LIMIT 1) q ON true
      LEFT JOIN LATERAL (SELECT 1 AS live FROM timer y WHERE y.id = x.id LIMIT 1) t ON true WHERE coalesce(q.live, t.live) IS NULL
),
d AS (DELETE FROM done USING i WHERE done.id = ANY(ARRAY[i.id]) RETURNING done.id),
l AS (DELETE FROM dead USING i WHERE dead.id = ANY(ARRAY[i.id]) RETURNING dead.id),
j AS (DELETE FROM job USING (SELECT id FROM d UNION ALL SELECT id FROM l) AS x WHERE job.id = ANY(ARRAY[x.id]) RETURNING 1),
a AS (DELETE FROM attempt USING i WHERE attempt.job_id = ANY(ARRAY[i.id])),
e AS (DELETE FROM event USING i WHERE event.job_id = ANY(ARRAY[i.id])),
o AS (DELETE FROM log USING i WHERE log.job_id = ANY(ARRAY[i.id])),
c AS (DELETE FROM checkpoint USING i WHERE checkpoint.job_id = ANY(ARRAY[i.id]))
SELECT count(*) AS removed FROM j
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS purge_pick (id);
DELETE FROM temp.purge_pick;
INSERT INTO temp.purge_pick
SELECT i.value FROM json_each(:ids) AS i
 WHERE NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.id = i.value) AND NOT EXISTS (SELECT 1 FROM timer AS t WHERE t.id = i.value);
DELETE FROM done WHERE id IN (SELECT id FROM temp.purge_pick);
DELETE FROM dead WHERE id IN (SELECT id FROM temp.purge_pick);
DELETE FROM attempt WHERE job_id IN (SELECT id FROM temp.purge_pick);
DELETE FROM event WHERE job_id IN (SELECT id FROM temp.purge_pick);
DELETE FROM log WHERE job_id IN (SELECT id FROM temp.purge_pick);
DELETE FROM checkpoint WHERE job_id IN (SELECT id FROM temp.purge_pick);
DELETE FROM job WHERE id IN (SELECT id FROM temp.purge_pick);
SELECT changes() AS removed

-- name: purge_slots
-- Remove slots of a schedule.
-- postgres
DELETE FROM schedule_runs USING rows(:slots, slot_at timestamptz) AS i
 WHERE schedule_runs.schedule_id = :id AND schedule_runs.slot_at = ANY(ARRAY[i.slot_at])
-- sqlite
DELETE FROM schedule_runs WHERE schedule_id = :id AND slot_at IN (SELECT i.slot_at FROM rows(:slots) AS i)
