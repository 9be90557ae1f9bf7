-- name: promote
-- Move due timers into queue: ready, or held when paused (flag 1). Flag 8: it had started, no start deadline any more.
-- locks: timer rows, skipping locked ones.  index: timer_due.
-- plan: LIMIT 1 makes the planner look jobs up one by one; a plan made while there were few would else read them whole.
-- postgres
WITH due AS MATERIALIZED (
    SELECT id FROM timer WHERE due_at <= :now ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED
),
t AS (DELETE FROM timer USING due WHERE timer.id = ANY(ARRAY[due.id]) RETURNING timer.*)
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, flags, pending, start_by)
SELECT t.id, t.lane,
       CASE WHEN l.fifo = 1 THEN CAST(floor(extract(epoch FROM j.created_at) * 1000) AS bigint)
            ELSE CAST(floor(extract(epoch FROM t.due_at) * 1000) AS bigint) - j.priority * l.credit_ms END,
       CASE WHEN t.flags & 1 = 1 THEN 3 ELSE 0 END, t.attempt, t.fence, t.lost, t.releases, t.due_at, t.flags & ~16, 0,
       CASE WHEN t.flags & 8 = 0 THEN j.start_by END
  FROM t CROSS JOIN LATERAL (SELECT job.created_at, job.priority, job.start_by FROM job WHERE job.id = ANY(ARRAY[t.id]) LIMIT 1) j
  JOIN lane l ON l.id = t.lane
RETURNING id, lane, rank, place
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS promote_due (id);
DELETE FROM temp.promote_due;
INSERT INTO temp.promote_due SELECT id FROM timer WHERE due_at <= :now ORDER BY due_at, id LIMIT :limit;
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, flags, pending, start_by)
SELECT t.id, t.lane,
       CASE WHEN l.fifo = 1 THEN j.created_at / 1000 ELSE t.due_at / 1000 - j.priority * l.credit_ms END,
       CASE WHEN t.flags & 1 = 1 THEN 3 ELSE 0 END, t.attempt, t.fence, t.lost, t.releases, t.due_at, t.flags & ~16, 0,
       CASE WHEN t.flags & 8 = 0 THEN j.start_by END
  FROM temp.promote_due AS d CROSS JOIN timer AS t ON t.id = d.id CROSS JOIN job AS j ON j.id = t.id
 CROSS JOIN lane AS l ON l.id = t.lane;
DELETE FROM timer WHERE id IN (SELECT id FROM temp.promote_due);
SELECT q.id, q.lane, q.rank, q.place FROM temp.promote_due AS d CROSS JOIN queue AS q ON q.id = d.id
