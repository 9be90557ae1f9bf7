-- name: is_schedule
-- Whether a tenant has the schedule.
-- both
SELECT id FROM schedule WHERE id = :id AND tenant = :tenant

-- name: slots
-- A page of the slots of a schedule from :since up to below :below, newest first; with a decision those that were decided so,
-- among the newest :examined.
-- index: the primary key of schedule_runs, day by day from the newest.
-- both
SELECT r.* FROM (
    SELECT schedule_id, slot_at, decision, job_id, decided_at, slot_count, first_at, reason FROM schedule_runs
     WHERE schedule_id = :schedule_id AND slot_at >= :since AND slot_at < :below ORDER BY slot_at DESC LIMIT :examined) r
 WHERE CAST(:decision AS int) IS NULL OR r.decision = CAST(:decision AS int) ORDER BY r.slot_at DESC LIMIT :limit

-- name: last_examined
-- The slot down to which a page was looked for; no row if there was nothing below it.
-- both
SELECT slot_at FROM schedule_runs WHERE schedule_id = :schedule_id AND slot_at >= :since AND slot_at < :below
 ORDER BY slot_at DESC LIMIT 1 OFFSET :examined

-- name: jobs_of
-- What became of the jobs of slots, by their ids, wherever they lie: of those that are done, if they ended in the time given.
-- Of an error the first :longest characters: the whole is with the attempt.
-- index: primary keys, done_id of the days in which a job may have ended.
-- postgres
SELECT x.* FROM rows(:jobs, id uuid, since_at timestamptz, until_at timestamptz) AS i
 CROSS JOIN LATERAL (SELECT v.id, v.state, v.attempt, v.fence, v.worker, v.started_at, v.finished_at, v.error_type, substr(v.error, 1, :longest) AS error FROM jobs_queued v WHERE v.id = i.id LIMIT 1) x
UNION ALL
SELECT x.* FROM rows(:jobs) AS i
 CROSS JOIN LATERAL (SELECT v.id, v.state, v.attempt, v.fence, v.worker, v.started_at, v.finished_at, v.error_type, substr(v.error, 1, :longest) AS error FROM jobs_timed v WHERE v.id = i.id LIMIT 1) x
UNION ALL
SELECT x.* FROM rows(:jobs) AS i
 CROSS JOIN LATERAL (SELECT v.id, v.state, v.attempt, v.fence, v.worker, v.started_at, v.finished_at, v.error_type, substr(v.error, 1, :longest) AS error FROM jobs_done v WHERE v.id = i.id AND v.finished_at >= i.since_at AND v.finished_at < i.until_at LIMIT 1) x
UNION ALL
SELECT x.* FROM rows(:jobs) AS i
 CROSS JOIN LATERAL (SELECT v.id, v.state, v.attempt, v.fence, v.worker, v.started_at, v.finished_at, v.error_type, substr(v.error, 1, :longest) AS error FROM jobs_dead v WHERE v.id = i.id LIMIT 1) x
-- sqlite
SELECT v.id, v.state, v.attempt, v.fence, v.worker, v.started_at, v.finished_at, v.error_type, substr(v.error, 1, :longest) AS error FROM rows(:jobs) AS i CROSS JOIN jobs_queued AS v ON v.id = i.id
UNION ALL
SELECT v.id, v.state, v.attempt, v.fence, v.worker, v.started_at, v.finished_at, v.error_type, substr(v.error, 1, :longest) AS error FROM rows(:jobs) AS i CROSS JOIN jobs_timed AS v ON v.id = i.id
UNION ALL
SELECT v.id, v.state, v.attempt, v.fence, v.worker, v.started_at, v.finished_at, v.error_type, substr(v.error, 1, :longest) AS error FROM rows(:jobs) AS i CROSS JOIN jobs_done AS v ON v.id = i.id AND v.finished_at >= i.since_at AND v.finished_at < i.until_at
UNION ALL
SELECT v.id, v.state, v.attempt, v.fence, v.worker, v.started_at, v.finished_at, v.error_type, substr(v.error, 1, :longest) AS error FROM rows(:jobs) AS i CROSS JOIN jobs_dead AS v ON v.id = i.id

-- name: starts_of
-- When the first and the last of the attempts of jobs began that came before the one they are at, or that ended them.
-- index: attempt_job of the days from :since_at on.
-- postgres
SELECT i.id, x.first_at, x.last_at FROM rows(:jobs, id uuid, since_at timestamptz) AS i CROSS JOIN LATERAL (
       SELECT min(a.started_at) AS first_at, max(a.started_at) AS last_at FROM attempt a WHERE a.job_id = i.id AND a.finished_at >= i.since_at) x
-- sqlite
SELECT i.id, min(a.started_at) AS first_at, max(a.started_at) AS last_at
  FROM rows(:jobs, id uuid, since_at timestamptz) AS i CROSS JOIN attempt AS a ON a.job_id = i.id AND a.finished_at >= i.since_at GROUP BY i.id
