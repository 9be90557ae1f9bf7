-- name: schedule_pauses_over
-- Schedules whose pause has an end that has come.
-- hot: a duty must not wait for lists.
-- index: pause_over.
-- both
SELECT tenant, name FROM pause WHERE resume_at <= :now AND kind = 'schedule' ORDER BY resume_at LIMIT :limit

-- name: put_off_pause
-- Let the pause of a schedule go on for a while, if its end has come.
-- hot: a duty must not wait for lists.
-- postgres
UPDATE pause SET resume_at = :now + CAST(:ms AS bigint) * interval '1 millisecond' WHERE kind = 'schedule' AND tenant = :tenant AND name = :name AND resume_at <= :now
-- sqlite
UPDATE pause SET resume_at = :now + :ms * 1000 WHERE kind = 'schedule' AND tenant = :tenant AND name = :name AND resume_at <= :now

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

-- name: jobs_not_started
-- Jobs of schedules that no worker has, up to :limit.
-- index: job_schedule.
-- postgres
SELECT j.id FROM unnest(CAST(:ids AS uuid[])) AS i(id)
 CROSS JOIN LATERAL (SELECT x.id FROM job x WHERE x.schedule_id = i.id OFFSET 0) j
  LEFT JOIN LATERAL (SELECT 1 AS waits FROM queue q WHERE q.id = j.id AND q.session IS NULL LIMIT 1) q ON true
  LEFT JOIN LATERAL (SELECT 1 AS waits FROM timer t WHERE t.id = j.id LIMIT 1) t ON true
 WHERE coalesce(q.waits, t.waits) = 1 LIMIT :limit
-- sqlite
SELECT j.id FROM json_each(:ids) AS i CROSS JOIN job AS j ON j.schedule_id = i.value
 WHERE EXISTS (SELECT 1 FROM queue AS q WHERE q.id = j.id AND q.session IS NULL) OR EXISTS (SELECT 1 FROM timer AS t WHERE t.id = j.id)
 LIMIT :limit

-- name: decided_slots
-- Slots of a schedule and their jobs, up to :limit.
-- both
SELECT slot_at, job_id FROM schedule_runs WHERE schedule_id = :id ORDER BY slot_at LIMIT :limit

-- name: purge_jobs
-- Remove what is left of jobs that have ended; those that live are left alone.
-- postgres
WITH i AS MATERIALIZED (
    SELECT x.id FROM unnest(CAST(:ids AS uuid[])) AS x(id)
      LEFT JOIN LATERAL (SELECT 1 AS live FROM job y WHERE y.id = x.id LIMIT 1) j ON true WHERE j.live IS NULL
),
d AS (DELETE FROM done USING i WHERE done.id = ANY(ARRAY[i.id]) RETURNING 1),
l AS (DELETE FROM dead USING i WHERE dead.id = ANY(ARRAY[i.id]) RETURNING 1),
a AS (DELETE FROM attempt USING i WHERE attempt.job_id = ANY(ARRAY[i.id])),
e AS (DELETE FROM event USING i WHERE event.job_id = ANY(ARRAY[i.id])),
o AS (DELETE FROM log USING i WHERE log.job_id = ANY(ARRAY[i.id])),
c AS (DELETE FROM checkpoint USING i WHERE checkpoint.job_id = ANY(ARRAY[i.id]))
SELECT (SELECT count(*) FROM d) + (SELECT count(*) FROM l) AS removed
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS purge_pick (id);
DELETE FROM temp.purge_pick;
INSERT INTO temp.purge_pick SELECT i.value FROM json_each(:ids) AS i WHERE NOT EXISTS (SELECT 1 FROM job AS j WHERE j.id = i.value);
DELETE FROM attempt WHERE job_id IN (SELECT id FROM temp.purge_pick);
DELETE FROM event WHERE job_id IN (SELECT id FROM temp.purge_pick);
DELETE FROM log WHERE job_id IN (SELECT id FROM temp.purge_pick);
DELETE FROM checkpoint WHERE job_id IN (SELECT id FROM temp.purge_pick);
DELETE FROM temp.purge_pick
 WHERE NOT EXISTS (SELECT 1 FROM done AS d WHERE d.id = purge_pick.id) AND NOT EXISTS (SELECT 1 FROM dead AS d WHERE d.id = purge_pick.id);
DELETE FROM done WHERE id IN (SELECT id FROM temp.purge_pick);
DELETE FROM dead WHERE id IN (SELECT id FROM temp.purge_pick);
SELECT count(*) AS removed FROM temp.purge_pick

-- name: purge_slots
-- Remove slots of a schedule.
-- postgres
DELETE FROM schedule_runs USING rows(:slots, slot_at timestamptz) AS i
 WHERE schedule_runs.schedule_id = :id AND schedule_runs.slot_at = ANY(ARRAY[i.slot_at])
-- sqlite
DELETE FROM schedule_runs WHERE schedule_id = :id AND slot_at IN (SELECT i.slot_at FROM rows(:slots) AS i)
