-- name: clock
-- The time.
-- hot: part of transactions that write.
-- both
SELECT :now AS now_at

-- name: writers
-- The other transactions that write to our tables at this moment. SQLite has one writer at a time.
-- A statement has locked the tables that it writes to before it looks at a row, so one that has seen a tenant without its mark is among them.
-- relkind: a vacuum locks indexes in this way, for hours perhaps, and writes no row.
-- postgres
SELECT DISTINCT k.virtualtransaction AS writer FROM pg_catalog.pg_locks k
  JOIN pg_catalog.pg_class c ON c.oid = k.relation JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'windlass'
 WHERE k.locktype = 'relation' AND k.mode = 'RowExclusiveLock' AND k.granted AND c.relkind IN ('r', 'p') AND k.pid IS DISTINCT FROM pg_backend_pid()
   AND k.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
-- sqlite
SELECT '' AS writer WHERE false

-- name: save
-- Note how far the erasure of a tenant is.
-- both
UPDATE tenant SET erasing = :erasing WHERE name = :tenant

-- name: under_way
-- Tenants that are being erased, by name.
-- hot: a duty must not wait for lists.
-- both
SELECT name FROM tenant WHERE erasing <> '' ORDER BY name LIMIT :limit

-- name: end
-- Leave nothing of a tenant but its name, so that a call that was let in before does not bring the tenant back.
-- both
UPDATE tenant SET erasing = '', created_at = :now WHERE name = :tenant

-- name: ended
-- Names of tenants that were erased longer ago than the age.
-- both
SELECT name FROM tenant WHERE erasing = '' AND created_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' LIMIT :limit

-- name: lock_ended
-- Take the row of a tenant that was erased longer ago than the age; no row: another has forgotten the tenant, or made it again.
-- locks: tenant.
-- both
SELECT name FROM tenant WHERE name = :tenant AND erasing = '' AND created_at < :now - CAST(:age_ms AS bigint) * interval '1 millisecond' FOR UPDATE

-- name: forget
-- Forget the name of a tenant that was erased.
-- both
DELETE FROM tenant WHERE name = :tenant AND erasing = ''

-- name: drop_keys
-- Remove the keys of a tenant that is locked.
-- both
DELETE FROM key WHERE tenant = :tenant

-- name: retire_lanes
-- Take the lanes from a tenant, with all their names. No session can claim there, no submit that sees it writes there, and a tenant that
-- gets the name again gets other lanes. Their numbers stay; `labels` has whose they were until they are empty.
-- locks: lane rows by ascending id.
-- postgres
WITH l AS MATERIALIZED (SELECT id FROM lane WHERE tenant = :tenant ORDER BY id FOR UPDATE)
UPDATE lane SET tenant = '', queue = '', task = '', labels = :tenant, key = CAST(lane.id AS text), retired = 1, paused = 0, limited = 0, fifo = 0,
       max_running = NULL, rate_per_s = NULL, burst = NULL, tat_at = NULL
  FROM l WHERE lane.id = l.id
-- sqlite
UPDATE lane SET tenant = '', queue = '', task = '', labels = :tenant, key = CAST(id AS text), retired = 1, paused = 0, limited = 0, fifo = 0,
       max_running = NULL, rate_per_s = NULL, burst = NULL, tat_at = NULL
 WHERE tenant = :tenant

-- name: leased_jobs
-- Jobs that sessions hold in the lanes taken from a tenant. All leases are read: there are no more than places of workers.
-- index: queue_leased.
-- postgres
WITH s AS MATERIALIZED (SELECT id, lane FROM queue WHERE place = 1 ORDER BY session)
SELECT s.id FROM s JOIN lane l ON l.id = s.lane WHERE l.tenant = '' AND l.queue = '' AND l.task = '' AND l.labels = :tenant LIMIT :limit
-- sqlite
SELECT q.id FROM queue AS q INDEXED BY queue_leased CROSS JOIN lane AS l ON l.id = q.lane
 WHERE q.place = 1 AND l.tenant = '' AND l.queue = '' AND l.task = '' AND l.labels = :tenant LIMIT :limit

-- name: timed_jobs
-- Among the next :examined rows of timer, in the order of their ids, jobs of the lanes taken from a tenant; the last row looked at, and how many were.
-- both
WITH s AS MATERIALIZED (SELECT id, lane FROM timer WHERE id > :after ORDER BY id LIMIT :examined)
SELECT o.id, (SELECT s.id FROM s ORDER BY s.id DESC LIMIT 1) AS last_id, (SELECT count(*) FROM s) AS examined
  FROM (SELECT 1 AS one) x LEFT JOIN (
       SELECT s.id FROM s JOIN lane l ON l.id = s.lane WHERE l.tenant = '' AND l.labels = :tenant ORDER BY s.id LIMIT :limit) o ON true

-- name: queued_jobs
-- The same among the rows of queue.
-- both
WITH s AS MATERIALIZED (SELECT id, lane FROM queue WHERE id > :after ORDER BY id LIMIT :examined)
SELECT o.id, (SELECT s.id FROM s ORDER BY s.id DESC LIMIT 1) AS last_id, (SELECT count(*) FROM s) AS examined
  FROM (SELECT 1 AS one) x LEFT JOIN (
       SELECT s.id FROM s JOIN lane l ON l.id = s.lane WHERE l.tenant = '' AND l.labels = :tenant ORDER BY s.id LIMIT :limit) o ON true

-- name: kept_jobs
-- The same among the rows of job of which nothing else is left: on PostgreSQL the row of a job goes later than its end, with its partition.
-- Only rows so old are looked at that retention may have removed their ends: an id is at most a week ahead of its time, and an erasure
-- takes less than a day.
-- postgres
WITH s AS MATERIALIZED (
    SELECT id, lane FROM job
     WHERE id > :after AND id < (
           SELECT CAST(rpad(lpad(to_hex(CAST(extract(epoch FROM to_date(min(right(c.relname, 8)), 'YYYYMMDD') + interval '8 days') * 1000 AS bigint)), 12, '0'),
                            32, '0') AS uuid)
             FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = to_regclass('windlass.done') AND NOT i.inhdetachpending)
     ORDER BY id LIMIT :examined)
SELECT o.id, (SELECT s.id FROM s ORDER BY s.id DESC LIMIT 1) AS last_id, (SELECT count(*) FROM s) AS examined
  FROM (SELECT 1 AS one) x LEFT JOIN (
       SELECT s.id FROM s JOIN lane l ON l.id = s.lane WHERE l.tenant = '' AND l.labels = :tenant ORDER BY s.id LIMIT :limit) o ON true
-- sqlite   (the row of a job goes with its end)
SELECT NULL AS id, NULL AS last_id, 0 AS examined WHERE coalesce(:tenant, :after, :limit, :examined) IS NOT NULL

-- name: next_lane
-- A lane taken from a tenant that may have history.
-- both
SELECT l.id AS number FROM lane l WHERE l.tenant = '' AND l.queue = '' AND l.task = '' AND l.labels = :tenant LIMIT 1

-- name: ended_jobs
-- Jobs of a lane that have ended, or of which only attempts are left.
-- index: done_finished, dead_finished, attempt_finished.
-- both
SELECT x.id FROM (
    SELECT d.id FROM (SELECT id FROM done WHERE lane = :lane ORDER BY finished_at LIMIT :limit) d
    UNION ALL
    SELECT e.id FROM (SELECT id FROM dead WHERE lane = :lane ORDER BY finished_at LIMIT :limit) e
    UNION ALL
    SELECT a.job_id FROM (SELECT job_id FROM attempt WHERE lane = :lane ORDER BY finished_at LIMIT :limit) a) x LIMIT :limit

-- name: leave_lane
-- Forget whose a lane was that is empty.
-- both
UPDATE lane SET labels = '' WHERE id = :lane AND tenant = ''

-- name: lock_words
-- Wait for those who are writing lines or checkpoints of jobs: the next statement sees what they wrote. Whoever writes later finds no lease.
-- locks: the locks of logs.sql and checkpoints.sql, by ascending id; before places, as in report.py.
-- postgres
SELECT pg_advisory_xact_lock(hashtextextended(CAST(x.id AS text), 7)), pg_advisory_xact_lock(hashtextextended(CAST(x.id AS text), 8))
  FROM unnest(CAST(:ids AS uuid[])) AS x(id) ORDER BY x.id
-- sqlite
SELECT i.value FROM json_each(:ids) AS i WHERE false

-- name: lock_places
-- Lock jobs that wait or run: whoever moves one has moved it before the next statement.
-- locks: queue rows by ascending id.
-- postgres
SELECT q.id FROM queue q WHERE q.id = ANY(CAST(:ids AS uuid[])) ORDER BY q.id FOR UPDATE
-- sqlite
SELECT q.id FROM json_each(:ids) AS i CROSS JOIN queue AS q ON q.id = i.value

-- name: remove_jobs
-- Remove all there is of jobs, wherever they lie; also what is noted of schedules under their ids.
-- returns: how many jobs there were.
-- postgres
WITH i AS MATERIALIZED (SELECT DISTINCT x.id FROM unnest(CAST(:ids AS uuid[])) AS x(id)),
q AS (DELETE FROM queue USING i WHERE queue.id = ANY(ARRAY[i.id])),
t AS (DELETE FROM timer USING i WHERE timer.id = ANY(ARRAY[i.id])),
d AS (DELETE FROM done USING i WHERE done.id = ANY(ARRAY[i.id])),
e AS (DELETE FROM dead USING i WHERE dead.id = ANY(ARRAY[i.id])),
j AS (DELETE FROM job USING i WHERE job.id = ANY(ARRAY[i.id]) RETURNING 1),
a AS (DELETE FROM attempt USING i WHERE attempt.job_id = ANY(ARRAY[i.id])),
v AS (DELETE FROM event USING i WHERE event.job_id = ANY(ARRAY[i.id])),
o AS (DELETE FROM log USING i WHERE log.job_id = ANY(ARRAY[i.id])),
c AS (DELETE FROM checkpoint USING i WHERE checkpoint.job_id = ANY(ARRAY[i.id])),
k AS (DELETE FROM dedup USING i WHERE dedup.job_id = ANY(ARRAY[i.id])),
m AS (DELETE FROM erased USING i WHERE erased.job_id = ANY(ARRAY[i.id])),
b AS (DELETE FROM outbox USING i WHERE outbox.id = ANY(ARRAY[i.id]))
SELECT count(*) AS removed FROM j
-- sqlite
DELETE FROM queue WHERE id IN (SELECT value FROM json_each(:ids));
DELETE FROM timer WHERE id IN (SELECT value FROM json_each(:ids));
DELETE FROM done WHERE id IN (SELECT value FROM json_each(:ids));
DELETE FROM dead WHERE id IN (SELECT value FROM json_each(:ids));
DELETE FROM attempt WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM event WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM log WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM checkpoint WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM dedup WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM erased WHERE job_id IN (SELECT value FROM json_each(:ids));
DELETE FROM outbox WHERE id IN (SELECT value FROM json_each(:ids));
DELETE FROM job WHERE id IN (SELECT value FROM json_each(:ids));
SELECT changes() AS removed

-- name: lock_schedules
-- Lock some schedules of a tenant.
-- locks: schedule rows by ascending id.  index: schedule_tenant.
-- both
SELECT id FROM schedule WHERE tenant = :tenant ORDER BY id LIMIT :limit FOR UPDATE

-- name: remove_runs
-- Remove what became of slots of schedules that are locked, up to :limit.
-- postgres
WITH r AS MATERIALIZED (SELECT schedule_id, slot_at FROM schedule_runs WHERE schedule_id = ANY(CAST(:ids AS uuid[])) LIMIT :limit),
gone AS (DELETE FROM schedule_runs USING r WHERE schedule_runs.schedule_id = r.schedule_id AND schedule_runs.slot_at = r.slot_at RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM schedule_runs WHERE rowid IN (
    SELECT r.rowid FROM json_each(:ids) AS i CROSS JOIN schedule_runs AS r ON r.schedule_id = i.value LIMIT :limit);
SELECT changes() AS removed

-- name: remove_outbox
-- Remove what applications said of a tenant and the relay has not done yet.
-- postgres
WITH o AS MATERIALIZED (SELECT id FROM outbox WHERE tenant = :tenant LIMIT :limit),
gone AS (DELETE FROM outbox USING o WHERE outbox.id = o.id RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE tenant = :tenant LIMIT :limit);
SELECT changes() AS removed

-- name: empty_audit
-- Take the texts out of what was done to a tenant. That it was done stays: when, from where, the action, the id of the key that did it, and
-- the id of the job or key it was done to.
-- index: audit_tenant.
-- postgres
WITH a AS MATERIALIZED (
    SELECT id FROM audit WHERE tenant = :tenant AND request_id IS DISTINCT FROM '' ORDER BY id LIMIT :limit),
gone AS (
    UPDATE audit SET request_id = '', reason = NULL, was = NULL, became = NULL,
           actor = CASE WHEN audit.actor LIKE '%)' THEN substr(audit.actor, length(audit.actor) - 12, 12) ELSE audit.actor END,
           subject = CASE WHEN audit.action LIKE 'job.%' OR audit.action LIKE 'key.%' THEN audit.subject ELSE '' END
      FROM a WHERE audit.id = a.id RETURNING 1)
SELECT count(*) AS removed FROM gone
-- sqlite
UPDATE audit SET request_id = '', reason = NULL, was = NULL, became = NULL,
       actor = CASE WHEN actor LIKE '%)' THEN substr(actor, length(actor) - 12, 12) ELSE actor END,
       subject = CASE WHEN action LIKE 'job.%' OR action LIKE 'key.%' THEN subject ELSE '' END
 WHERE id IN (SELECT id FROM audit WHERE tenant = :tenant AND request_id IS NOT '' ORDER BY id LIMIT :limit);
SELECT changes() AS removed

-- name: empty_done
-- Take the content out of a job of a tenant that has its end in done.
-- locks: done, then job.  plan: `lane + 0`, as in deadletters.sql.
-- postgres
WITH d AS (
    UPDATE done SET result = NULL, metrics = NULL, error_type = NULL, error = NULL, traceback = NULL, reason = :reason
      FROM lane l WHERE done.id = :id AND l.id = done.lane + 0 AND l.tenant = :tenant RETURNING done.id
)
UPDATE job SET payload = 'null', headers = NULL, tags = NULL, idempotency_key = NULL, unique_key = NULL
  FROM d WHERE job.id = :id RETURNING job.id
-- sqlite
UPDATE job SET payload = 'null', headers = NULL, tags = NULL, idempotency_key = NULL, unique_key = NULL
 WHERE id = :id AND EXISTS (SELECT 1 FROM done AS d CROSS JOIN lane AS l ON l.id = d.lane WHERE d.id = :id AND l.tenant = :tenant);
UPDATE done SET result = NULL, metrics = NULL, error_type = NULL, error = NULL, traceback = NULL, reason = :reason
 WHERE id = :id AND EXISTS (SELECT 1 FROM lane AS l WHERE l.id = done.lane AND l.tenant = :tenant) RETURNING id

-- name: empty_dead
-- Take the content out of a job of a tenant that has its end in dead.
-- locks: dead, then job.
-- postgres
WITH d AS (
    UPDATE dead SET result = NULL, metrics = NULL, error_type = NULL, error = NULL, traceback = NULL, reason = :reason
      FROM lane l WHERE dead.id = :id AND l.id = dead.lane + 0 AND l.tenant = :tenant RETURNING dead.id
)
UPDATE job SET payload = 'null', headers = NULL, tags = NULL, idempotency_key = NULL, unique_key = NULL
  FROM d WHERE job.id = :id RETURNING job.id
-- sqlite
UPDATE job SET payload = 'null', headers = NULL, tags = NULL, idempotency_key = NULL, unique_key = NULL
 WHERE id = :id AND EXISTS (SELECT 1 FROM dead AS d CROSS JOIN lane AS l ON l.id = d.lane WHERE d.id = :id AND l.tenant = :tenant);
UPDATE dead SET result = NULL, metrics = NULL, error_type = NULL, error = NULL, traceback = NULL, reason = :reason
 WHERE id = :id AND EXISTS (SELECT 1 FROM lane AS l WHERE l.id = dead.lane AND l.tenant = :tenant) RETURNING id

-- name: empty_attempts
-- Take the content out of the attempts and events of a job, and remove its log and its checkpoint. Its idempotency key goes when its time
-- is over: a submit that is said again must not bring the content back.
-- postgres
WITH a AS (UPDATE attempt SET result = NULL, metrics = NULL, error_type = NULL, error = NULL, traceback = NULL, reason = NULL WHERE job_id = :id),
v AS (UPDATE event SET reason = NULL WHERE job_id = :id),
o AS (DELETE FROM log WHERE job_id = :id)
DELETE FROM checkpoint WHERE job_id = :id
-- sqlite
UPDATE attempt SET result = NULL, metrics = NULL, error_type = NULL, error = NULL, traceback = NULL, reason = NULL WHERE job_id = :id;
UPDATE event SET reason = NULL WHERE job_id = :id;
DELETE FROM log WHERE job_id = :id;
DELETE FROM checkpoint WHERE job_id = :id

-- name: mark_erased
-- Note that the content of a job is gone; no row if that was noted before.
-- both
INSERT INTO erased (job_id, erased_at) VALUES (:id, :now) ON CONFLICT (job_id) DO NOTHING RETURNING erased_at

-- name: erased_among
-- Which of these jobs have no content any more.
-- hot: part of transactions that write.
-- both
SELECT job_id, erased_at FROM erased WHERE job_id = ANY(CAST(:ids AS uuid[]))
