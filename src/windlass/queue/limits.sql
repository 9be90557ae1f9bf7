-- name: lock_queue
-- Take the queue's own row with its limits as they are now; ahead_s is how far its rate is spent beyond now.
-- locks: lane.
-- postgres
SELECT max_running, rate_per_s, burst, CAST(greatest(extract(epoch FROM tat_at - :now), 0) AS double precision) AS ahead_s
  FROM lane WHERE id = :queue FOR UPDATE
-- sqlite
SELECT max_running, rate_per_s, burst, max(coalesce(tat_at, :now) - :now, 0) / 1000000.0 AS ahead_s FROM lane WHERE id = :queue

-- name: count_running
-- How many jobs of a queue, over all its lanes, are leased. Read after the lock, or two claimers would both see room.
-- index: queue_running.
-- postgres
SELECT CAST(coalesce(sum(x.leased), 0) AS bigint) AS running FROM lane o JOIN lane l ON l.tenant = o.tenant AND l.queue = o.queue
 CROSS JOIN LATERAL (SELECT count(*) AS leased FROM queue q WHERE q.lane = l.id AND q.lane > 0 AND q.place = 1) x WHERE o.id = :queue
-- sqlite
SELECT count(*) AS running FROM lane AS o CROSS JOIN lane AS l ON l.tenant = o.tenant AND l.queue = o.queue
 CROSS JOIN queue AS q INDEXED BY queue_running ON q.lane = l.id AND q.lane > 0 AND q.place = 1 WHERE o.id = :queue

-- name: charge_rate
-- Spend the rate by what was claimed.
-- postgres
UPDATE lane SET tat_at = greatest(coalesce(tat_at, :now), :now) + CAST(:spent_ms AS double precision) * interval '1 millisecond' WHERE id = :queue
-- sqlite
UPDATE lane SET tat_at = max(coalesce(tat_at, :now), :now) + CAST(:spent_ms * 1000 AS INTEGER) WHERE id = :queue
