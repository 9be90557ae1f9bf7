-- name: complete
-- End jobs that succeeded: their places are deleted, their ends written to done; one statement for the batch.
-- late_ms: from its nominal time to the start of a first attempt whose start nobody told before.
-- guard: job, fence, place (1 leased), and who may speak: the session's worker and tenant, and the session when named.
-- locks: queue rows by ascending id.
-- plan: ids looked up one by one, in the order of i, which is that of the locks: by ANY(ARRAY[…]) no other join is possible, and
-- `place + 0` keeps out the indexes of leased rows, which would be read whole, dead entries too.
-- postgres
WITH i AS MATERIALIZED (
    SELECT r.* FROM rows(:items, id uuid, fence int, tenant text, worker text, session uuid, result text, metrics text, duration_ms bigint) AS r
     ORDER BY r.id
),
q AS (
    DELETE FROM queue USING i
     WHERE queue.id = ANY(ARRAY[i.id]) AND queue.fence = i.fence AND queue.place + 0 = 1 AND (i.session IS NULL OR i.session = queue.session)
       AND EXISTS (SELECT 1 FROM session s WHERE s.id = ANY(ARRAY[queue.session]) AND s.worker = i.worker AND s.tenant = i.tenant)
    RETURNING queue.*, i.worker, i.result, i.metrics,
              coalesce(queue.started_at, greatest(queue.claimed_at, :now - i.duration_ms * interval '1 millisecond')) AS began_at,
              greatest(:now, least(greatest(queue.claimed_at, queue.started_at), :now + interval '1 minute')) AS ended_at
),
k AS MATERIALIZED (
    SELECT d.scope, d.key FROM q JOIN dedup d ON d.job_id = ANY(ARRAY[q.id]) AND d.expires_at IS NULL
     WHERE q.flags & 4 = 4 ORDER BY d.scope || '', d.key FOR UPDATE OF d
),
u AS (DELETE FROM dedup USING k WHERE dedup.scope = ANY(ARRAY[k.scope]) AND dedup.key = ANY(ARRAY[k.key])),
d AS (
    INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, result, metrics, worker, session, queued_at, claimed_at,
                      started_at, finished_at)
    SELECT q.id, q.lane, q.attempt, q.fence, q.lost, q.releases, 0, q.result, q.metrics, q.worker, q.session, q.queued_at, q.claimed_at,
           q.began_at, q.ended_at FROM q
)
SELECT q.id, q.fence, q.lane, q.attempt, q.flags, ms(q.ended_at - q.began_at) AS run_ms,
       ms(q.began_at - q.queued_at) AS waited_ms,
       CASE WHEN q.attempt = 1 AND q.started_at IS NULL
            THEN ms(q.began_at - q.queued_at) + q.late_ms END AS late_ms
  FROM q
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS complete_pick (id, fence, lane, attempt, flags, worker, result, metrics, began_at, untold, queued_at, late_ms);
DELETE FROM temp.complete_pick;
INSERT INTO temp.complete_pick
SELECT q.id, q.fence, q.lane, q.attempt, q.flags, i.worker, i.result, i.metrics,
       coalesce(q.started_at, max(q.claimed_at, :now - coalesce(i.duration_ms * 1000, :now - q.claimed_at))),
       q.started_at IS NULL, q.queued_at, q.late_ms
  FROM rows(:items) AS i CROSS JOIN queue AS q ON q.id = i.id CROSS JOIN session AS s ON s.id = q.session
 WHERE q.fence = i.fence AND q.place = 1 AND s.worker = i.worker AND s.tenant = i.tenant AND (i.session IS NULL OR i.session = q.session);
INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, result, metrics, worker, session, queued_at, claimed_at,
                  started_at, finished_at)
SELECT q.id, q.lane, q.attempt, q.fence, q.lost, q.releases, 0, p.result, p.metrics, p.worker, q.session, q.queued_at, q.claimed_at,
       p.began_at, :now
  FROM temp.complete_pick AS p CROSS JOIN queue AS q ON q.id = p.id;
DELETE FROM dedup WHERE expires_at IS NULL AND job_id IN (SELECT id FROM temp.complete_pick WHERE flags & 4 = 4);
DELETE FROM queue WHERE id IN (SELECT id FROM temp.complete_pick);
SELECT id, fence, lane, attempt, flags, (:now - began_at) / 1000 AS run_ms, ms(began_at - queued_at) AS waited_ms,
       CASE WHEN attempt = 1 AND untold THEN ms(began_at - queued_at) + late_ms END AS late_ms
  FROM temp.complete_pick

-- name: ended_leases
-- How leases of these jobs ended, by (job, fence), and whose they were; a job that ended without a lease shows its last fence.
-- both
SELECT e.*, l.tenant FROM (
    SELECT job_id, fence, outcome, error_type, worker, session, next_run_at, lane FROM attempt WHERE job_id = ANY(CAST(:ids AS uuid[]))
    UNION ALL
    SELECT id, fence, outcome, error_type, worker, session, NULL, lane FROM done WHERE id = ANY(CAST(:ids AS uuid[]))
    UNION ALL
    SELECT id, fence, outcome, error_type, worker, session, NULL, lane FROM dead WHERE id = ANY(CAST(:ids AS uuid[]))
) AS e JOIN lane l ON l.id = e.lane

-- name: live_leases
-- Where these jobs stand now, with which fence, and whose they are.
-- both
SELECT q.id, q.fence, q.session, s.worker, 0 AS preferred, CASE WHEN q.place = 3 THEN 1 ELSE 0 END AS held, l.tenant
  FROM queue q JOIN lane l ON l.id = q.lane LEFT JOIN session s ON s.id = ANY(ARRAY[q.session]) WHERE q.id = ANY(CAST(:ids AS uuid[]))
UNION ALL
SELECT t.id, t.fence, NULL, NULL, t.flags & 16, 0, l.tenant FROM timer t JOIN lane l ON l.id = t.lane WHERE t.id = ANY(CAST(:ids AS uuid[]))
