-- name: is_schedule
-- Whether a tenant has the schedule.
-- both
SELECT id FROM schedule WHERE id = :id AND tenant = :tenant

-- name: slots
-- A page of the slots of a schedule from :since up to below :below, newest first; with a decision those that were decided so,
-- among the newest :examined.
-- index: the primary key of schedule_runs, day by day from the newest.
-- postgres
SELECT r.* FROM (
    SELECT schedule_id, slot_at, decision, job_id, decided_at, slot_count, first_at, reason FROM schedule_runs
     WHERE schedule_id = :schedule_id AND slot_at >= :since AND slot_at < :below ORDER BY slot_at DESC LIMIT :examined) r
 WHERE CAST(:decision AS int) IS NULL OR r.decision = CAST(:decision AS int) ORDER BY r.slot_at DESC LIMIT :limit
-- sqlite
SELECT r.* FROM (
    SELECT schedule_id, slot_at, decision, job_id, decided_at, slot_count, first_at, reason FROM schedule_runs
     WHERE schedule_id = :schedule_id AND slot_at >= :since AND slot_at < :below ORDER BY slot_at DESC LIMIT :examined) AS r
 WHERE :decision IS NULL OR r.decision = :decision ORDER BY r.slot_at DESC LIMIT :limit

-- name: last_examined
-- The slot down to which a page was looked for; no row if there was nothing below it.
-- both
SELECT slot_at FROM schedule_runs WHERE schedule_id = :schedule_id AND slot_at >= :since AND slot_at < :below
 ORDER BY slot_at DESC LIMIT 1 OFFSET :examined

-- name: jobs_of
-- What became of the jobs of slots, by their ids, wherever they lie; none of them ended before :since.
-- index: primary keys, done_id of the days from :since on.
-- postgres
SELECT id, state, attempt, fence, worker, started_at, finished_at, error FROM jobs_queued WHERE id = ANY(CAST(:ids AS uuid[]))
UNION ALL
SELECT id, state, attempt, fence, worker, started_at, finished_at, error FROM jobs_timed WHERE id = ANY(CAST(:ids AS uuid[]))
UNION ALL
SELECT id, state, attempt, fence, worker, started_at, finished_at, error FROM jobs_done
 WHERE id = ANY(CAST(:ids AS uuid[])) AND finished_at >= :since
UNION ALL
SELECT id, state, attempt, fence, worker, started_at, finished_at, error FROM jobs_dead WHERE id = ANY(CAST(:ids AS uuid[]))
-- sqlite
SELECT id, state, attempt, fence, worker, started_at, finished_at, error FROM jobs_queued WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT id, state, attempt, fence, worker, started_at, finished_at, error FROM jobs_timed WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT id, state, attempt, fence, worker, started_at, finished_at, error FROM jobs_done
 WHERE id IN (SELECT value FROM json_each(:ids)) AND finished_at >= :since
UNION ALL
SELECT id, state, attempt, fence, worker, started_at, finished_at, error FROM jobs_dead WHERE id IN (SELECT value FROM json_each(:ids))

-- name: starts_of
-- When the first and the last of the ended attempts of jobs began that are not the end of the job.
-- index: attempt_job of the days from :since on.
-- postgres
SELECT job_id, min(started_at) AS first_at, max(started_at) AS last_at FROM attempt
 WHERE job_id = ANY(CAST(:ids AS uuid[])) AND finished_at >= :since GROUP BY job_id
-- sqlite
SELECT job_id, min(started_at) AS first_at, max(started_at) AS last_at FROM attempt
 WHERE job_id IN (SELECT value FROM json_each(:ids)) AND finished_at >= :since GROUP BY job_id
