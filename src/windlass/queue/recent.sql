-- name: touched_since
-- What was submitted, claimed, begun or ended since an instant, of a tenant, up to :limit of each kind, or of all that ended, with all times of each;
-- of all leases up to :leases are looked at. Of errors and reasons the first :longest characters.
-- kind: 0 an attempt after which the job went on, 1 a finished job, 2 a dead one, 3 a lease, 4 a waiting job.
-- index: attempt_finished, done_finished and dead_finished lane by lane; queue_leased; queue and timer by ids made since; job by id.
-- postgres
SELECT x.kind, x.job_id, CASE WHEN x.kind IN (1, 2) THEN (SELECT j.created_at FROM job j WHERE j.id = x.job_id) END AS created_at, x.claimed_at,
       x.started_at, x.finished_at, x.fence, x.outcome, x.worker, x.session, x.error_type, x.error, x.reason, x.next_run_at
  FROM (SELECT e.* FROM lane l CROSS JOIN LATERAL (
           (SELECT 0 AS kind, a.job_id, a.claimed_at, a.started_at, a.finished_at, a.fence, a.outcome,
                   a.worker, a.session, a.error_type, substr(a.error, 1, :longest) AS error, substr(a.reason, 1, :longest) AS reason, a.next_run_at
              FROM attempt a WHERE a.lane = l.id AND a.finished_at >= :since ORDER BY a.finished_at LIMIT :limit)
           UNION ALL
           (SELECT 1, d.id, d.claimed_at, d.started_at, d.finished_at, d.fence, d.outcome, d.worker, d.session, d.error_type,
                   substr(d.error, 1, :longest) AS error, substr(d.reason, 1, :longest) AS reason, NULL
              FROM done d WHERE d.lane = l.id AND d.finished_at >= :since ORDER BY d.finished_at LIMIT :limit)
           UNION ALL
           (SELECT 2, d.id, d.claimed_at, d.started_at, d.finished_at, d.fence, d.outcome, d.worker, d.session, d.error_type,
                   substr(d.error, 1, :longest) AS error, substr(d.reason, 1, :longest) AS reason, NULL
              FROM dead d WHERE d.lane = l.id AND d.finished_at >= :since ORDER BY d.finished_at LIMIT :limit)) e
         WHERE l.tenant = :tenant ORDER BY e.finished_at LIMIT :limit) x
UNION ALL
SELECT 3, q.id, NULL, q.claimed_at, q.started_at, NULL, q.fence, NULL, s.worker, q.session, NULL, NULL, NULL, NULL
  FROM (SELECT id, lane, claimed_at, started_at, fence, session FROM queue WHERE place = 1 ORDER BY session LIMIT :leases) q
  JOIN lane l ON l.id = q.lane LEFT JOIN session s ON s.id = q.session
 WHERE l.tenant = :tenant AND (q.claimed_at >= :since OR q.started_at >= :since)
UNION ALL
(SELECT 4, w.id, j.created_at, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL
   FROM (SELECT id, lane FROM queue WHERE id >= :first_id UNION ALL SELECT id, lane FROM timer WHERE id >= :first_id) w
   JOIN lane l ON l.id = w.lane JOIN job j ON j.id = ANY(ARRAY[w.id])
  WHERE j.created_at >= :since AND l.tenant = :tenant ORDER BY w.id LIMIT :limit)
-- sqlite
SELECT * FROM (
    SELECT 0 AS kind, a.job_id, NULL AS created_at, a.claimed_at, a.started_at, a.finished_at, a.fence, a.outcome,
           a.worker, a.session, a.error_type, substr(a.error, 1, :longest) AS error, substr(a.reason, 1, :longest) AS reason, a.next_run_at
      FROM lane AS l CROSS JOIN attempt AS a INDEXED BY attempt_finished ON a.lane = l.id AND a.finished_at >= :since
     WHERE l.tenant = :tenant ORDER BY a.finished_at LIMIT :limit)
UNION ALL
SELECT * FROM (
    SELECT 1, d.id, (SELECT j.created_at FROM job AS j WHERE j.id = d.id), d.claimed_at, d.started_at, d.finished_at, d.fence, d.outcome, d.worker,
           d.session, d.error_type, substr(d.error, 1, :longest) AS error, substr(d.reason, 1, :longest) AS reason, NULL
      FROM lane AS l CROSS JOIN done AS d INDEXED BY done_finished ON d.lane = l.id AND d.finished_at >= :since
     WHERE l.tenant = :tenant ORDER BY d.finished_at LIMIT :limit)
UNION ALL
SELECT * FROM (
    SELECT 2, d.id, (SELECT j.created_at FROM job AS j WHERE j.id = d.id), d.claimed_at, d.started_at, d.finished_at, d.fence, d.outcome, d.worker,
           d.session, d.error_type, substr(d.error, 1, :longest) AS error, substr(d.reason, 1, :longest) AS reason, NULL
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
    SELECT 4, w.id, j.created_at, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL
      FROM (SELECT id, lane FROM queue WHERE id >= :first_id UNION ALL SELECT id, lane FROM timer WHERE id >= :first_id) AS w
     CROSS JOIN lane AS l ON l.id = w.lane CROSS JOIN job AS j ON j.id = w.id
     WHERE j.created_at >= :since AND l.tenant = :tenant ORDER BY w.id LIMIT :limit)

-- name: acts_since
-- What was noted of jobs of a tenant since an instant, oldest first, wherever each job lies now; the first :longest characters of it.
-- index: event_happened.
-- both
SELECT e.job_id, e.happened_at, e.kind, e.actor, substr(e.reason, 1, :longest) AS detail FROM event e
 WHERE e.happened_at >= :since
   AND EXISTS (SELECT 1 FROM lane l WHERE l.tenant = :tenant AND l.id = coalesce(
       (SELECT q.lane FROM queue q WHERE q.id = e.job_id), (SELECT t.lane FROM timer t WHERE t.id = e.job_id),
       (SELECT d.lane FROM done d WHERE d.id = e.job_id LIMIT 1), (SELECT d.lane FROM dead d WHERE d.id = e.job_id)))
 ORDER BY e.happened_at LIMIT :limit
