-- name: overdue
-- Leases past their deadline. Leased rows are few (workers times capacity), so deadline_at has no index.
-- index: queue_leased.
-- postgres   (sorted afterwards: an order inside would tempt the planner to walk all of queue by its key)
WITH l AS MATERIALIZED (SELECT id, fence, session FROM queue WHERE place = 1 AND deadline_at < :now LIMIT :limit)
SELECT id, fence, session FROM l ORDER BY id
-- sqlite
SELECT id, fence, session FROM queue INDEXED BY queue_leased WHERE place = 1 AND deadline_at < :now ORDER BY id LIMIT :limit

-- name: still_overdue
-- Which of these leases, locked by now, are past their deadline: a cancel may have moved it.
-- both
SELECT q.id FROM rows(:leases, id uuid) AS i JOIN queue q ON q.id = ANY(ARRAY[i.id]) WHERE q.deadline_at < :now

-- name: expire
-- End waiting jobs whose start deadline has passed, at most 500 of them: outcome 7, expired.
-- locks: queue rows, skipping locked ones.  index: queue_start_by, in its order.
-- postgres   (the outer limit is a literal, so that the planner knows without statistics that these are few)
WITH l AS MATERIALIZED (
    SELECT id FROM (SELECT id FROM queue WHERE place <> 1 AND start_by IS NOT NULL AND start_by <= :now
                     ORDER BY start_by LIMIT :limit FOR UPDATE SKIP LOCKED) AS due LIMIT 500
),
q AS (DELETE FROM queue USING l WHERE queue.id = ANY(ARRAY[l.id]) AND queue.place <> 1 RETURNING queue.*),
k AS MATERIALIZED (
    SELECT d.scope, d.key FROM q JOIN dedup d ON d.job_id = ANY(ARRAY[q.id]) AND d.expires_at IS NULL
     WHERE q.flags & 4 = 4 ORDER BY d.scope || '', d.key FOR UPDATE OF d
),
u AS (DELETE FROM dedup USING k WHERE dedup.scope = ANY(ARRAY[k.scope]) AND dedup.key = ANY(ARRAY[k.key])),
d AS (
    INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, reason, queued_at, finished_at)
    SELECT q.id, q.lane, q.attempt, q.fence, q.lost, q.releases, 7, 'Not started by its start deadline.',
           CASE WHEN q.pending = 0 THEN q.queued_at END, greatest(:now, least(q.queued_at, :now + interval '1 minute')) FROM q
)
SELECT q.id, q.flags FROM q
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS expire_pick (id, flags);
DELETE FROM temp.expire_pick;
INSERT INTO temp.expire_pick
SELECT id, flags FROM queue WHERE place <> 1 AND start_by IS NOT NULL AND start_by <= :now ORDER BY start_by LIMIT :limit;
INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, reason, queued_at, finished_at)
SELECT q.id, q.lane, q.attempt, q.fence, q.lost, q.releases, 7, 'Not started by its start deadline.',
       CASE WHEN q.pending = 0 THEN q.queued_at END, :now
  FROM temp.expire_pick AS p CROSS JOIN queue AS q ON q.id = p.id;
DELETE FROM dedup WHERE expires_at IS NULL AND job_id IN (SELECT id FROM temp.expire_pick WHERE flags & 4 = 4);
DELETE FROM queue WHERE id IN (SELECT id FROM temp.expire_pick) RETURNING id, flags
