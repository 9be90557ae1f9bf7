-- name: lock_queue
-- Take the queue's own row with its limits as they are now; ahead_s is how far its rate is spent beyond now.
-- locks: lane.
-- counted: 0 while leases that began before the limit may not be marked yet, 1 when no claim that has not seen it can be under way,
-- 2 when all of them are marked.
-- postgres
SELECT CASE WHEN limited = 1 THEN 2
            WHEN limited = 2 AND limited_at < :now - CAST(:unseen_ms AS bigint) * interval '1 millisecond' THEN 1 ELSE 0 END AS counted,
       max_running, rate_per_s, burst, CAST(greatest(extract(epoch FROM tat_at - :now), 0) AS double precision) AS ahead_s
  FROM lane WHERE id = :queue FOR UPDATE
-- sqlite
SELECT CASE WHEN limited = 1 THEN 2 WHEN limited = 2 AND limited_at < :now - :unseen_ms * 1000 THEN 1 ELSE 0 END AS counted, max_running, rate_per_s, burst,
       max(coalesce(tat_at, :now) - :now, 0) / 1000000.0 AS ahead_s FROM lane WHERE id = :queue

-- name: count_running
-- How many jobs of a queue, over all its lanes, are leased. Read after the lock, or two claimers would both see room.
-- index: queue_running, which has the leases of limited queues alone (flag 256).
-- postgres
SELECT CAST(coalesce(sum(x.leased), 0) AS bigint) AS running FROM lane o JOIN lane l ON l.tenant = o.tenant AND l.queue = o.queue
 CROSS JOIN LATERAL (SELECT count(*) AS leased FROM queue q WHERE q.lane = l.id AND q.place = 1 AND q.flags >= 256) x WHERE o.id = :queue
-- sqlite
SELECT count(*) AS running FROM lane AS o CROSS JOIN lane AS l ON l.tenant = o.tenant AND l.queue = o.queue
 CROSS JOIN queue AS q INDEXED BY queue_running ON q.lane = l.id AND q.place = 1 AND q.flags >= 256 WHERE o.id = :queue

-- name: count_leased
-- The same by all leases there are, marked or not.
-- hot: part of a claim.
-- index: queue_leased.
-- postgres
SELECT count(*) AS running FROM queue q
 WHERE q.place = 1 AND q.lane = ANY(ARRAY(SELECT l.id FROM lane o JOIN lane l ON l.tenant = o.tenant AND l.queue = o.queue WHERE o.id = :queue))
-- sqlite
SELECT count(*) AS running FROM queue AS q INDEXED BY queue_leased
 WHERE q.place = 1 AND q.lane IN (SELECT l.id FROM lane AS o JOIN lane AS l ON l.tenant = o.tenant AND l.queue = o.queue WHERE o.id = :queue)

-- name: mark_leases
-- Mark the leases of a queue that began before it had limits (flag 256); one that a rival has locked is left to the next claim.
-- locks: queue rows by ascending id, skipping locked ones.  index: queue_leased.
-- postgres
WITH m AS MATERIALIZED (
    SELECT q.id FROM queue q
     WHERE q.place = 1 AND q.flags & 256 = 0
       AND q.lane = ANY(ARRAY(SELECT l.id FROM lane o JOIN lane l ON l.tenant = o.tenant AND l.queue = o.queue WHERE o.id = :queue))
     ORDER BY q.session
),
l AS MATERIALIZED (
    SELECT q.id FROM m JOIN queue q ON q.id = ANY(ARRAY[m.id]) AND q.place + 0 = 1 ORDER BY m.id FOR UPDATE OF q SKIP LOCKED
)
UPDATE queue q SET flags = q.flags | 256 FROM l WHERE q.id = ANY(ARRAY[l.id]) AND q.place + 0 = 1
-- sqlite
UPDATE queue SET flags = flags | 256
 WHERE place = 1 AND flags & 256 = 0
   AND lane IN (SELECT l.id FROM lane AS o JOIN lane AS l ON l.tenant = o.tenant AND l.queue = o.queue WHERE o.id = :queue)

-- name: all_marked
-- Note that all leases of a queue are marked, if they are.
-- guard: it has limits, and this was not known yet.  locks: lane rows of the queue, whose own row is locked.
-- both
UPDATE lane SET limited = 1
 WHERE lane.limited = 2 AND lane.id IN (SELECT l.id FROM lane o JOIN lane l ON l.tenant = o.tenant AND l.queue = o.queue WHERE o.id = :queue)
   AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.place = 1 AND q.flags & 256 = 0
                      AND q.lane IN (SELECT l.id FROM lane o JOIN lane l ON l.tenant = o.tenant AND l.queue = o.queue WHERE o.id = :queue))

-- name: charge_rate
-- Spend the rate by what was claimed.
-- postgres
UPDATE lane SET tat_at = greatest(coalesce(tat_at, :now), :now) + CAST(:spent_ms AS double precision) * interval '1 millisecond' WHERE id = :queue
-- sqlite
UPDATE lane SET tat_at = max(coalesce(tat_at, :now), :now) + CAST(:spent_ms * 1000 AS INTEGER) WHERE id = :queue
