-- name: ended_between
-- Where a page of attempts lies (0 attempt, 1 done, 2 dead) and how many bytes a list shows of each: those that ended from :since until :until, newest first, in the last instant those below (:job_id, :fence).
-- Whether an attempt is of a schedule stands with its job.
-- index: attempt_finished, done_finished, dead_finished, lane by lane, from their ends.
-- postgres
SELECT l.queue, l.task, x.* FROM lane l CROSS JOIN LATERAL (
       (SELECT 0 AS place, a.job_id AS job_id, a.fence, a.finished_at, octets(a.result, a.metrics, a.error, a.traceback, a.reason) AS bytes
          FROM attempt a
         WHERE a.lane = l.id AND a.finished_at >= :since AND a.finished_at <= :until AND a.session IS NOT NULL
           AND (a.finished_at < :until OR (a.job_id, a.fence) < (:job_id, :fence))
           AND (CAST(:worker AS text) IS NULL OR a.worker = :worker) AND (CAST(:outcome AS int) IS NULL OR a.outcome = :outcome)
           AND (CAST(:schedule_id AS uuid) IS NULL OR (SELECT j.schedule_id = :schedule_id FROM job j WHERE j.id = a.job_id))
         ORDER BY a.finished_at DESC, a.job_id DESC, a.fence DESC LIMIT :limit)
        UNION ALL
       (SELECT 1 AS place, d.id AS job_id, d.fence, d.finished_at, octets(d.result, d.metrics, d.error, d.traceback, d.reason) AS bytes
          FROM done d
         WHERE d.lane = l.id AND d.finished_at >= :since AND d.finished_at <= :until AND d.session IS NOT NULL
           AND (d.finished_at < :until OR (d.id, d.fence) < (:job_id, :fence))
           AND (CAST(:worker AS text) IS NULL OR d.worker = :worker) AND (CAST(:outcome AS int) IS NULL OR d.outcome = :outcome)
           AND (CAST(:schedule_id AS uuid) IS NULL OR (SELECT j.schedule_id = :schedule_id FROM job j WHERE j.id = d.id))
         ORDER BY d.finished_at DESC, d.id DESC, d.fence DESC LIMIT :limit)
        UNION ALL
       (SELECT 2 AS place, e.id AS job_id, e.fence, e.finished_at, octets(e.result, e.metrics, e.error, e.traceback, e.reason) AS bytes
          FROM dead e
         WHERE e.lane = l.id AND e.finished_at >= :since AND e.finished_at <= :until AND e.session IS NOT NULL
           AND (e.finished_at < :until OR (e.id, e.fence) < (:job_id, :fence))
           AND (CAST(:worker AS text) IS NULL OR e.worker = :worker) AND (CAST(:outcome AS int) IS NULL OR e.outcome = :outcome)
           AND (CAST(:schedule_id AS uuid) IS NULL OR (SELECT j.schedule_id = :schedule_id FROM job j WHERE j.id = e.id))
         ORDER BY e.finished_at DESC, e.id DESC, e.fence DESC LIMIT :limit)) x
 WHERE l.tenant = :tenant AND l.task <> '' AND (CAST(:task AS text) IS NULL OR l.task = :task)
 ORDER BY x.finished_at DESC, x.job_id DESC, x.fence DESC LIMIT :limit
-- sqlite
SELECT * FROM (
    SELECT l.queue, l.task, 0 AS place, a.job_id AS job_id, a.fence, a.finished_at, octets(a.result, a.metrics, a.error, a.traceback, a.reason) AS bytes
      FROM lane AS l CROSS JOIN attempt AS a INDEXED BY attempt_finished ON a.lane = l.id AND a.finished_at >= :since AND a.finished_at <= :until AND a.session IS NOT NULL
           AND (a.finished_at < :until OR (a.job_id, a.fence) < (:job_id, :fence))
           AND (:worker IS NULL OR a.worker = :worker) AND (:outcome IS NULL OR a.outcome = :outcome)
           AND (:schedule_id IS NULL OR (SELECT j.schedule_id = :schedule_id FROM job j WHERE j.id = a.job_id))
     WHERE l.tenant = :tenant AND l.task <> '' AND (:task IS NULL OR l.task = :task)
    UNION ALL
    SELECT l.queue, l.task, 1 AS place, d.id AS job_id, d.fence, d.finished_at, octets(d.result, d.metrics, d.error, d.traceback, d.reason) AS bytes
      FROM lane AS l CROSS JOIN done AS d INDEXED BY done_finished ON d.lane = l.id AND d.finished_at >= :since AND d.finished_at <= :until AND d.session IS NOT NULL
           AND (d.finished_at < :until OR (d.id, d.fence) < (:job_id, :fence))
           AND (:worker IS NULL OR d.worker = :worker) AND (:outcome IS NULL OR d.outcome = :outcome)
           AND (:schedule_id IS NULL OR (SELECT j.schedule_id = :schedule_id FROM job j WHERE j.id = d.id))
     WHERE l.tenant = :tenant AND l.task <> '' AND (:task IS NULL OR l.task = :task)
    UNION ALL
    SELECT l.queue, l.task, 2 AS place, e.id AS job_id, e.fence, e.finished_at, octets(e.result, e.metrics, e.error, e.traceback, e.reason) AS bytes
      FROM lane AS l CROSS JOIN dead AS e INDEXED BY dead_finished ON e.lane = l.id AND e.finished_at >= :since AND e.finished_at <= :until AND e.session IS NOT NULL
           AND (e.finished_at < :until OR (e.id, e.fence) < (:job_id, :fence))
           AND (:worker IS NULL OR e.worker = :worker) AND (:outcome IS NULL OR e.outcome = :outcome)
           AND (:schedule_id IS NULL OR (SELECT j.schedule_id = :schedule_id FROM job j WHERE j.id = e.id))
     WHERE l.tenant = :tenant AND l.task <> '' AND (:task IS NULL OR l.task = :task)
) ORDER BY finished_at DESC, job_id DESC, fence DESC LIMIT :limit

-- name: of_page
-- These ended attempts, each where it was found.
-- index: attempt_job and done_id of the day in which it ended; the primary key of dead.
-- postgres
SELECT x.* FROM rows(:keys, place int, job_id uuid, fence int, finished_at timestamptz) AS i CROSS JOIN LATERAL (
       SELECT a.job_id AS job_id, a.run, a.attempt, a.fence, a.outcome, a.result, a.metrics, a.error_type, a.error, a.traceback, a.reason, a.worker, a.session, a.queued_at, a.claimed_at, a.started_at, a.finished_at, a.next_run_at AS next_run_at
         FROM attempt a WHERE i.place = 0 AND a.job_id = i.job_id AND a.fence = i.fence AND a.finished_at = i.finished_at LIMIT 1) x
UNION ALL
SELECT x.* FROM rows(:keys) AS i CROSS JOIN LATERAL (
       SELECT d.id AS job_id, (SELECT j.run FROM job j WHERE j.id = d.id) AS run, d.attempt, d.fence, d.outcome, d.result, d.metrics, d.error_type, d.error, d.traceback, d.reason, d.worker, d.session, d.queued_at, d.claimed_at, d.started_at, d.finished_at, CAST(NULL AS timestamptz) AS next_run_at
         FROM done d WHERE i.place = 1 AND d.id = i.job_id AND d.finished_at = i.finished_at LIMIT 1) x
UNION ALL
SELECT x.* FROM rows(:keys) AS i CROSS JOIN LATERAL (
       SELECT d.id AS job_id, (SELECT j.run FROM job j WHERE j.id = d.id) AS run, d.attempt, d.fence, d.outcome, d.result, d.metrics, d.error_type, d.error, d.traceback, d.reason, d.worker, d.session, d.queued_at, d.claimed_at, d.started_at, d.finished_at, CAST(NULL AS timestamptz) AS next_run_at
         FROM dead d WHERE i.place = 2 AND d.id = i.job_id AND d.finished_at = i.finished_at LIMIT 1) x
-- sqlite
SELECT a.job_id AS job_id, a.run, a.attempt, a.fence, a.outcome, a.result, a.metrics, a.error_type, a.error, a.traceback, a.reason, a.worker, a.session, a.queued_at, a.claimed_at, a.started_at, a.finished_at, a.next_run_at AS next_run_at
  FROM rows(:keys) AS i CROSS JOIN attempt AS a INDEXED BY attempt_job ON a.job_id = i.job_id AND a.fence = i.fence AND a.finished_at = i.finished_at WHERE i.place = 0
UNION ALL
SELECT d.id AS job_id, (SELECT j.run FROM job j WHERE j.id = d.id) AS run, d.attempt, d.fence, d.outcome, d.result, d.metrics, d.error_type, d.error, d.traceback, d.reason, d.worker, d.session, d.queued_at, d.claimed_at, d.started_at, d.finished_at, NULL AS next_run_at
  FROM rows(:keys) AS i CROSS JOIN done AS d INDEXED BY done_id ON d.id = i.job_id AND d.finished_at = i.finished_at WHERE i.place = 1
UNION ALL
SELECT d.id AS job_id, (SELECT j.run FROM job j WHERE j.id = d.id) AS run, d.attempt, d.fence, d.outcome, d.result, d.metrics, d.error_type, d.error, d.traceback, d.reason, d.worker, d.session, d.queued_at, d.claimed_at, d.started_at, d.finished_at, NULL AS next_run_at
  FROM rows(:keys) AS i CROSS JOIN dead AS d ON d.id = i.job_id AND d.finished_at = i.finished_at WHERE i.place = 2

-- name: oldest_end
-- The present instant, and that of the oldest end a tenant has; none if nothing has ended.
-- index: attempt_finished, done_finished, dead_finished.
-- both
SELECT :now AS now_at, min(x.finished_at) AS oldest_at FROM (
    SELECT (SELECT min(a.finished_at) FROM attempt a WHERE a.lane = l.id) AS finished_at FROM lane l WHERE l.tenant = :tenant
    UNION ALL
    SELECT (SELECT min(d.finished_at) FROM done d WHERE d.lane = l.id) FROM lane l WHERE l.tenant = :tenant
    UNION ALL
    SELECT (SELECT min(d.finished_at) FROM dead d WHERE d.lane = l.id) FROM lane l WHERE l.tenant = :tenant) x
