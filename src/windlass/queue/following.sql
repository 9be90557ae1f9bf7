-- name: behind
-- Schedules of these shards whose jobs wait, the next :limit of them after an id: whether the run before lives, and whether one of the first
-- jobs that wait does not.
-- hot: a duty must not wait for lists.
-- index: schedule_behind.
-- postgres
SELECT n.id, n.live_job_id, coalesce(q.live, t.live) AS live, w.ended
  FROM (SELECT x.id, x.live_job_id FROM schedule_next x
         WHERE x.waiting_count > 0 AND x.id > CAST(:after AS uuid) AND x.shard = ANY(CAST(:shards AS smallint[])) ORDER BY x.id LIMIT :limit) n
  LEFT JOIN LATERAL (SELECT 1 AS live FROM queue x WHERE x.id = n.live_job_id LIMIT 1) q ON true
  LEFT JOIN LATERAL (SELECT 1 AS live FROM timer x WHERE x.id = n.live_job_id LIMIT 1) t ON true
 CROSS JOIN LATERAL (
     SELECT count(*) - count(coalesce(k.live, l.live)) AS ended
       FROM (SELECT x.job_id FROM schedule_wait x WHERE x.schedule_id = n.id ORDER BY x.slot_at LIMIT :read) y
       LEFT JOIN LATERAL (SELECT 1 AS live FROM queue x WHERE x.id = y.job_id LIMIT 1) k ON true
       LEFT JOIN LATERAL (SELECT 1 AS live FROM timer x WHERE x.id = y.job_id LIMIT 1) l ON true) w
-- sqlite
SELECT n.id, n.live_job_id,
       coalesce((SELECT 1 FROM queue AS x WHERE x.id = n.live_job_id), (SELECT 1 FROM timer AS x WHERE x.id = n.live_job_id)) AS live,
       (SELECT count(*) FROM (SELECT x.job_id FROM schedule_wait AS x WHERE x.schedule_id = n.id ORDER BY x.slot_at LIMIT :read) AS y
         WHERE NOT EXISTS (SELECT 1 FROM queue AS k WHERE k.id = y.job_id) AND NOT EXISTS (SELECT 1 FROM timer AS k WHERE k.id = y.job_id)) AS ended
  FROM (SELECT x.id, x.live_job_id FROM schedule_next AS x
         WHERE x.waiting_count > 0 AND x.id > :after AND x.shard IN (SELECT value FROM json_each(:shards)) ORDER BY x.id LIMIT :limit) AS n

-- name: lock_behind
-- Lock schedules whose next job may be let go, each only if nobody has let one go since they were read.
-- locks: schedule_next rows, skipping locked ones.
-- postgres
SELECT n.id, n.waiting_count, coalesce(q.live, t.live) AS live
  FROM rows(:followed, id uuid, live_job_id uuid) AS i JOIN schedule_next n ON n.id = ANY(ARRAY[i.id])
  LEFT JOIN LATERAL (SELECT 1 AS live FROM queue x WHERE x.id = i.live_job_id LIMIT 1) q ON true
  LEFT JOIN LATERAL (SELECT 1 AS live FROM timer x WHERE x.id = i.live_job_id LIMIT 1) t ON true
 WHERE n.live_job_id IS NOT DISTINCT FROM i.live_job_id AND n.waiting_count + 0 > 0 FOR UPDATE OF n SKIP LOCKED
-- sqlite
SELECT n.id, n.waiting_count,
       coalesce((SELECT 1 FROM queue AS x WHERE x.id = i.live_job_id), (SELECT 1 FROM timer AS x WHERE x.id = i.live_job_id)) AS live
  FROM rows(:followed) AS i CROSS JOIN schedule_next AS n ON n.id = i.id
 WHERE n.live_job_id IS i.live_job_id AND n.waiting_count > 0

-- name: waits
-- The first :limit jobs that wait in each of these schedules, and whether each still lives.
-- hot: it is asked in the midst of a transaction.
-- postgres
SELECT i.id AS schedule_id, w.slot_at, w.job_id, coalesce(q.live, t.live) AS live FROM unnest(CAST(:schedule_ids AS uuid[])) AS i (id)
 CROSS JOIN LATERAL (SELECT x.slot_at, x.job_id FROM schedule_wait x WHERE x.schedule_id = i.id ORDER BY x.slot_at LIMIT :limit) w
  LEFT JOIN LATERAL (SELECT 1 AS live FROM queue x WHERE x.id = w.job_id LIMIT 1) q ON true
  LEFT JOIN LATERAL (SELECT 1 AS live FROM timer x WHERE x.id = w.job_id LIMIT 1) t ON true
-- sqlite
SELECT w.schedule_id, w.slot_at, w.job_id,
       coalesce((SELECT 1 FROM queue AS x WHERE x.id = w.job_id), (SELECT 1 FROM timer AS x WHERE x.id = w.job_id)) AS live
  FROM (SELECT x.schedule_id, x.slot_at, x.job_id, row_number() OVER (PARTITION BY x.schedule_id ORDER BY x.slot_at) AS number
          FROM json_each(:schedule_ids) AS i CROSS JOIN schedule_wait AS x ON x.schedule_id = i.value) AS w
 WHERE w.number <= :limit ORDER BY w.schedule_id, w.slot_at

-- name: let_go
-- Let jobs go that wait for the run before them: ready, or still held where they are paused.
-- locks: queue rows in the order given (sorted).
-- postgres
WITH l AS MATERIALIZED (
    SELECT q.id FROM unnest(CAST(:ids AS uuid[])) AS i (id) JOIN queue q ON q.id = ANY(ARRAY[i.id])
     WHERE q.place + 0 IN (2, 3) AND q.session IS NULL AND q.pending > 0 ORDER BY i.id FOR UPDATE OF q
)
UPDATE queue q SET pending = 0, place = CASE WHEN q.place = 2 THEN 0 ELSE q.place END, queued_at = greatest(:now, q.queued_at)
  FROM l WHERE q.id = ANY(ARRAY[l.id]) RETURNING q.id, q.lane, q.rank, q.place
-- sqlite
UPDATE queue SET pending = 0, place = CASE WHEN place = 2 THEN 0 ELSE place END, queued_at = max(:now, queued_at)
 WHERE id IN (SELECT value FROM json_each(:ids)) AND place IN (2, 3) AND session IS NULL AND pending > 0
RETURNING id, lane, rank, place

-- name: followed
-- Remember which jobs were let go, and how many still wait; the rows are locked. Without a job the last one stays.
-- postgres
UPDATE schedule_next n SET live_job_id = coalesce(i.job_id, n.live_job_id), waiting_count = i.waiting_count
  FROM rows(:cursors, id uuid, job_id uuid, waiting_count int) AS i WHERE n.id = ANY(ARRAY[i.id])
-- sqlite
UPDATE schedule_next SET live_job_id = coalesce(i.job_id, live_job_id), waiting_count = i.waiting_count
  FROM rows(:cursors) AS i WHERE schedule_next.id = i.id

-- name: drop_wait
-- Forget jobs that wait no more.
-- postgres
DELETE FROM schedule_wait w USING rows(:waits, schedule_id uuid, slot_at timestamptz) AS i
 WHERE w.schedule_id = ANY(ARRAY[i.schedule_id]) AND w.slot_at = ANY(ARRAY[i.slot_at])
-- sqlite
DELETE FROM schedule_wait WHERE (schedule_id, slot_at) IN (SELECT i.schedule_id, i.slot_at FROM rows(:waits) AS i)

-- name: lock_waited
-- Lock schedules that have jobs which wait.
-- locks: schedule_next rows in the order given (sorted).
-- both
SELECT n.id FROM unnest(CAST(:schedule_ids AS uuid[])) AS i (id) JOIN schedule_next n ON n.id = ANY(ARRAY[i.id])
 WHERE n.waiting_count + 0 > 0 ORDER BY i.id FOR UPDATE OF n

-- name: drop_ended
-- Forget jobs that ended while they waited; the rows of their schedules are locked.
-- returns: whose they were.
-- postgres
DELETE FROM schedule_wait w USING rows(:waits, schedule_id uuid, slot_at timestamptz, job_id uuid) AS i
 WHERE w.schedule_id = ANY(ARRAY[i.schedule_id]) AND w.slot_at = ANY(ARRAY[i.slot_at]) AND w.job_id = i.job_id
   AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = ANY(ARRAY[i.job_id])) AND NOT EXISTS (SELECT 1 FROM timer t WHERE t.id = ANY(ARRAY[i.job_id]))
RETURNING w.schedule_id
-- sqlite
DELETE FROM schedule_wait WHERE (schedule_id, slot_at, job_id) IN (SELECT i.schedule_id, i.slot_at, i.job_id FROM rows(:waits) AS i)
   AND NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.id = schedule_wait.job_id) AND NOT EXISTS (SELECT 1 FROM timer AS t WHERE t.id = schedule_wait.job_id)
RETURNING schedule_id

-- name: fewer
-- Count fewer jobs that wait; the rows are locked.
-- postgres
UPDATE schedule_next n SET waiting_count = n.waiting_count - i.dropped
  FROM rows(:counts, id uuid, dropped int) AS i WHERE n.id = ANY(ARRAY[i.id])
-- sqlite
UPDATE schedule_next SET waiting_count = waiting_count - i.dropped FROM rows(:counts) AS i WHERE schedule_next.id = i.id
