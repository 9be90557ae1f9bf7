-- name: touched_since
-- What was submitted, claimed, begun or ended since an instant, of a tenant, up to :limit of each kind, with all times of each;
-- of all leases up to :leases are looked at. Of a long error or reason the beginning is told.
-- kind: 0 an attempt after which the job went on, 1 a finished job, 2 a dead one, 3 a lease, 4 a waiting job.
-- index: attempt_finished, done_finished and dead_finished lane by lane; queue_leased; job by ids made since.
-- postgres
SELECT e.* FROM lane l CROSS JOIN LATERAL (
    (SELECT 0 AS kind, a.job_id, CAST(NULL AS timestamptz) AS created_at, a.claimed_at, a.started_at, a.finished_at, a.fence, a.outcome,
            a.worker, a.session, a.error_type, substr(a.error, 1, 2000) AS error, substr(a.reason, 1, 2000) AS reason, a.next_run_at
       FROM attempt a WHERE a.lane = l.id AND a.finished_at >= :since ORDER BY a.finished_at LIMIT :limit)
    UNION ALL
    (SELECT 1, d.id, d.created_at, d.claimed_at, d.started_at, d.finished_at, d.fence, d.outcome, d.worker, d.session, d.error_type, substr(d.error, 1, 2000), substr(d.reason, 1, 2000), NULL
       FROM done d WHERE d.lane = l.id AND d.finished_at >= :since ORDER BY d.finished_at LIMIT :limit)
    UNION ALL
    (SELECT 2, d.id, d.created_at, d.claimed_at, d.started_at, d.finished_at, d.fence, d.outcome, d.worker, d.session, d.error_type, substr(d.error, 1, 2000), substr(d.reason, 1, 2000), NULL
       FROM dead d WHERE d.lane = l.id AND d.finished_at >= :since ORDER BY d.finished_at LIMIT :limit)) e
 WHERE l.tenant = :tenant
UNION ALL
SELECT 3, q.id, NULL, q.claimed_at, q.started_at, NULL, q.fence, NULL, s.worker, q.session, NULL, NULL, NULL, NULL
  FROM (SELECT id, lane, claimed_at, started_at, fence, session FROM queue WHERE place = 1 ORDER BY session LIMIT :leases) q
  JOIN lane l ON l.id = q.lane LEFT JOIN session s ON s.id = q.session
 WHERE l.tenant = :tenant AND (q.claimed_at >= :since OR q.started_at >= :since)
UNION ALL
(SELECT 4, j.id, j.created_at, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL
   FROM job j LEFT JOIN queue q ON q.id = j.id LEFT JOIN timer t ON t.id = j.id JOIN lane l ON l.id = coalesce(q.lane, t.lane)
  WHERE j.id >= :first_id AND j.created_at >= :since AND l.tenant = :tenant ORDER BY j.id LIMIT :limit)
-- sqlite
SELECT * FROM (
    SELECT 0 AS kind, a.job_id, NULL AS created_at, a.claimed_at, a.started_at, a.finished_at, a.fence, a.outcome,
           a.worker, a.session, a.error_type, substr(a.error, 1, 2000) AS error, substr(a.reason, 1, 2000) AS reason, a.next_run_at
      FROM lane AS l CROSS JOIN attempt AS a INDEXED BY attempt_finished ON a.lane = l.id AND a.finished_at >= :since
     WHERE l.tenant = :tenant ORDER BY a.finished_at LIMIT :limit)
UNION ALL
SELECT * FROM (
    SELECT 1, d.id, d.created_at, d.claimed_at, d.started_at, d.finished_at, d.fence, d.outcome, d.worker, d.session, d.error_type, substr(d.error, 1, 2000), substr(d.reason, 1, 2000), NULL
      FROM lane AS l CROSS JOIN done AS d INDEXED BY done_finished ON d.lane = l.id AND d.finished_at >= :since
     WHERE l.tenant = :tenant ORDER BY d.finished_at LIMIT :limit)
UNION ALL
SELECT * FROM (
    SELECT 2, d.id, d.created_at, d.claimed_at, d.started_at, d.finished_at, d.fence, d.outcome, d.worker, d.session, d.error_type, substr(d.error, 1, 2000), substr(d.reason, 1, 2000), NULL
      FROM lane AS l CROSS JOIN dead AS d INDEXED BY dead_finished ON d.lane = l.id AND d.finished_at >= :since
     WHERE l.tenant = :tenant ORDER BY d.finished_at LIMIT :limit)
UNION ALL
SELECT * FROM (
    SELECT 3, q.id, NULL, q.claimed_at, q.started_at, NULL, q.fence, NULL, s.worker, q.session, NULL, NULL, NULL, NULL
      FROM (SELECT id, lane, claimed_at, started_at, fence, session FROM queue WHERE place = 1 ORDER BY session LIMIT :leases) AS q
     CROSS JOIN lane AS l ON l.id = q.lane LEFT JOIN session AS s ON s.id = q.session
     WHERE l.tenant = :tenant AND (q.claimed_at >= :since OR q.started_at >= :since))
UNION ALL
SELECT * FROM (
    SELECT 4, j.id, j.created_at, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM job AS j LEFT JOIN queue AS q ON q.id = j.id LEFT JOIN timer AS t ON t.id = j.id
     CROSS JOIN lane AS l ON l.id = coalesce(q.lane, t.lane)
     WHERE j.id >= :first_id AND j.created_at >= :since AND l.tenant = :tenant ORDER BY j.id LIMIT :limit)

-- name: acts_since
-- What was noted of jobs of a tenant since an instant, oldest first, wherever each job lies now.
-- index: event_happened.
-- both
SELECT e.job_id, e.happened_at, e.kind, e.actor, substr(e.reason, 1, 2000) AS detail FROM event e
 WHERE e.happened_at >= :since
   AND EXISTS (SELECT 1 FROM lane l WHERE l.tenant = :tenant AND l.id = coalesce(
       (SELECT q.lane FROM queue q WHERE q.id = e.job_id), (SELECT t.lane FROM timer t WHERE t.id = e.job_id),
       (SELECT d.lane FROM done d WHERE d.id = e.job_id LIMIT 1), (SELECT d.lane FROM dead d WHERE d.id = e.job_id)))
 ORDER BY e.happened_at LIMIT :limit
