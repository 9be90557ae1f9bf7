-- name: lock_leases
-- Lock leases that are held as named; wait for rivals, and test again what they left.
-- locks: queue rows by ascending id.
-- both
SELECT q.id FROM rows(:leases, id uuid, fence int, session uuid, worker text, tenant text) AS i
  JOIN queue q ON q.id = ANY(ARRAY[i.id]) LEFT JOIN session s ON s.id = ANY(ARRAY[q.session])
 WHERE q.fence = i.fence AND q.place + 0 = 1
   AND (i.session IS NULL OR q.session = i.session)
   AND (i.worker IS NULL OR s.worker = i.worker) AND (i.tenant IS NULL OR s.tenant = i.tenant)
 ORDER BY i.id FOR UPDATE OF q

-- name: lock_free_leases
-- Lock leases that are held as named, but for those that a rival has locked: it is about to end them.
-- locks: queue rows by ascending id, skipping locked ones.
-- both
SELECT q.id FROM rows(:leases, id uuid, fence int, session uuid, worker text, tenant text) AS i
  JOIN queue q ON q.id = ANY(ARRAY[i.id]) LEFT JOIN session s ON s.id = ANY(ARRAY[q.session])
 WHERE q.fence = i.fence AND q.place + 0 = 1
   AND (i.session IS NULL OR q.session = i.session)
   AND (i.worker IS NULL OR s.worker = i.worker) AND (i.tenant IS NULL OR s.tenant = i.tenant)
 ORDER BY i.id FOR UPDATE OF q SKIP LOCKED

-- name: read_leases
-- What a decision needs to know of leases locked before: read after the lock, so it is what stands there now.
-- both
SELECT q.id, q.fence, q.attempt, q.lost, q.releases, q.flags, q.lane, q.session, s.worker, s.tenant, s.heartbeat_at, s.bare, q.queued_at,
       q.claimed_at, q.started_at, j.run, j.max_attempts, j.max_lost, j.retry, j.run_at, :now AS now_at
  FROM rows(:ids, id uuid) AS i JOIN queue q ON q.id = ANY(ARRAY[i.id]) JOIN job j ON j.id = ANY(ARRAY[q.id]) LEFT JOIN session s ON s.id = ANY(ARRAY[q.session])
 WHERE q.place + 0 = 1

-- name: lease_to_ready
-- Give leases back to their lane, where they keep their rank; a paused one is held (3). Flag 8: it had started.
-- One that has a checkpoint is marked (flag 32), so that its next claim looks for it.
-- guard: job, fence, place.
-- postgres
UPDATE queue q SET place = CASE WHEN i.flags & 1 = 1 THEN 3 ELSE 0 END, session = NULL, claimed_at = NULL, started_at = NULL,
       deadline_at = NULL, queued_at = :now, late_ms = 0, attempt = i.attempt, lost = q.lost + i.lost, releases = q.releases + i.releases,
       flags = i.flags | CASE WHEN EXISTS (SELECT 1 FROM checkpoint c WHERE c.job_id = ANY(ARRAY[i.id]) AND c.value IS NOT NULL) THEN 32 ELSE 0 END,
       start_by = CASE WHEN i.flags & 8 = 8 THEN NULL ELSE q.start_by END
  FROM rows(:moves, id uuid, fence int, attempt smallint, lost smallint, releases smallint, flags smallint) AS i
 WHERE q.id = ANY(ARRAY[i.id]) AND q.fence = i.fence AND q.place + 0 = 1
RETURNING q.id, :now AS next_run_at, q.rank
-- sqlite
UPDATE queue SET place = CASE WHEN i.flags & 1 = 1 THEN 3 ELSE 0 END, session = NULL, claimed_at = NULL, started_at = NULL,
       deadline_at = NULL, queued_at = :now, late_ms = 0, attempt = i.attempt, lost = queue.lost + i.lost, releases = queue.releases + i.releases,
       flags = i.flags | CASE WHEN EXISTS (SELECT 1 FROM checkpoint AS c WHERE c.job_id = i.id AND c.value IS NOT NULL) THEN 32 ELSE 0 END,
       start_by = CASE WHEN i.flags & 8 = 8 THEN NULL ELSE queue.start_by END
  FROM rows(:moves) AS i
 WHERE queue.id = i.id AND queue.fence = i.fence AND queue.place = 1
RETURNING id, :now AS next_run_at, rank

-- name: lease_to_timer
-- Put leases off: until a time, or by a delay; both by the database's clock. Marked as above.
-- guard: job, fence, place.
-- postgres
WITH q AS (
    DELETE FROM queue
     USING rows(:moves, id uuid, fence int, attempt smallint, lost smallint, releases smallint, flags smallint, delay_ms bigint,
                until timestamptz, reason smallint) AS i
     WHERE queue.id = ANY(ARRAY[i.id]) AND queue.fence = i.fence AND queue.place + 0 = 1
    RETURNING queue.id, queue.lane, queue.fence, queue.lost, queue.releases, i.attempt, i.lost AS more, i.releases AS back,
              i.flags, i.delay_ms, i.until, i.reason, CASE WHEN i.flags & 16 = 16 THEN queue.session END AS session
)
INSERT INTO timer (id, due_at, lane, attempt, fence, lost, releases, flags, reason, session)
SELECT q.id, greatest(:now, coalesce(q.until, :now + q.delay_ms * interval '1 millisecond')), q.lane, q.attempt, q.fence, q.lost + q.more, q.releases + q.back,
       q.flags | CASE WHEN EXISTS (SELECT 1 FROM checkpoint c WHERE c.job_id = ANY(ARRAY[q.id]) AND c.value IS NOT NULL) THEN 32 ELSE 0 END, q.reason, q.session
  FROM q RETURNING id, due_at AS next_run_at, CAST(NULL AS bigint) AS rank
-- sqlite
INSERT INTO timer (id, due_at, lane, attempt, fence, lost, releases, flags, reason, session)
SELECT q.id, max(:now, coalesce(i.until, :now + i.delay_ms * 1000)), q.lane, i.attempt, q.fence, q.lost + i.lost, q.releases + i.releases,
       i.flags | CASE WHEN EXISTS (SELECT 1 FROM checkpoint AS c WHERE c.job_id = i.id AND c.value IS NOT NULL) THEN 32 ELSE 0 END, i.reason,
       CASE WHEN i.flags & 16 = 16 THEN q.session END
  FROM rows(:moves) AS i CROSS JOIN queue AS q ON q.id = i.id WHERE q.fence = i.fence AND q.place = 1;
DELETE FROM queue WHERE id IN (
    SELECT q.id FROM rows(:moves) AS i CROSS JOIN queue AS q ON q.id = i.id WHERE q.fence = i.fence AND q.place = 1);
SELECT t.id, t.due_at AS next_run_at, NULL AS rank FROM rows(:moves) AS i CROSS JOIN timer AS t ON t.id = i.id WHERE t.fence = i.fence

-- name: lease_to_end
-- End leases for good: a job that is dead lies with the dead letters until retried or purged, others are history.
-- A claim or a start may have committed after this transaction began: the end is not before it, as in claim.sql.
-- guard: job, fence, place (1 leased).  The unique key of a job that ends is free again (flag 4).
-- postgres
WITH q AS (
    DELETE FROM queue
     USING rows(:moves, id uuid, fence int, attempt smallint, lost smallint, outcome smallint, result text, metrics text, error_type text,
                error text, traceback text, reason text, worker text, duration_ms bigint, started smallint, dead smallint, held smallint) AS i
     WHERE queue.id = ANY(ARRAY[i.id]) AND queue.fence = i.fence AND queue.place + 0 = 1
    RETURNING queue.*, i.attempt AS kept, queue.lost + i.lost AS losses, i.outcome, i.result, i.metrics, i.error_type, i.error, i.traceback,
              i.reason, i.worker, i.dead, i.held,
              CASE WHEN i.started = 1 THEN coalesce(queue.started_at, greatest(queue.claimed_at, :now - i.duration_ms * interval '1 millisecond')) END AS began_at
),
k AS MATERIALIZED (
    SELECT d.scope, d.key FROM q JOIN dedup d ON d.job_id = ANY(ARRAY[q.id]) AND d.expires_at IS NULL
     WHERE q.flags & 4 = 4 ORDER BY d.scope || '', d.key FOR UPDATE OF d
),
u AS (DELETE FROM dedup USING k WHERE dedup.scope = ANY(ARRAY[k.scope]) AND dedup.key = ANY(ARRAY[k.key])),
d AS (
    INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, result, metrics, error_type, error, traceback, reason, worker,
                      session, queued_at, claimed_at, started_at, finished_at)
    SELECT q.id, q.lane, q.kept, q.fence, q.losses, q.releases, q.outcome, q.result, q.metrics, q.error_type, q.error, q.traceback, q.reason, q.worker,
           q.session, q.queued_at, q.claimed_at, q.began_at,
           greatest(:now, least(greatest(q.claimed_at, q.began_at), :now + interval '1 minute')) FROM q WHERE q.dead = 0
),
e AS (
    INSERT INTO dead (id, lane, attempt, fence, lost, releases, outcome, result, metrics, error_type, error, traceback, reason, worker,
                      session, queued_at, claimed_at, started_at, finished_at, held)
    SELECT q.id, q.lane, q.kept, q.fence, q.losses, q.releases, q.outcome, q.result, q.metrics, q.error_type, q.error, q.traceback, q.reason, q.worker,
           q.session, q.queued_at, q.claimed_at, q.began_at,
           greatest(:now, least(greatest(q.claimed_at, q.began_at), :now + interval '1 minute')), q.held FROM q WHERE q.dead = 1
)
SELECT q.id, q.flags, CAST(NULL AS timestamptz) AS next_run_at, CAST(NULL AS bigint) AS rank FROM q
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS end_pick (id, flags, began_at);
DELETE FROM temp.end_pick;
INSERT INTO temp.end_pick
SELECT q.id, q.flags,
       CASE WHEN i.started = 1 THEN coalesce(q.started_at, max(q.claimed_at, :now - coalesce(i.duration_ms * 1000, :now - q.claimed_at))) END
  FROM rows(:moves) AS i CROSS JOIN queue AS q ON q.id = i.id WHERE q.fence = i.fence AND q.place = 1;
INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, result, metrics, error_type, error, traceback, reason, worker,
                  session, queued_at, claimed_at, started_at, finished_at)
SELECT q.id, q.lane, i.attempt, q.fence, q.lost + i.lost, q.releases, i.outcome, i.result, i.metrics, i.error_type, i.error, i.traceback, i.reason, i.worker,
       q.session, q.queued_at, q.claimed_at, p.began_at, :now
  FROM rows(:moves) AS i CROSS JOIN temp.end_pick AS p ON p.id = i.id CROSS JOIN queue AS q ON q.id = p.id WHERE i.dead = 0;
INSERT INTO dead (id, lane, attempt, fence, lost, releases, outcome, result, metrics, error_type, error, traceback, reason, worker,
                  session, queued_at, claimed_at, started_at, finished_at, held)
SELECT q.id, q.lane, i.attempt, q.fence, q.lost + i.lost, q.releases, i.outcome, i.result, i.metrics, i.error_type, i.error, i.traceback, i.reason, i.worker,
       q.session, q.queued_at, q.claimed_at, p.began_at, :now, i.held
  FROM rows(:moves) AS i CROSS JOIN temp.end_pick AS p ON p.id = i.id CROSS JOIN queue AS q ON q.id = p.id WHERE i.dead = 1;
DELETE FROM dedup WHERE expires_at IS NULL AND job_id IN (SELECT id FROM temp.end_pick WHERE flags & 4 = 4);
DELETE FROM queue WHERE id IN (SELECT id FROM temp.end_pick) RETURNING id, flags, NULL AS next_run_at, NULL AS rank

-- name: record_attempts
-- Keep what an attempt left whose job goes on.
-- postgres
INSERT INTO attempt (job_id, run, attempt, fence, lane, outcome, metrics, error_type, error, traceback, reason, worker, session,
                     queued_at, claimed_at, started_at, finished_at, next_run_at)
SELECT i.job_id, i.run, i.attempt, i.fence, i.lane, i.outcome, i.metrics, i.error_type, i.error, i.traceback, i.reason, i.worker,
       i.session, i.queued_at, i.claimed_at,
       CASE WHEN i.started = 1 THEN coalesce(i.started_at, greatest(i.claimed_at, :now - i.duration_ms * interval '1 millisecond')) END,
       greatest(:now, least(greatest(i.claimed_at, i.started_at), :now + interval '1 minute')), i.next_run_at
  FROM rows(:attempts, job_id uuid, run smallint, attempt smallint, fence int, lane int, outcome smallint, metrics text,
            error_type text, error text, traceback text, reason text, worker text, session uuid, queued_at timestamptz, claimed_at timestamptz,
            started_at timestamptz, duration_ms bigint, started smallint, next_run_at timestamptz) AS i
-- sqlite
INSERT INTO attempt (job_id, run, attempt, fence, lane, outcome, metrics, error_type, error, traceback, reason, worker, session,
                     queued_at, claimed_at, started_at, finished_at, next_run_at)
SELECT i.job_id, i.run, i.attempt, i.fence, i.lane, i.outcome, i.metrics, i.error_type, i.error, i.traceback, i.reason, i.worker,
       i.session, i.queued_at, i.claimed_at,
       CASE WHEN i.started = 1 THEN coalesce(i.started_at, max(i.claimed_at, :now - coalesce(i.duration_ms * 1000, :now - i.claimed_at))) END, :now, i.next_run_at
  FROM rows(:attempts) AS i
