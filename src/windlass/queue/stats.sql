-- name: rolled
-- The present instant, and until when minutes are rolled up.
-- both
SELECT :now AS now_at, (SELECT beat_at FROM pulse WHERE name = 'stats') AS rolled_at

-- name: ended
-- What ended from :since until :until, by minute, tenant and queue, of one tenant or of all. Also what has been retried by hand since.
-- wait_ms: from when a job could be claimed to its claim. run_ms: from its start to its end.
-- index: done_finished, dead_finished, attempt_finished, lane by lane.
-- postgres
SELECT x.minute_at, x.tenant, x.queue, count(*) FILTER (WHERE x.outcome = 0) AS succeeded,
       count(*) FILTER (WHERE x.outcome IN (1, 2)) AS failed, count(*) FILTER (WHERE x.outcome = 3) AS lost, sum(x.died) AS dead,
       count(*) FILTER (WHERE x.outcome = 4) AS cancelled, count(*) FILTER (WHERE x.outcome = 7) AS expired, count(x.claimed_at) AS claimed,
       CAST(coalesce(extract(epoch FROM sum(greatest(x.claimed_at - x.queued_at, interval '0'))) * 1000, 0) AS bigint) AS wait_ms,
       CAST(coalesce(extract(epoch FROM sum(x.finished_at - x.started_at)) * 1000, 0) AS bigint) AS run_ms
  FROM (
    SELECT date_trunc('minute', e.finished_at, 'UTC') AS minute_at, l.tenant, l.queue, e.*
      FROM lane l CROSS JOIN LATERAL (
           SELECT d.outcome, 0 AS died, d.queued_at, d.claimed_at, d.started_at, d.finished_at
             FROM done d WHERE d.lane = l.id AND d.finished_at >= :since AND d.finished_at < :until
            UNION ALL
           SELECT d.outcome, 1, d.queued_at, d.claimed_at, d.started_at, d.finished_at
             FROM dead d WHERE d.lane = l.id AND d.finished_at >= :since AND d.finished_at < :until
            UNION ALL
           SELECT a.outcome, CASE WHEN a.next_run_at IS NULL AND a.outcome IN (1, 2, 3) THEN 1 ELSE 0 END,
                  a.queued_at, a.claimed_at, a.started_at, a.finished_at
             FROM attempt a WHERE a.lane = l.id AND a.finished_at >= :since AND a.finished_at < :until) e
     WHERE CAST(:tenant AS text) IS NULL OR l.tenant = :tenant
  ) x GROUP BY x.minute_at, x.tenant, x.queue
-- sqlite
SELECT e.finished_at / 60000000 * 60000000 AS minute_at, e.tenant, e.queue, count(*) FILTER (WHERE e.outcome = 0) AS succeeded,
       count(*) FILTER (WHERE e.outcome IN (1, 2)) AS failed, count(*) FILTER (WHERE e.outcome = 3) AS lost, sum(e.died) AS dead,
       count(*) FILTER (WHERE e.outcome = 4) AS cancelled, count(*) FILTER (WHERE e.outcome = 7) AS expired, count(e.claimed_at) AS claimed,
       coalesce(sum(max(e.claimed_at - e.queued_at, 0)), 0) / 1000 AS wait_ms, coalesce(sum(e.finished_at - e.started_at), 0) / 1000 AS run_ms
  FROM (
    SELECT l.tenant, l.queue, d.outcome, 0 AS died, d.queued_at, d.claimed_at, d.started_at, d.finished_at
      FROM lane AS l CROSS JOIN done AS d INDEXED BY done_finished ON d.lane = l.id AND d.finished_at >= :since AND d.finished_at < :until
    UNION ALL
    SELECT l.tenant, l.queue, d.outcome, 1, d.queued_at, d.claimed_at, d.started_at, d.finished_at
      FROM lane AS l CROSS JOIN dead AS d INDEXED BY dead_finished ON d.lane = l.id AND d.finished_at >= :since AND d.finished_at < :until
    UNION ALL
    SELECT l.tenant, l.queue, a.outcome, CASE WHEN a.next_run_at IS NULL AND a.outcome IN (1, 2, 3) THEN 1 ELSE 0 END,
           a.queued_at, a.claimed_at, a.started_at, a.finished_at
      FROM lane AS l CROSS JOIN attempt AS a INDEXED BY attempt_finished ON a.lane = l.id AND a.finished_at >= :since AND a.finished_at < :until) AS e
 WHERE :tenant IS NULL OR e.tenant = :tenant GROUP BY 1, e.tenant, e.queue

-- name: keep
-- Keep the counts of minutes. They only grow, so that of two servers, or of two looks, the one that saw more is right.
-- locks: stat rows by minute, tenant and queue.
-- both
INSERT INTO stat AS s (minute_at, tenant, queue, succeeded, failed, lost, dead, cancelled, expired, claimed, wait_ms, run_ms)
SELECT i.* FROM rows(:minutes, minute_at timestamptz, tenant text, queue text, succeeded int, failed int, lost int, dead int,
                     cancelled int, expired int, claimed int, wait_ms bigint, run_ms bigint) AS i
 ORDER BY i.minute_at, i.tenant, i.queue
ON CONFLICT (minute_at, tenant, queue) DO UPDATE SET
   succeeded = greatest(s.succeeded, excluded.succeeded), failed = greatest(s.failed, excluded.failed), lost = greatest(s.lost, excluded.lost),
   dead = greatest(s.dead, excluded.dead), cancelled = greatest(s.cancelled, excluded.cancelled), expired = greatest(s.expired, excluded.expired),
   claimed = greatest(s.claimed, excluded.claimed), wait_ms = greatest(s.wait_ms, excluded.wait_ms), run_ms = greatest(s.run_ms, excluded.run_ms)

-- name: mark_rolled
-- Note until when minutes are rolled up; never back.
-- both
INSERT INTO pulse AS p (name, beat_at) VALUES ('stats', :until)
ON CONFLICT (name) DO UPDATE SET beat_at = greatest(p.beat_at, excluded.beat_at)

-- name: sum_minutes
-- What was counted in the minutes from :since until :until, of one tenant or of all.
-- postgres
SELECT CAST(coalesce(sum(succeeded), 0) AS bigint) AS succeeded, CAST(coalesce(sum(dead), 0) AS bigint) AS dead,
       CAST(coalesce(sum(claimed), 0) AS bigint) AS claimed, CAST(coalesce(sum(wait_ms), 0) AS bigint) AS wait_ms
  FROM stat WHERE minute_at >= :since AND minute_at < :until AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
-- sqlite
SELECT coalesce(sum(succeeded), 0) AS succeeded, coalesce(sum(dead), 0) AS dead, coalesce(sum(claimed), 0) AS claimed,
       coalesce(sum(wait_ms), 0) AS wait_ms
  FROM stat WHERE minute_at >= :since AND minute_at < :until AND (:tenant IS NULL OR tenant = :tenant)

-- name: mean_run
-- How many attempts ended in the minutes since so long ago that are counted, of all tenants, and how long they ran together.
-- postgres
SELECT CAST(coalesce(sum(succeeded + failed), 0) AS bigint) AS ended, CAST(coalesce(sum(run_ms), 0) AS bigint) AS run_ms
  FROM stat WHERE minute_at >= :now - CAST(:span_ms AS bigint) * interval '1 millisecond'
-- sqlite
SELECT coalesce(sum(succeeded + failed), 0) AS ended, coalesce(sum(run_ms), 0) AS run_ms
  FROM stat WHERE minute_at >= :now - :span_ms * 1000

-- name: series
-- The minutes from :since until :until of one queue of a tenant or of all its queues, oldest first.
-- both
SELECT minute_at, queue, succeeded, failed, lost, dead, cancelled, expired, claimed, wait_ms, run_ms
  FROM stat WHERE minute_at >= :since AND minute_at < :until AND tenant = :tenant AND (CAST(:queue AS text) IS NULL OR queue = :queue)
 ORDER BY minute_at, queue LIMIT :limit

-- name: leased_waits
-- How many of the leases were claimed since an instant, and how long their jobs had waited until then; up to :most are looked at.
-- index: queue_leased, by its order.
-- postgres
SELECT count(*) AS claimed, CAST(coalesce(extract(epoch FROM sum(greatest(q.claimed_at - q.queued_at, interval '0'))) * 1000, 0) AS bigint) AS wait_ms
  FROM (SELECT lane, queued_at, claimed_at FROM queue WHERE place = 1 ORDER BY session LIMIT :most) q JOIN lane l ON l.id = q.lane
 WHERE q.claimed_at >= :since AND (CAST(:tenant AS text) IS NULL OR l.tenant = :tenant)
-- sqlite
SELECT count(*) AS claimed, coalesce(sum(max(q.claimed_at - q.queued_at, 0)), 0) / 1000 AS wait_ms
  FROM (SELECT lane, queued_at, claimed_at FROM queue WHERE place = 1 ORDER BY session LIMIT :most) AS q CROSS JOIN lane AS l ON l.id = q.lane
 WHERE q.claimed_at >= :since AND (:tenant IS NULL OR l.tenant = :tenant)

-- name: active_workers
-- How many workers are registered, do not drain and were heard within :heard_ms.
-- index: session_live.
-- both
SELECT count(*) AS workers FROM (
    SELECT DISTINCT tenant, worker FROM session
     WHERE state = 0 AND bare = 0 AND draining = 0 AND heartbeat_at > :now - CAST(:heard_ms AS bigint) * interval '1 millisecond' AND expires_at > :now
       AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)) w

-- name: dead_rows
-- Row versions that a vacuum has yet to remove, of the tables that change most; SQLite has none.
-- postgres
SELECT relname AS name, n_dead_tup AS dead_rows FROM pg_catalog.pg_stat_user_tables
 WHERE schemaname = 'windlass' AND relname IN ('queue', 'timer', 'session', 'lane', 'dedup') ORDER BY relname
-- sqlite
SELECT name, 0 AS dead_rows FROM sqlite_master WHERE false

-- name: oldest_snapshot
-- Who keeps vacuum from removing the most: the oldest snapshot that any other connection of this database holds.
-- A vacuum's own snapshot hinders no vacuum.
-- postgres
SELECT a.pid, a.application_name, a.state, CAST(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.query_start)) AS double precision) AS age_s,
       a.query_start AS query_started_at
  FROM pg_catalog.pg_stat_activity a
 WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.datname = current_database()
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_progress_vacuum v WHERE v.pid = a.pid)
 ORDER BY age(a.backend_xmin) DESC, a.xact_start LIMIT 1
-- sqlite
SELECT 0 AS pid, '' AS application_name, '' AS state, 0.0 AS age_s, 0 AS query_started_at WHERE false

-- name: file
-- The path of the SQLite file; PostgreSQL has many.
-- postgres
SELECT '' AS file WHERE false
-- sqlite
SELECT file FROM pragma_database_list WHERE name = 'main'
