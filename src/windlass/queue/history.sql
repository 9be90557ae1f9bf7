-- name: get
-- One job of a tenant, wherever it lies. First where it lies and whose lane that is; only of the tenant's own the rest is read:
-- another's job costs what an unknown one does. By its id alone: the planner must not begin with the tenant's lanes.
-- postgres
WITH found AS MATERIALIZED (
    SELECT 0 AS place, lane, CAST(NULL AS timestamptz) AS finished_at FROM queue WHERE id = :id
    UNION ALL
    SELECT 1, lane, NULL FROM timer WHERE id = :id
    UNION ALL
    SELECT 2, lane, finished_at FROM done WHERE id = :id
    UNION ALL
    SELECT 3, lane, NULL FROM dead WHERE id = :id
),
own AS MATERIALIZED (
    SELECT f.place, f.finished_at FROM lane AS l LEFT JOIN found AS f ON true
     WHERE l.id = coalesce((SELECT max(lane) FROM found), 0) AND l.tenant = :tenant
)
SELECT x.* FROM own o CROSS JOIN LATERAL (SELECT * FROM jobs_queued v WHERE v.id = :id LIMIT 1) x WHERE o.place = 0
UNION ALL
SELECT x.* FROM own o CROSS JOIN LATERAL (SELECT * FROM jobs_timed v WHERE v.id = :id LIMIT 1) x WHERE o.place = 1
UNION ALL
SELECT x.* FROM own o CROSS JOIN LATERAL (SELECT * FROM jobs_done v WHERE v.id = :id AND v.finished_at = o.finished_at LIMIT 1) x WHERE o.place = 2
UNION ALL
SELECT x.* FROM own o CROSS JOIN LATERAL (SELECT * FROM jobs_dead v WHERE v.id = :id LIMIT 1) x WHERE o.place = 3
-- sqlite
WITH found AS MATERIALIZED (
    SELECT 0 AS place, lane, NULL AS finished_at FROM queue WHERE id = :id
    UNION ALL
    SELECT 1, lane, NULL FROM timer WHERE id = :id
    UNION ALL
    SELECT 2, lane, finished_at FROM done WHERE id = :id
    UNION ALL
    SELECT 3, lane, NULL FROM dead WHERE id = :id
),
own AS MATERIALIZED (
    SELECT f.place, f.finished_at FROM lane AS l LEFT JOIN found AS f ON true
     WHERE l.id = coalesce((SELECT max(lane) FROM found), 0) AND l.tenant = :tenant
)
SELECT v.* FROM own AS o CROSS JOIN jobs_queued AS v ON v.id = :id WHERE o.place = 0
UNION ALL
SELECT v.* FROM own AS o CROSS JOIN jobs_timed AS v ON v.id = :id WHERE o.place = 1
UNION ALL
SELECT v.* FROM own AS o CROSS JOIN jobs_done AS v ON v.id = :id AND v.finished_at = o.finished_at WHERE o.place = 2
UNION ALL
SELECT v.* FROM own AS o CROSS JOIN jobs_dead AS v ON v.id = :id WHERE o.place = 3

-- name: live_jobs
-- Which of these jobs have not ended.
-- hot: every wait of this server is in it.
-- postgres
SELECT q.id FROM queue q WHERE q.id = ANY(CAST(:ids AS uuid[]))
UNION ALL
SELECT t.id FROM timer t WHERE t.id = ANY(CAST(:ids AS uuid[]))
-- sqlite
SELECT q.id FROM json_each(:ids) AS i CROSS JOIN queue AS q ON q.id = i.value
UNION ALL
SELECT t.id FROM json_each(:ids) AS i CROSS JOIN timer AS t ON t.id = i.value

-- name: ending_in
-- The jobs of a tenant whose id ends so, newest first, among the :examined newest of each place.
-- index: the primary keys of queue, timer and dead, and done_id, each read backwards.
-- both
SELECT x.id FROM (
    SELECT q.id, q.lane FROM (SELECT id, lane FROM queue ORDER BY id DESC LIMIT :examined) q
    UNION ALL
    SELECT t.id, t.lane FROM (SELECT id, lane FROM timer ORDER BY id DESC LIMIT :examined) t
    UNION ALL
    SELECT d.id, d.lane FROM (SELECT id, lane FROM done ORDER BY id DESC LIMIT :examined) d
    UNION ALL
    SELECT e.id, e.lane FROM (SELECT id, lane FROM dead ORDER BY id DESC LIMIT :examined) e
) x JOIN lane l ON l.id = x.lane WHERE l.tenant = :tenant AND CAST(x.id AS text) LIKE '%' || CAST(:end AS text)
 ORDER BY x.id DESC LIMIT :limit

-- name: floor_queued floor_timed floor_done floor_dead
-- The id down to which there are :examined jobs in {queue|timer|done|dead} of all tenants, from the cursor on; no row if there are fewer.
-- both
SELECT id FROM {queue|timer|done|dead} WHERE id < :cursor ORDER BY id DESC LIMIT 1 OFFSET :examined

-- name: list_queued list_timed
-- A page of jobs in {queue|timer}, newest first, from :floor up: where they lie. Stale: the last attempt was lost, and no other has begun.
-- Their rows in job are read only for what somebody filters by.
-- both
SELECT v.id, CAST(NULL AS timestamptz) AS finished_at
  FROM (SELECT q.id, l.tenant, l.queue, l.task, q.lost, q.fence, {q.claimed_at, q.started_at, s.worker|CAST(NULL AS timestamptz) AS claimed_at, CAST(NULL AS timestamptz) AS started_at, CAST(NULL AS text) AS worker},
               {CASE WHEN q.place = 1 AND q.flags & 2 = 2 THEN 'cancelling' WHEN q.session IS NOT NULL AND q.started_at IS NOT NULL THEN 'running'
                    WHEN q.session IS NOT NULL THEN 'assigned' WHEN q.place = 2 OR q.pending > 0 THEN 'blocked' ELSE 'queued' END|CASE WHEN q.reason = 2 THEN 'sleeping' ELSE 'scheduled' END} AS state
          FROM {queue|timer} q JOIN lane l ON l.id = q.lane + 0 {LEFT JOIN session s ON s.id = ANY(ARRAY[q.session])|}) AS v
 WHERE v.tenant = :tenant AND v.state = ANY(CAST(:states AS text[])) AND v.id < :cursor AND v.id >= :floor
   AND (CAST(:stale AS int) = 0 OR (v.lost > 0 AND v.started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
   AND {filters} ORDER BY v.id DESC LIMIT :limit

-- name: own_queued
-- The newest jobs in queue of a tenant below :floor that match, by the tenant's lanes; how many match, and how many were examined: if :examined, not all.
-- index: queue_ready, queue_waiting; queue_leased for what runs, of all tenants.
-- postgres
WITH leased AS MATERIALIZED (SELECT q.* FROM queue q WHERE q.place = 1 AND q.id < :floor ORDER BY q.session LIMIT :examined),
own AS MATERIALIZED (
    SELECT p.*, l.queue, l.task FROM lane l CROSS JOIN LATERAL (
       (SELECT q.* FROM queue q WHERE q.place = 0 AND q.lane = l.id AND q.id < :floor ORDER BY q.rank, q.id LIMIT :examined)
        UNION ALL
       (SELECT q.* FROM queue q WHERE q.place >= 2 AND q.lane = l.id AND q.id < :floor ORDER BY q.id DESC LIMIT :examined)) p
     WHERE l.tenant = :tenant
     UNION ALL
    SELECT q.*, l.queue, l.task FROM leased q JOIN lane l ON l.id = q.lane + 0 WHERE l.tenant = :tenant LIMIT :examined
),
matched AS MATERIALIZED (
    SELECT v.id, CAST(NULL AS timestamptz) AS finished_at
      FROM (SELECT q.*, s.worker,
               CASE WHEN q.place = 1 AND q.flags & 2 = 2 THEN 'cancelling' WHEN q.session IS NOT NULL AND q.started_at IS NOT NULL THEN 'running'
                    WHEN q.session IS NOT NULL THEN 'assigned' WHEN q.place = 2 OR q.pending > 0 THEN 'blocked' ELSE 'queued' END AS state
              FROM own q LEFT JOIN session s ON s.id = ANY(ARRAY[q.session])) v
     WHERE v.state = ANY(CAST(:states AS text[])) AND (CAST(:stale AS int) = 0 OR (v.lost > 0 AND v.started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
       AND {filters}
)
SELECT 'queue' AS place, c.examined, c.jobs, m.id, m.finished_at FROM (SELECT greatest((SELECT count(*) FROM own), (SELECT count(*) FROM leased)) AS examined, (SELECT count(*) FROM matched) AS jobs) c
  LEFT JOIN (SELECT id, finished_at FROM matched ORDER BY id DESC LIMIT :limit) m ON true
-- sqlite
WITH leased AS MATERIALIZED (SELECT * FROM queue INDEXED BY queue_leased WHERE place = 1 AND id < :floor ORDER BY session LIMIT :examined),
own AS MATERIALIZED (
    SELECT * FROM (
    SELECT q.*, l.queue, l.task FROM lane AS l CROSS JOIN queue AS q INDEXED BY queue_ready ON q.place = 0 AND q.lane = l.id AND q.id < :floor WHERE l.tenant = :tenant
    UNION ALL
    SELECT q.*, l.queue, l.task FROM lane AS l CROSS JOIN queue AS q INDEXED BY queue_waiting ON q.place >= 2 AND q.lane = l.id AND q.id < :floor WHERE l.tenant = :tenant
    UNION ALL
    SELECT q.*, l.queue, l.task FROM leased AS q CROSS JOIN lane AS l ON l.id = q.lane WHERE l.tenant = :tenant) LIMIT :examined
),
matched AS MATERIALIZED (
    SELECT v.id, NULL AS finished_at
      FROM (SELECT q.*, s.worker,
               CASE WHEN q.place = 1 AND q.flags & 2 = 2 THEN 'cancelling' WHEN q.session IS NOT NULL AND q.started_at IS NOT NULL THEN 'running'
                    WHEN q.session IS NOT NULL THEN 'assigned' WHEN q.place = 2 OR q.pending > 0 THEN 'blocked' ELSE 'queued' END AS state
              FROM own AS q LEFT JOIN session AS s ON s.id = q.session) AS v
     WHERE v.state IN (SELECT value FROM json_each(:states)) AND (CAST(:stale AS int) = 0 OR (v.lost > 0 AND v.started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
       AND {filters}
)
SELECT 'queue' AS place, c.examined, c.jobs, m.id, m.finished_at FROM (SELECT max((SELECT count(*) FROM own), (SELECT count(*) FROM leased)) AS examined, (SELECT count(*) FROM matched) AS jobs) AS c
  LEFT JOIN (SELECT id, finished_at FROM matched ORDER BY id DESC LIMIT :limit) AS m ON true

-- name: own_timed
-- The newest jobs in timer of a tenant below :floor that match, by the tenant's lanes; how many match, and how many were examined: if :examined, not all.
-- index: timer_lane.
-- postgres
WITH own AS MATERIALIZED (
    SELECT p.*, l.queue, l.task FROM lane l CROSS JOIN LATERAL (
           SELECT q.id, q.lost, q.fence, q.reason FROM timer q WHERE q.lane > 0 AND q.lane = l.id AND q.id < :floor ORDER BY q.id DESC LIMIT :examined) p
     WHERE l.tenant = :tenant LIMIT :examined
),
matched AS MATERIALIZED (
    SELECT v.id, CAST(NULL AS timestamptz) AS finished_at
      FROM (SELECT q.*, CASE WHEN q.reason = 2 THEN 'sleeping' ELSE 'scheduled' END AS state, CAST(NULL AS text) AS worker,
                   CAST(NULL AS timestamptz) AS claimed_at, CAST(NULL AS timestamptz) AS started_at FROM own q) v
     WHERE v.state = ANY(CAST(:states AS text[])) AND (CAST(:stale AS int) = 0 OR (v.lost > 0 AND v.started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
       AND {filters}
)
SELECT 'timer' AS place, c.examined, c.jobs, m.id, m.finished_at FROM (SELECT (SELECT count(*) FROM own) AS examined, (SELECT count(*) FROM matched) AS jobs) c
  LEFT JOIN (SELECT id, finished_at FROM matched ORDER BY id DESC LIMIT :limit) m ON true
-- sqlite
WITH own AS MATERIALIZED (
    SELECT q.id, q.lost, q.fence, q.reason, l.queue, l.task
      FROM lane AS l CROSS JOIN timer AS q INDEXED BY timer_lane ON q.lane > 0 AND q.lane = l.id AND q.id < :floor WHERE l.tenant = :tenant LIMIT :examined
),
matched AS MATERIALIZED (
    SELECT v.id, NULL AS finished_at
      FROM (SELECT q.*, CASE WHEN q.reason = 2 THEN 'sleeping' ELSE 'scheduled' END AS state, NULL AS worker, NULL AS claimed_at, NULL AS started_at FROM own AS q) AS v
     WHERE v.state IN (SELECT value FROM json_each(:states)) AND (CAST(:stale AS int) = 0 OR (v.lost > 0 AND v.started_at IS NULL AND EXISTS (SELECT 1 FROM attempt a
        WHERE a.job_id = v.id AND a.outcome = 3 AND a.fence = v.fence - CASE WHEN v.claimed_at IS NULL THEN 0 ELSE 1 END)))
       AND {filters}
)
SELECT 'timer' AS place, c.examined, c.jobs, m.id, m.finished_at FROM (SELECT (SELECT count(*) FROM own) AS examined, (SELECT count(*) FROM matched) AS jobs) AS c
  LEFT JOIN (SELECT id, finished_at FROM matched ORDER BY id DESC LIMIT :limit) AS m ON true

-- name: list_done list_dead
-- A page of {finished|dead} jobs, newest first, from :floor up: where they lie. Their rows in job are read only for what somebody filters by.
-- both
SELECT v.id, v.finished_at
  FROM (SELECT d.id, d.finished_at, d.worker, l.tenant, l.queue, l.task, {CASE d.outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END|'dead'} AS state
          FROM {done|dead} d JOIN lane l ON l.id = d.lane + 0) AS v
 WHERE v.tenant = :tenant AND v.state = ANY(CAST(:states AS text[])) AND v.id < :cursor AND v.id >= :floor AND {filters} ORDER BY v.id DESC LIMIT :limit

-- name: own_done
-- The newest finished jobs of a tenant below :floor that match, by the tenant's lanes; how many match, and how many were examined: if :examined, not all.
-- index: done_finished.
-- postgres
WITH own AS MATERIALIZED (
    SELECT d.id, d.finished_at, d.worker, l.queue, l.task, CASE d.outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END AS state
      FROM lane l CROSS JOIN LATERAL (SELECT * FROM done x WHERE x.lane = l.id AND x.id < :floor ORDER BY x.finished_at DESC LIMIT :examined) d
     WHERE l.tenant = :tenant LIMIT :examined
),
matched AS MATERIALIZED (SELECT v.id, v.finished_at FROM own AS v WHERE v.state = ANY(CAST(:states AS text[])) AND {filters})
SELECT 'done' AS place, c.examined, c.jobs, m.id, m.finished_at FROM (SELECT (SELECT count(*) FROM own) AS examined, (SELECT count(*) FROM matched) AS jobs) AS c
  LEFT JOIN (SELECT id, finished_at FROM matched ORDER BY id DESC LIMIT :limit) AS m ON true
-- sqlite
WITH own AS MATERIALIZED (
    SELECT d.id, d.finished_at, d.worker, l.queue, l.task, CASE d.outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END AS state
      FROM lane AS l CROSS JOIN done AS d INDEXED BY done_finished ON d.lane = l.id AND d.id < :floor
     WHERE l.tenant = :tenant LIMIT :examined
),
matched AS MATERIALIZED (SELECT v.id, v.finished_at FROM own AS v WHERE v.state IN (SELECT value FROM json_each(:states)) AND {filters})
SELECT 'done' AS place, c.examined, c.jobs, m.id, m.finished_at FROM (SELECT (SELECT count(*) FROM own) AS examined, (SELECT count(*) FROM matched) AS jobs) AS c
  LEFT JOIN (SELECT id, finished_at FROM matched ORDER BY id DESC LIMIT :limit) AS m ON true

-- name: own_dead
-- The newest dead jobs of a tenant below :floor that match, by the tenant's lanes; how many match, and how many were examined: if :examined, not all.
-- index: dead_finished.
-- postgres
WITH own AS MATERIALIZED (
    SELECT d.id, d.finished_at, d.worker, l.queue, l.task, 'dead' AS state
      FROM lane l CROSS JOIN LATERAL (SELECT * FROM dead x WHERE x.lane = l.id AND x.id < :floor ORDER BY x.finished_at DESC LIMIT :examined) d
     WHERE l.tenant = :tenant LIMIT :examined
),
matched AS MATERIALIZED (SELECT v.id, v.finished_at FROM own AS v WHERE v.state = ANY(CAST(:states AS text[])) AND {filters})
SELECT 'dead' AS place, c.examined, c.jobs, m.id, m.finished_at FROM (SELECT (SELECT count(*) FROM own) AS examined, (SELECT count(*) FROM matched) AS jobs) AS c
  LEFT JOIN (SELECT id, finished_at FROM matched ORDER BY id DESC LIMIT :limit) AS m ON true
-- sqlite
WITH own AS MATERIALIZED (
    SELECT d.id, d.finished_at, d.worker, l.queue, l.task, 'dead' AS state
      FROM lane AS l CROSS JOIN dead AS d INDEXED BY dead_finished ON d.lane = l.id AND d.id < :floor
     WHERE l.tenant = :tenant LIMIT :examined
),
matched AS MATERIALIZED (SELECT v.id, v.finished_at FROM own AS v WHERE v.state IN (SELECT value FROM json_each(:states)) AND {filters})
SELECT 'dead' AS place, c.examined, c.jobs, m.id, m.finished_at FROM (SELECT (SELECT count(*) FROM own) AS examined, (SELECT count(*) FROM matched) AS jobs) AS c
  LEFT JOIN (SELECT id, finished_at FROM matched ORDER BY id DESC LIMIT :limit) AS m ON true

-- name: sizes
-- How many bytes of text a list shows of each of these jobs; an error is shown under two names.
-- index: primary keys; done_id of the day in which a job ended.
-- both
SELECT i.id, coalesce((SELECT octets(j.payload, j.headers, j.tags, j.retry) FROM job AS j WHERE j.id = i.id), 0)
           + coalesce((SELECT octets(d.result, d.metrics, d.error, d.error, d.reason) FROM done AS d
                        WHERE d.id = i.id AND d.finished_at = i.finished_at LIMIT 1),
                      (SELECT octets(d.result, d.metrics, d.error, d.error, d.reason) FROM dead AS d WHERE d.id = i.id), 0) AS bytes
  FROM rows(:jobs, id uuid, finished_at timestamptz) AS i

-- name: of_page
-- These jobs of a tenant, each where a list found it; one that has ended meanwhile is not among them.
-- index: primary keys; done_id of the day in which a job ended.
-- postgres
SELECT x.* FROM rows(:jobs, id uuid, finished_at timestamptz) AS i
 CROSS JOIN LATERAL (SELECT * FROM jobs_queued v WHERE v.id = i.id LIMIT 1) x WHERE x.tenant = :tenant
UNION ALL
SELECT x.* FROM rows(:jobs) AS i
 CROSS JOIN LATERAL (SELECT * FROM jobs_timed v WHERE v.id = i.id LIMIT 1) x WHERE x.tenant = :tenant
UNION ALL
SELECT x.* FROM rows(:jobs) AS i
 CROSS JOIN LATERAL (SELECT * FROM jobs_done v WHERE v.id = i.id AND v.finished_at = i.finished_at LIMIT 1) x WHERE x.tenant = :tenant
UNION ALL
SELECT x.* FROM rows(:jobs) AS i
 CROSS JOIN LATERAL (SELECT * FROM jobs_dead v WHERE v.id = i.id LIMIT 1) x WHERE x.tenant = :tenant
-- sqlite
SELECT v.* FROM rows(:jobs) AS i CROSS JOIN jobs_queued AS v ON v.id = i.id WHERE v.tenant = :tenant
UNION ALL
SELECT v.* FROM rows(:jobs) AS i CROSS JOIN jobs_timed AS v ON v.id = i.id WHERE v.tenant = :tenant
UNION ALL
SELECT v.* FROM rows(:jobs) AS i CROSS JOIN jobs_done AS v ON v.id = i.id AND v.finished_at = i.finished_at WHERE v.tenant = :tenant
UNION ALL
SELECT v.* FROM rows(:jobs) AS i CROSS JOIN jobs_dead AS v ON v.id = i.id WHERE v.tenant = :tenant

-- name: wherever
-- These jobs of a tenant, wherever they lie: those that moved while a list was read. By their ids first, as in `get`.
-- postgres
WITH found AS MATERIALIZED (SELECT * FROM jobs WHERE id = ANY(CAST(:ids AS uuid[]))) SELECT * FROM found WHERE tenant = :tenant
-- sqlite
SELECT * FROM jobs WHERE id IN (SELECT value FROM json_each(:ids)) AND tenant = :tenant

-- name: attempts
-- The ended attempts of a job in order, those after a place, up to :limit and as many as fit into :most bytes, the first always.
-- An end without a claim has the fence of the claim before. A claim ends once, a run ends once without a claim: the order has no ties.
-- more: whether others follow.
-- both
WITH sized AS MATERIALIZED (
    SELECT a.fence, a.run, CASE WHEN a.session IS NULL THEN 1 ELSE 0 END AS unclaimed, octets(a.result, a.metrics, a.error, a.traceback, a.reason) AS bytes
      FROM attempts AS a
     WHERE a.job_id = :id AND a.fence >= :fence AND (a.fence, a.run, CASE WHEN a.session IS NULL THEN 1 ELSE 0 END) > (:fence, :run, :unclaimed)
     ORDER BY a.fence, a.run, unclaimed LIMIT :limit
),
cut AS MATERIALIZED (
    SELECT c.fence, c.run, c.unclaimed FROM (SELECT s.*, sum(s.bytes) OVER (ORDER BY s.fence, s.run, s.unclaimed) AS upto FROM sized AS s) AS c
     WHERE c.upto <= :most OR c.upto = c.bytes ORDER BY c.fence DESC, c.run DESC, c.unclaimed DESC LIMIT 1
)
SELECT a.job_id, a.run, a.attempt, a.fence, a.outcome, a.result, a.metrics, a.error_type, a.error, a.traceback, a.reason, a.worker, a.session,
       a.queued_at, a.claimed_at, a.started_at, a.finished_at, a.next_run_at,
       CASE WHEN EXISTS (SELECT 1 FROM attempts AS b WHERE b.job_id = :id AND b.fence >= c.fence
                            AND (b.fence, b.run, CASE WHEN b.session IS NULL THEN 1 ELSE 0 END) > (c.fence, c.run, c.unclaimed)) THEN 1 ELSE 0 END AS more
  FROM cut AS c CROSS JOIN attempts AS a
 WHERE a.job_id = :id AND a.fence >= :fence AND a.fence <= c.fence
   AND (a.fence, a.run, CASE WHEN a.session IS NULL THEN 1 ELSE 0 END) > (:fence, :run, :unclaimed)
   AND (a.fence, a.run, CASE WHEN a.session IS NULL THEN 1 ELSE 0 END) <= (c.fence, c.run, c.unclaimed)
 ORDER BY a.fence, a.run, CASE WHEN a.session IS NULL THEN 1 ELSE 0 END

-- name: attempt_times
-- When the ended attempts of a job were claimed, began and ended, in order.
-- both
SELECT outcome, claimed_at, started_at, finished_at, next_run_at FROM attempts WHERE job_id = :id ORDER BY fence, finished_at LIMIT :limit

-- name: timeline
-- What happened to a job, in order, without the first :skip; things of the same instant in the order they must have had.
-- Of what is told with it the first :longest characters: the whole is with the attempt.
-- both
SELECT e.happened_at, e.kind, e.worker, e.actor, substr(e.detail, 1, :longest) AS detail FROM job_events AS e
 WHERE e.job_id = :id ORDER BY e.seq LIMIT :limit OFFSET :skip
