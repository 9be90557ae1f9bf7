-- name: due
-- Schedules with a slot that is due, up to :each of each shard that are fresh and as many that are late, with what decides
-- about them and what their jobs get. The payload stays where it is.
-- hot: a duty must not wait for lists.
-- live: 1 where the last job that was let go has not ended.
-- index: schedule_due, then primary keys.
-- postgres
SELECT n.id, n.shard, n.next_at, n.last_at, n.version, n.waiting_count, n.live_job_id, n.late, coalesce(q.live, t.live) AS live,
       s.tenant, s.queue, s.task, s.labels, s.kind, s.expression, s.zone, s.start_at, s.end_at, s.exclude,
       s.base_at, s.jitter_s, s.priority, s.catch_up, s.catch_up_max, s.catch_up_window_s, s.misfire_grace_s, s.overlap,
       s.start_within_s, s.max_attempts, s.max_lost, s.timeout_s, s.retry, s.headers, s.tags, s.defaults, :now AS now_at
  FROM unnest(CAST(:shards AS smallint[])) AS p (shard)
 CROSS JOIN LATERAL (
     (SELECT x.id, x.shard, x.next_at, x.last_at, x.version, x.waiting_count, x.live_job_id, 0 AS late FROM schedule_next x
       WHERE x.shard = p.shard AND x.next_at <= :now AND x.next_at > :now - CAST(:fresh_ms AS bigint) * interval '1 millisecond'
         AND x.id <> ALL(CAST(:without AS uuid[]))
       ORDER BY x.next_at LIMIT :each)
     UNION ALL
     (SELECT x.id, x.shard, x.next_at, x.last_at, x.version, x.waiting_count, x.live_job_id, 1 AS late FROM schedule_next x
       WHERE x.shard = p.shard AND x.next_at <= :now - CAST(:fresh_ms AS bigint) * interval '1 millisecond'
         AND x.id <> ALL(CAST(:without AS uuid[]))
       ORDER BY x.next_at LIMIT :each)) n
 CROSS JOIN LATERAL (SELECT x.* FROM schedule x WHERE x.id = n.id LIMIT 1) s
  LEFT JOIN LATERAL (SELECT 1 AS live FROM queue x WHERE x.id = n.live_job_id LIMIT 1) q ON true
  LEFT JOIN LATERAL (SELECT 1 AS live FROM timer x WHERE x.id = n.live_job_id LIMIT 1) t ON true
-- sqlite
SELECT n.id, n.shard, n.next_at, n.last_at, n.version, n.waiting_count, n.live_job_id, n.late,
       coalesce((SELECT 1 FROM queue AS x WHERE x.id = n.live_job_id), (SELECT 1 FROM timer AS x WHERE x.id = n.live_job_id)) AS live,
       s.tenant, s.queue, s.task, s.labels, s.kind, s.expression, s.zone, s.start_at, s.end_at, s.exclude,
       s.base_at, s.jitter_s, s.priority, s.catch_up, s.catch_up_max, s.catch_up_window_s, s.misfire_grace_s, s.overlap,
       s.start_within_s, s.max_attempts, s.max_lost, s.timeout_s, s.retry, s.headers, s.tags, s.defaults, :now AS now_at
  FROM (SELECT * FROM (SELECT x.id, x.shard, x.next_at, x.last_at, x.version, x.waiting_count, x.live_job_id, 0 AS late
                         FROM json_each(:shards) AS p CROSS JOIN schedule_next AS x
                           ON x.shard = p.value AND x.next_at <= :now AND x.next_at > :now - :fresh_ms * 1000
                          AND x.id NOT IN (SELECT value FROM json_each(:without))
                        ORDER BY x.next_at LIMIT :each * json_array_length(:shards))
        UNION ALL
        SELECT * FROM (SELECT x.id, x.shard, x.next_at, x.last_at, x.version, x.waiting_count, x.live_job_id, 1 AS late
                         FROM json_each(:shards) AS p CROSS JOIN schedule_next AS x
                           ON x.shard = p.value AND x.next_at <= :now - :fresh_ms * 1000
                          AND x.id NOT IN (SELECT value FROM json_each(:without))
                        ORDER BY x.next_at LIMIT :each * json_array_length(:shards))) AS n
 CROSS JOIN schedule AS s ON s.id = n.id

-- name: advance
-- Move schedules on past the slots that were decided, each only if nothing about it has changed since it was read.
-- guard: all that the decision rests on; the last slot never falls.  locks: schedule_next rows by id, skipping locked ones: a
-- rival fires them, or somebody changes them.
-- returns: what was moved; only for these anything may be made.
-- postgres
WITH l AS MATERIALIZED (
    SELECT i.id, i.to_next_at, i.to_last_at, i.to_live_job_id, i.to_waiting_count
      FROM rows(:cursors, id uuid, version int, next_at timestamptz, last_at timestamptz, live_job_id uuid, waiting_count int,
                to_next_at timestamptz, to_last_at timestamptz, to_live_job_id uuid, to_waiting_count int) AS i
      JOIN schedule_next n ON n.id = ANY(ARRAY[i.id])
     WHERE n.version = i.version AND n.next_at IS NOT DISTINCT FROM i.next_at AND n.last_at IS NOT DISTINCT FROM i.last_at
       AND (n.last_at IS NULL OR n.last_at <= i.to_last_at)
       AND n.live_job_id IS NOT DISTINCT FROM i.live_job_id AND n.waiting_count + 0 = i.waiting_count
       FOR UPDATE OF n SKIP LOCKED
)
UPDATE schedule_next n SET next_at = l.to_next_at, last_at = l.to_last_at, live_job_id = l.to_live_job_id, waiting_count = l.to_waiting_count
  FROM l WHERE n.id = ANY(ARRAY[l.id]) RETURNING n.id
-- sqlite
UPDATE schedule_next SET next_at = i.to_next_at, last_at = i.to_last_at, live_job_id = i.to_live_job_id, waiting_count = i.to_waiting_count
  FROM rows(:cursors) AS i
 WHERE schedule_next.id = i.id AND schedule_next.version = i.version AND schedule_next.next_at IS i.next_at
   AND schedule_next.last_at IS i.last_at AND (schedule_next.last_at IS NULL OR schedule_next.last_at <= i.to_last_at)
   AND schedule_next.live_job_id IS i.live_job_id AND schedule_next.waiting_count = i.waiting_count
RETURNING schedule_next.id

-- name: record
-- Write down what became of slots; one that was decided before, by a backfill, is left as it is.
-- returns: what was written; only for these jobs may be made.
-- both
INSERT INTO schedule_runs (schedule_id, slot_at, decision, job_id, term, decided_at, slot_count, first_at, reason)
SELECT i.schedule_id, i.slot_at, i.decision, i.job_id, i.term, :now, i.slot_count, i.first_at, i.reason
  FROM rows(:runs, schedule_id uuid, slot_at timestamptz, decision smallint, job_id uuid, term int, slot_count int,
            first_at timestamptz, reason text) AS i WHERE true
ON CONFLICT DO NOTHING RETURNING schedule_id, slot_at

-- name: known
-- The first :limit slots of schedules that are decided already, of each from an instant on.
-- postgres
SELECT i.id AS schedule_id, r.slot_at FROM rows(:since, id uuid, since_at timestamptz) AS i
 CROSS JOIN LATERAL (SELECT x.slot_at FROM schedule_runs x WHERE x.schedule_id = i.id AND x.slot_at >= i.since_at
                      ORDER BY x.slot_at LIMIT :limit) r
-- sqlite
SELECT r.schedule_id, r.slot_at
  FROM (SELECT x.schedule_id, x.slot_at, row_number() OVER (PARTITION BY x.schedule_id ORDER BY x.slot_at) AS number
          FROM rows(:since) AS i CROSS JOIN schedule_runs AS x ON x.schedule_id = i.id AND x.slot_at >= i.since_at) AS r
 WHERE r.number <= :limit ORDER BY r.schedule_id, r.slot_at

-- name: make_jobs
-- Make the jobs of slots from their schedules: ready, or blocked (place 2, one pending) where they wait for the run before.
-- late_ms: how long ago a job was due.
-- guard: the lane is in use, as in submit.sql.  rank: as of a job submitted now.  returns: by lane, how many, and the least rank of those that are ready.
-- postgres
WITH i AS MATERIALIZED (
    SELECT r.*, CAST(floor(extract(epoch FROM :now) * 1000) AS bigint) - CASE WHEN l.fifo = 1 THEN 0 ELSE r.priority * l.credit_ms END AS rank
      FROM rows(:jobs, id uuid, schedule_id uuid, slot_at timestamptz, run_at timestamptz, start_by timestamptz, lane int,
                priority smallint, max_attempts smallint, max_lost smallint, timeout_s int, retry text, headers text, tags text, defaults int,
                pending int) AS r
      JOIN lane l ON l.id = r.lane AND l.retired = 0
),
j AS (
    INSERT INTO job (id, lane, task, payload, headers, tags, priority, max_attempts, max_lost, timeout_s, retry, schedule_id, slot_at, run,
                     run_at, created_at, start_by, defaults)
    SELECT i.id, i.lane, s.task, s.payload, i.headers, i.tags, i.priority, i.max_attempts, i.max_lost, i.timeout_s, i.retry,
           i.schedule_id, i.slot_at, 1, i.run_at, :now, i.start_by, i.defaults
      FROM i CROSS JOIN LATERAL (SELECT x.* FROM schedule x WHERE x.id = i.schedule_id LIMIT 1) s
),
w AS (INSERT INTO schedule_wait (schedule_id, slot_at, job_id) SELECT i.schedule_id, i.slot_at, i.id FROM i WHERE i.pending = 1),
q AS (
    INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, late_ms, start_by, pending, flags)
    SELECT i.id, i.lane, i.rank, CASE WHEN i.pending = 1 THEN 2 ELSE 0 END, 0, 0, 0, 0, :now,
           CAST(least(greatest(extract(epoch FROM :now - i.run_at) * 1000, 0), 2147483647) AS int), i.start_by, i.pending, 0 FROM i
)
SELECT i.lane, count(*) AS made, min(CASE WHEN i.pending = 0 THEN i.rank END) AS rank FROM i GROUP BY i.lane
-- sqlite
INSERT INTO job (id, lane, task, payload, headers, tags, priority, max_attempts, max_lost, timeout_s, retry, schedule_id, slot_at, run,
                 run_at, created_at, start_by, defaults)
SELECT i.id, i.lane, s.task, s.payload, i.headers, i.tags, i.priority, i.max_attempts, i.max_lost, i.timeout_s, i.retry,
       i.schedule_id, i.slot_at, 1, i.run_at, :now, i.start_by, i.defaults
  FROM rows(:jobs) AS i CROSS JOIN schedule AS s ON s.id = i.schedule_id;
INSERT INTO schedule_wait (schedule_id, slot_at, job_id) SELECT i.schedule_id, i.slot_at, i.id FROM rows(:jobs) AS i WHERE i.pending = 1;
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, late_ms, start_by, pending, flags)
SELECT i.id, i.lane, :now / 1000 - CASE WHEN l.fifo = 1 THEN 0 ELSE i.priority * l.credit_ms END,
       CASE WHEN i.pending = 1 THEN 2 ELSE 0 END, 0, 0, 0, 0, :now,
       min(max((:now - i.run_at) / 1000, 0), 2147483647), i.start_by, i.pending, 0
  FROM rows(:jobs) AS i CROSS JOIN lane AS l ON l.id = i.lane AND l.retired = 0;
SELECT q.lane, count(*) AS made, min(CASE WHEN q.pending = 0 THEN q.rank END) AS rank
  FROM rows(:jobs) AS i CROSS JOIN queue AS q ON q.id = i.id GROUP BY q.lane

-- name: lock_jobs
-- Lock the places of jobs, of whichever tenant, before they are cancelled tenant by tenant.
-- locks: queue rows by ascending id.
-- postgres
SELECT q.id FROM queue q WHERE q.id = ANY(CAST(:ids AS uuid[])) ORDER BY q.id FOR UPDATE OF q
-- sqlite
SELECT q.id FROM json_each(:ids) AS i CROSS JOIN queue AS q ON q.id = i.value

-- name: drop_waits
-- Let the jobs of these schedules wait for nothing any more; what becomes of them follows in the transaction.
-- returns: the jobs.
-- postgres
DELETE FROM schedule_wait w USING unnest(CAST(:schedule_ids AS uuid[])) AS i (id) WHERE w.schedule_id = ANY(ARRAY[i.id])
RETURNING w.schedule_id, w.job_id
-- sqlite
DELETE FROM schedule_wait WHERE schedule_id IN (SELECT value FROM json_each(:schedule_ids)) RETURNING schedule_id, job_id
