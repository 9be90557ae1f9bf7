-- name: lock_places
-- Lock the places of a tenant's jobs in queue, leased or not: what follows in the transaction waits for nobody there.
-- locks: queue rows by ascending id.
-- postgres
SELECT q.id FROM queue q JOIN lane l ON l.id = q.lane
 WHERE q.id = ANY(CAST(:ids AS uuid[])) AND l.tenant = :tenant ORDER BY q.id FOR UPDATE OF q
-- sqlite
SELECT q.id FROM json_each(:ids) AS i CROSS JOIN queue AS q ON q.id = i.value CROSS JOIN lane AS l ON l.id = q.lane
 WHERE l.tenant = :tenant ORDER BY q.id

-- name: cancel_leased
-- Ask the workers of leased jobs to stop (flag 2); after the patience the lease is revoked.
-- postgres
UPDATE queue q SET flags = q.flags | 2, deadline_at = :now + CAST(:patience_ms AS bigint) * interval '1 millisecond'
  FROM lane l
 WHERE q.id = ANY(CAST(:ids AS uuid[])) AND l.id = q.lane + 0 AND l.tenant = :tenant AND q.place + 0 = 1 AND q.flags & 2 = 0
RETURNING q.id
-- sqlite
UPDATE queue SET flags = flags | 2, deadline_at = :now + :patience_ms * 1000
 WHERE id IN (SELECT value FROM json_each(:ids)) AND place = 1 AND flags & 2 = 0
   AND lane IN (SELECT l.id FROM lane AS l WHERE l.tenant = :tenant)
RETURNING id

-- name: cancel_queued
-- End jobs that wait in queue: outcome 4, cancelled. One with a session is leased, or finished and waits for its relay.
-- locks: queue rows by ascending id.
-- postgres
WITH l AS MATERIALIZED (
    SELECT q.id FROM queue q JOIN lane n ON n.id = q.lane
     WHERE q.id = ANY(CAST(:ids AS uuid[])) AND n.tenant = :tenant AND q.session IS NULL ORDER BY q.id FOR UPDATE OF q
),
q AS (DELETE FROM queue USING l WHERE queue.id = ANY(ARRAY[l.id]) AND queue.session IS NULL RETURNING queue.*),
k AS MATERIALIZED (
    SELECT d.scope, d.key FROM q JOIN dedup d ON d.job_id = ANY(ARRAY[q.id]) AND d.expires_at IS NULL
     WHERE q.flags & 4 = 4 ORDER BY d.scope || '', d.key FOR UPDATE OF d
),
u AS (DELETE FROM dedup USING k WHERE dedup.scope = ANY(ARRAY[k.scope]) AND dedup.key = ANY(ARRAY[k.key])),
d AS (
    INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, reason, queued_at, finished_at)
    SELECT q.id, q.lane, q.attempt, q.fence, q.lost, q.releases, 4, :reason, CASE WHEN q.pending = 0 THEN q.queued_at END,
           greatest(:now, least(q.queued_at, :now + interval '1 minute')) FROM q
)
SELECT q.id, q.flags FROM q
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS cancel_pick (id, flags);
DELETE FROM temp.cancel_pick;
INSERT INTO temp.cancel_pick
SELECT q.id, q.flags FROM json_each(:ids) AS i CROSS JOIN queue AS q ON q.id = i.value CROSS JOIN lane AS n ON n.id = q.lane
 WHERE n.tenant = :tenant AND q.session IS NULL;
INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, reason, queued_at, finished_at)
SELECT q.id, q.lane, q.attempt, q.fence, q.lost, q.releases, 4, :reason, CASE WHEN q.pending = 0 THEN q.queued_at END, :now
  FROM temp.cancel_pick AS p CROSS JOIN queue AS q ON q.id = p.id;
DELETE FROM dedup WHERE expires_at IS NULL AND job_id IN (SELECT id FROM temp.cancel_pick WHERE flags & 4 = 4);
DELETE FROM queue WHERE id IN (SELECT id FROM temp.cancel_pick) RETURNING id, flags

-- name: cancel_timed
-- End jobs that wait in timer: outcome 4, cancelled.
-- locks: timer rows by ascending id.
-- postgres
WITH l AS MATERIALIZED (
    SELECT t.id FROM timer t JOIN lane n ON n.id = t.lane
     WHERE t.id = ANY(CAST(:ids AS uuid[])) AND n.tenant = :tenant ORDER BY t.id FOR UPDATE OF t
),
t AS (DELETE FROM timer USING l WHERE timer.id = ANY(ARRAY[l.id]) RETURNING timer.*),
k AS MATERIALIZED (
    SELECT d.scope, d.key FROM t JOIN dedup d ON d.job_id = ANY(ARRAY[t.id]) AND d.expires_at IS NULL
     WHERE t.flags & 4 = 4 ORDER BY d.scope || '', d.key FOR UPDATE OF d
),
u AS (DELETE FROM dedup USING k WHERE dedup.scope = ANY(ARRAY[k.scope]) AND dedup.key = ANY(ARRAY[k.key])),
d AS (
    INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, reason, finished_at)
    SELECT t.id, t.lane, t.attempt, t.fence, t.lost, t.releases, 4, :reason, greatest(:now, least(j.created_at, :now + interval '1 minute'))
      FROM t JOIN job j ON j.id = ANY(ARRAY[t.id])
)
SELECT t.id, t.flags FROM t
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS cancel_pick (id, flags);
DELETE FROM temp.cancel_pick;
INSERT INTO temp.cancel_pick
SELECT t.id, t.flags FROM json_each(:ids) AS i CROSS JOIN timer AS t ON t.id = i.value CROSS JOIN lane AS n ON n.id = t.lane
 WHERE n.tenant = :tenant;
INSERT INTO done (id, lane, attempt, fence, lost, releases, outcome, reason, finished_at)
SELECT t.id, t.lane, t.attempt, t.fence, t.lost, t.releases, 4, :reason, :now
  FROM temp.cancel_pick AS p CROSS JOIN timer AS t ON t.id = p.id;
DELETE FROM dedup WHERE expires_at IS NULL AND job_id IN (SELECT id FROM temp.cancel_pick WHERE flags & 4 = 4);
DELETE FROM timer WHERE id IN (SELECT id FROM temp.cancel_pick) RETURNING id, flags

-- name: pause_queued
-- Mark a job in queue as paused (flag 1); one that is not leased is held (3).
-- both
UPDATE queue SET flags = flags | 1, place = CASE WHEN place = 1 THEN 1 ELSE 3 END
 WHERE id = :id AND flags & 1 = 0 AND lane IN (SELECT l.id FROM lane AS l WHERE l.tenant = :tenant)
RETURNING id

-- name: pause_timed
-- Mark a job in timer as paused; promotion will hold it.
-- both
UPDATE timer SET flags = flags | 1 WHERE id = :id AND flags & 1 = 0 AND lane IN (SELECT l.id FROM lane AS l WHERE l.tenant = :tenant)
RETURNING id

-- name: resume_queued
-- Let a held job stand where it belongs: blocked (2) while parents are open, else ready; a finished one stays held for its relay.
-- both
UPDATE queue SET flags = flags - 1, place = CASE WHEN place <> 3 OR session IS NOT NULL THEN place WHEN pending > 0 THEN 2 ELSE 0 END
 WHERE id = :id AND flags & 1 = 1 AND lane IN (SELECT l.id FROM lane AS l WHERE l.tenant = :tenant)
RETURNING id

-- name: resume_timed
-- Unmark a paused timer.
-- both
UPDATE timer SET flags = flags - 1 WHERE id = :id AND flags & 1 = 1 AND lane IN (SELECT l.id FROM lane AS l WHERE l.tenant = :tenant)
RETURNING id

-- name: pause_lanes
-- Set the pause bit (1 queue, 2 tenant) of all lanes of a queue, or with an empty queue of the tenant.
-- both
UPDATE lane SET paused = paused | CAST(:bit AS smallint)
 WHERE tenant = :tenant AND (CAST(:queue AS text) = '' OR queue = CAST(:queue AS text)) AND paused & CAST(:bit AS smallint) = 0

-- name: resume_lanes
-- Clear the pause bit of all lanes of a queue or tenant.
-- both
UPDATE lane SET paused = paused & ~CAST(:bit AS smallint)
 WHERE tenant = :tenant AND (CAST(:queue AS text) = '' OR queue = CAST(:queue AS text)) AND paused & CAST(:bit AS smallint) <> 0

-- name: keep_pause
-- Remember who paused what, why, since when and until when; a second pause keeps the first one's time.
-- both
INSERT INTO pause (kind, tenant, name, reason, actor, paused_at, resume_at) VALUES (:kind, :tenant, :name, :reason, :actor, :now, :resume_at)
ON CONFLICT (kind, tenant, name) DO UPDATE SET reason = excluded.reason, actor = excluded.actor, resume_at = excluded.resume_at

-- name: drop_pause
-- Forget a pause that is over.
-- both
DELETE FROM pause WHERE kind = :kind AND tenant = :tenant AND name = :name RETURNING name

-- name: drop_pause_over
-- Forget a pause if its end has come.
-- both
DELETE FROM pause WHERE kind = :kind AND tenant = :tenant AND name = :name AND resume_at <= :now RETURNING name

-- name: pauses_over
-- Pauses whose end has come, but for those of schedules (scheduledits.py).
-- index: pause_over.
-- both
SELECT kind, tenant, name FROM pause WHERE resume_at <= :now AND kind <> 'schedule' ORDER BY kind, tenant, name

-- name: note
-- Keep what happened to jobs that no column tells.
-- both
INSERT INTO event (job_id, happened_at, kind, actor, reason)
SELECT i.job_id, :now, i.kind, i.actor, i.reason FROM rows(:events, job_id uuid, kind text, actor text, reason text) AS i

-- name: states
-- The states of a tenant's jobs.
-- plan: the inner limit keeps the tenant out of the search, or it would begin with all jobs of its lanes.
-- postgres
SELECT i.id, x.state, x.paused
  FROM unnest(CAST(:ids AS uuid[])) AS i (id)
 CROSS JOIN LATERAL (SELECT j.state, j.paused, j.tenant FROM jobs j WHERE j.id = i.id LIMIT 1) x WHERE x.tenant = :tenant
-- sqlite
SELECT id, state, paused FROM jobs WHERE id IN (SELECT value FROM json_each(:ids)) AND tenant = :tenant

-- name: finishing
-- Jobs of a tenant whose task has finished them in a transaction of its own, and whose relay is still to come.
-- postgres
SELECT q.id FROM queue q JOIN lane l ON l.id = q.lane
 WHERE q.id = ANY(CAST(:ids AS uuid[])) AND q.place + 0 = 3 AND q.session IS NOT NULL AND l.tenant = :tenant
-- sqlite
SELECT q.id FROM json_each(:ids) AS i CROSS JOIN queue AS q ON q.id = i.value CROSS JOIN lane AS l ON l.id = q.lane
 WHERE q.place = 3 AND q.session IS NOT NULL AND l.tenant = :tenant

-- name: find_waiting
-- The lane of a job that waits.
-- both
SELECT p.lane, l.queue, l.task, l.labels, l.key
  FROM (SELECT id, lane FROM queue WHERE id = :id AND session IS NULL UNION ALL SELECT id, lane FROM timer WHERE id = :id) p
  JOIN lane l ON l.id = p.lane WHERE l.tenant = :tenant

-- name: find_leased
-- Whether a job is leased.
-- both
SELECT q.id FROM queue q JOIN lane l ON l.id = q.lane WHERE q.id = :id AND q.place + 0 = 1 AND l.tenant = :tenant

-- name: lock_queued
-- Lock the place of a job that waits in queue.
-- locks: queue.
-- both
SELECT lane, place, attempt, fence, lost, releases, flags, pending, queued_at, late_ms, 0 AS reason, CAST(NULL AS timestamptz) AS due_at
  FROM queue WHERE id = :id AND session IS NULL FOR UPDATE

-- name: lock_timed
-- Lock the place of a job that waits in timer.
-- locks: timer.
-- both
SELECT lane, 0 AS place, attempt, fence, lost, releases, flags, 0 AS pending, CAST(NULL AS timestamptz) AS queued_at, 0 AS late_ms, reason, due_at
  FROM timer WHERE id = :id FOR UPDATE

-- name: ready_since
-- The millisecond since which a job in queue is ready, as its rank tells: promoted, given back or retried, it is not the
-- nominal time. Nothing of a fifo queue, whose ranks do not tell; between creation and now, also where the credit was changed.
-- postgres
SELECT least(greatest(q.rank + j.priority * l.credit_ms, CAST(floor(extract(epoch FROM j.created_at) * 1000) AS bigint)),
             CAST(floor(extract(epoch FROM :now) * 1000) AS bigint)) AS ready_ms
  FROM queue q JOIN job j ON j.id = ANY(ARRAY[q.id]) JOIN lane l ON l.id = q.lane WHERE q.id = :id AND l.fifo = 0
-- sqlite
SELECT min(max(q.rank + j.priority * l.credit_ms, j.created_at / 1000), :now / 1000) AS ready_ms
  FROM queue AS q JOIN job AS j ON j.id = q.id JOIN lane AS l ON l.id = q.lane WHERE q.id = :id AND l.fifo = 0

-- name: change_job
-- Change what was asked for of a job that waits: lane, priority, nominal time; what somebody names is no default any more.
-- both
UPDATE job SET lane = :lane, priority = coalesce(:priority, priority), run_at = coalesce(:run_at, run_at), defaults = defaults & CAST(:kept AS int)
 WHERE id = :id

-- name: drop_place
-- Remove the place of a job that is locked, to give it another in the same transaction.
-- postgres
WITH q AS (DELETE FROM queue WHERE id = :id AND session IS NULL) DELETE FROM timer WHERE id = :id
-- sqlite
DELETE FROM queue WHERE id = :id AND session IS NULL;
DELETE FROM timer WHERE id = :id

-- name: place
-- Give a job its place by its new lane, priority and time: timer when due later, else queue. A paused one is held (flag 1),
-- a blocked one (2) stays so. Without a due time it stays in queue, ranked by the time since which it is ready, else by its
-- nominal one (which may lie ahead after a retry by hand); a time asked for that is past means now, so that nobody jumps the
-- queue by it.
-- returns: whether it lies in timer.
-- postgres
WITH i AS (
    SELECT j.id, j.start_by, CAST(:lane AS int) AS lane, coalesce(CAST(:due_at AS timestamptz), least(j.run_at, :now)) AS due_at,
           CAST(:place AS smallint) AS place, CAST(:flags AS smallint) AS flags, CAST(:pending AS int) AS pending,
           CASE WHEN l.fifo = 1 THEN CAST(floor(extract(epoch FROM j.created_at) * 1000) AS bigint)
                WHEN CAST(:ready_ms AS bigint) IS NOT NULL THEN CAST(:ready_ms AS bigint) - j.priority * l.credit_ms
                ELSE CAST(floor(extract(epoch FROM CASE WHEN CAST(:asked AS int) = 1 THEN greatest(CAST(:due_at AS timestamptz), :now)
                                                        ELSE greatest(coalesce(CAST(:due_at AS timestamptz), least(j.run_at, :now)), j.created_at) END) * 1000) AS bigint)
                     - j.priority * l.credit_ms END AS rank
      FROM job j JOIN lane l ON l.id = CAST(:lane AS int) WHERE j.id = :id
),
q AS (
    INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, late_ms, flags, pending, start_by)
    SELECT i.id, i.lane, i.rank, CASE WHEN i.flags & 1 = 1 THEN 3 ELSE i.place END, :attempt, :fence, :lost, :releases,
           coalesce(CAST(:queued_at AS timestamptz), :now),
           CASE WHEN CAST(:asked AS int) = 0 THEN CAST(:late_ms AS int)
                ELSE CAST(least(greatest(extract(epoch FROM :now - i.due_at) * 1000, 0), 2147483647) AS int) END, i.flags & ~16, i.pending, CASE WHEN i.flags & 8 = 0 THEN i.start_by END
      FROM i WHERE i.due_at <= :now OR i.pending > 0
),
t AS (
    INSERT INTO timer (id, due_at, lane, attempt, fence, lost, releases, flags, reason)
    SELECT i.id, i.due_at, i.lane, :attempt, :fence, :lost, :releases, i.flags & ~16, :reason
      FROM i WHERE i.due_at > :now AND i.pending = 0
)
SELECT CASE WHEN i.due_at > :now AND i.pending = 0 THEN 1 ELSE 0 END AS timed FROM i
-- sqlite
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, late_ms, flags, pending, start_by)
SELECT j.id, l.id,
       CASE WHEN l.fifo = 1 THEN j.created_at / 1000
            WHEN :ready_ms IS NOT NULL THEN :ready_ms - j.priority * l.credit_ms
            ELSE CASE WHEN :asked = 1 THEN max(:due_at, :now) ELSE max(coalesce(:due_at, min(j.run_at, :now)), j.created_at) END / 1000 - j.priority * l.credit_ms END,
       CASE WHEN :flags & 1 = 1 THEN 3 ELSE :place END, :attempt, :fence, :lost, :releases, coalesce(:queued_at, :now),
       CASE WHEN :asked = 0 THEN :late_ms ELSE max(min((:now - :due_at) / 1000, 2147483647), 0) END, :flags & ~16, :pending,
       CASE WHEN :flags & 8 = 0 THEN j.start_by END
  FROM job AS j JOIN lane AS l ON l.id = :lane WHERE j.id = :id AND (coalesce(:due_at, :now) <= :now OR :pending > 0);
INSERT INTO timer (id, due_at, lane, attempt, fence, lost, releases, flags, reason)
SELECT j.id, :due_at, :lane, :attempt, :fence, :lost, :releases, :flags & ~16, :reason
  FROM job AS j WHERE j.id = :id AND coalesce(:due_at, :now) > :now AND :pending = 0;
SELECT CASE WHEN coalesce(:due_at, :now) > :now AND :pending = 0 THEN 1 ELSE 0 END AS timed FROM job AS j WHERE j.id = :id
