-- name: lanes_counted
-- The lanes of a tenant or of all, of some queues or of all; the queues' own rows too.
-- postgres
SELECT id AS number, tenant, queue, paused FROM lane
 WHERE (CAST(:tenant AS text) IS NULL OR tenant = :tenant) AND (CAST(:queues AS text[]) IS NULL OR queue = ANY(CAST(:queues AS text[])))
 ORDER BY id
-- sqlite
SELECT id AS number, tenant, queue, paused FROM lane
 WHERE (:tenant IS NULL OR tenant = :tenant) AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
 ORDER BY id

-- name: ready_and_dead
-- How many jobs are ready, and how many are dead, lane by lane: up to :most of each.
-- index: queue_ready, dead_finished.  plan: the order is that of the index; without it LIMIT makes reading the whole table look cheap.
-- postgres
SELECT l.lane, (SELECT count(*) FROM (SELECT 1 FROM queue q WHERE q.place = 0 AND q.lane = l.lane ORDER BY q.rank, q.id LIMIT :most) x) AS ready,
       (SELECT count(*) FROM (SELECT 1 FROM dead d WHERE d.lane = l.lane ORDER BY d.finished_at LIMIT :most) x) AS dead
  FROM unnest(CAST(:lanes AS int[])) AS l(lane)
-- sqlite
SELECT l.value AS lane, (SELECT count(*) FROM (SELECT 1 FROM queue AS q WHERE q.place = 0 AND q.lane = l.value LIMIT :most)) AS ready,
       (SELECT count(*) FROM (SELECT 1 FROM dead AS d WHERE d.lane = l.value LIMIT :most)) AS dead
  FROM json_each(:lanes) AS l

-- name: elsewhere
-- How many jobs are leased (source 1), blocked or held (2), waiting for their time (3), by lane and state; up to :most are read of each.
-- What is blocked or held is found among the :most oldest rows of queue, for its index lies by lane; the others have no state here.
-- index: queue_leased, queue_pkey, timer_due, each by its order.
-- both
SELECT x.source, x.lane, x.state, count(*) AS jobs FROM (
    SELECT 1 AS source, q.lane, CASE WHEN q.flags & 2 = 2 THEN 'cancelling' WHEN q.started_at IS NOT NULL THEN 'running' ELSE 'assigned' END AS state
      FROM (SELECT lane, flags, started_at FROM queue WHERE place = 1 ORDER BY session LIMIT :most) q
    UNION ALL
    SELECT 2, w.lane, CASE WHEN w.place < 2 THEN NULL WHEN w.session IS NOT NULL THEN 'running' WHEN w.place = 2 OR w.pending > 0 THEN 'blocked' ELSE 'queued' END
      FROM (SELECT lane, place, pending, session FROM queue ORDER BY id LIMIT :most) w
    UNION ALL
    SELECT 3, t.lane, CASE WHEN t.reason = 2 THEN 'sleeping' ELSE 'scheduled' END
      FROM (SELECT lane, reason FROM timer ORDER BY due_at, id LIMIT :most) t
) x GROUP BY x.source, x.lane, x.state

-- name: longest_waits
-- How long the job that waits longest has been due, in each of these lanes where one is ready.
-- The oldest of each priority stands at the head of its stretch of ranks, so the index is entered once for each priority in use;
-- where a priority is worth less than the time since 1970 (2^41 ms) stretches overlap, and the head of the lane stands for all.
-- A rank given under other settings tells no time: then the job's own times do.
-- index: queue_ready.
-- postgres
WITH RECURSIVE h AS (
    SELECT l.id AS lane, l.credit_ms, l.fifo,
           (SELECT q.rank FROM queue q WHERE q.place = 0 AND q.lane = l.id ORDER BY q.rank LIMIT 1) AS rank
      FROM lane l WHERE l.id = ANY(CAST(:lanes AS int[]))
    UNION ALL
    SELECT h.lane, h.credit_ms, h.fifo,
           (SELECT q.rank FROM queue q WHERE q.place = 0 AND q.lane = h.lane
               AND q.rank >= h.rank - (h.rank % h.credit_ms + h.credit_ms) % h.credit_ms + h.credit_ms ORDER BY q.rank LIMIT 1)
      FROM h WHERE h.rank IS NOT NULL AND h.fifo = 0 AND h.credit_ms >= 2199023255552
),
d AS (
    SELECT h.lane, CASE WHEN h.fifo = 1 THEN h.rank ELSE h.rank + j.priority * h.credit_ms END AS ranked_ms,
           CAST(floor(extract(epoch FROM greatest(j.created_at, j.run_at)) * 1000) AS bigint) AS asked_ms,
           CAST(floor(extract(epoch FROM :now) * 1000) AS bigint) AS now_ms
      FROM h CROSS JOIN LATERAL (SELECT q.id FROM queue q WHERE q.place = 0 AND q.lane = h.lane AND q.rank = h.rank ORDER BY q.id LIMIT 1) q
      JOIN job j ON j.id = ANY(ARRAY[q.id])
)
SELECT d.lane, max(d.now_ms - CASE WHEN d.ranked_ms BETWEEN d.asked_ms AND d.now_ms THEN d.ranked_ms ELSE d.asked_ms END) AS waited_ms
  FROM d GROUP BY d.lane
-- sqlite
WITH RECURSIVE h AS (
    SELECT l.id AS lane, l.credit_ms, l.fifo,
           (SELECT q.rank FROM queue AS q WHERE q.place = 0 AND q.lane = l.id ORDER BY q.rank LIMIT 1) AS rank
      FROM lane AS l WHERE l.id IN (SELECT value FROM json_each(:lanes))
    UNION ALL
    SELECT h.lane, h.credit_ms, h.fifo,
           (SELECT q.rank FROM queue AS q WHERE q.place = 0 AND q.lane = h.lane
               AND q.rank >= h.rank - (h.rank % h.credit_ms + h.credit_ms) % h.credit_ms + h.credit_ms ORDER BY q.rank LIMIT 1)
      FROM h WHERE h.rank IS NOT NULL AND h.fifo = 0 AND h.credit_ms >= 2199023255552
),
d AS (
    SELECT h.lane, CASE WHEN h.fifo = 1 THEN h.rank ELSE h.rank + j.priority * h.credit_ms END AS ranked_ms,
           max(j.created_at, j.run_at) / 1000 AS asked_ms, :now / 1000 AS now_ms
      FROM h CROSS JOIN job AS j
        ON j.id = (SELECT q.id FROM queue AS q WHERE q.place = 0 AND q.lane = h.lane AND q.rank = h.rank ORDER BY q.id LIMIT 1)
)
SELECT d.lane, max(d.now_ms - CASE WHEN d.ranked_ms BETWEEN d.asked_ms AND d.now_ms THEN d.ranked_ms ELSE d.asked_ms END) AS waited_ms
  FROM d GROUP BY d.lane
