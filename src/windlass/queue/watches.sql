-- name: expect
-- Expect the run of a slot of each schedule; what was expected of it before is forgotten.
-- both
INSERT INTO schedule_watch (schedule_id, slot_at, due_at)
SELECT i.schedule_id, i.slot_at, i.due_at FROM rows(:expected, schedule_id uuid, slot_at timestamptz, due_at timestamptz) AS i ORDER BY i.schedule_id
ON CONFLICT (schedule_id) DO UPDATE SET slot_at = excluded.slot_at, due_at = excluded.due_at, missing_at = NULL

-- name: expect_nothing
-- Expect nothing of schedules any more.
-- both
DELETE FROM schedule_watch WHERE schedule_id = ANY(CAST(:ids AS uuid[]))

-- name: due_watches
-- What is to be looked at, the longest due first, with what the slots of its schedule are computed from; no lock.
-- hot: a duty must not wait for lists.
-- index: schedule_watch_due.
-- postgres
SELECT w.schedule_id, w.slot_at, w.due_at, w.missing_at, :now AS now_at, s.*
  FROM schedule_watch w CROSS JOIN LATERAL (
       SELECT tenant, name, kind, expression, zone, start_at, end_at, exclude, jitter_s, base_at, expect_within_s
         FROM schedule WHERE id = w.schedule_id LIMIT 1) s
 WHERE w.due_at <= :now ORDER BY w.due_at LIMIT :limit
-- sqlite
SELECT w.schedule_id, w.slot_at, w.due_at, w.missing_at, :now AS now_at, s.tenant, s.name, s.kind, s.expression, s.zone,
       s.start_at, s.end_at, s.exclude, s.jitter_s, s.base_at, s.expect_within_s
  FROM schedule_watch AS w CROSS JOIN schedule AS s ON s.id = w.schedule_id
 WHERE w.due_at <= :now ORDER BY w.due_at LIMIT :limit

-- name: decided
-- What was decided of slots.
-- hot: a duty must not wait for lists.
-- postgres
SELECT i.schedule_id, x.decision, x.job_id, x.decided_at, x.reason
  FROM rows(:slots, schedule_id uuid, slot_at timestamptz) AS i CROSS JOIN LATERAL (
       SELECT r.decision, r.job_id, r.decided_at, r.reason FROM schedule_runs r
        WHERE r.schedule_id = i.schedule_id AND r.slot_at = i.slot_at LIMIT 1) x
-- sqlite
SELECT i.schedule_id, r.decision, r.job_id, r.decided_at, r.reason
  FROM rows(:slots) AS i CROSS JOIN schedule_runs AS r ON r.schedule_id = i.schedule_id AND r.slot_at = i.slot_at

-- name: passed_over
-- What was decided of slots that have no row of their own: one that was passed over together with later ones stands in theirs.
-- hot: a duty must not wait for lists.
-- postgres
SELECT i.schedule_id, x.decision, x.job_id, x.decided_at, x.reason
  FROM rows(:slots, schedule_id uuid, slot_at timestamptz) AS i CROSS JOIN LATERAL (
       SELECT r.decision, CAST(NULL AS uuid) AS job_id, r.decided_at, r.reason FROM schedule_runs r
        WHERE r.schedule_id = i.schedule_id AND r.slot_at > i.slot_at AND r.first_at <= i.slot_at ORDER BY r.slot_at LIMIT 1) x
-- sqlite
SELECT i.schedule_id, r.decision, NULL AS job_id, r.decided_at, r.reason
  FROM rows(:slots) AS i CROSS JOIN schedule_runs AS r ON r.schedule_id = i.schedule_id AND r.slot_at = (
       SELECT min(p.slot_at) FROM schedule_runs AS p WHERE p.schedule_id = i.schedule_id AND p.slot_at > i.slot_at AND p.first_at <= i.slot_at)

-- name: made_since
-- The newest jobs of schedules whose run is missing, of its slot, of later ones, or made by hand.
-- hot: a duty must not wait for lists.
-- postgres
SELECT i.schedule_id, x.job_id, x.decided_at
  FROM rows(:slots, schedule_id uuid, slot_at timestamptz) AS i CROSS JOIN LATERAL (
       SELECT r.job_id, r.decided_at FROM schedule_runs r
        WHERE r.schedule_id = i.schedule_id AND r.slot_at >= i.slot_at AND r.job_id IS NOT NULL ORDER BY r.slot_at DESC LIMIT :newest) x
-- sqlite
SELECT i.schedule_id, r.job_id, r.decided_at
  FROM rows(:slots) AS i CROSS JOIN schedule_runs AS r ON r.schedule_id = i.schedule_id AND r.slot_at IN (
       SELECT p.slot_at FROM schedule_runs AS p WHERE p.schedule_id = i.schedule_id AND p.slot_at >= i.slot_at AND p.job_id IS NOT NULL
        ORDER BY p.slot_at DESC LIMIT :newest)

-- name: fates
-- What became of jobs; none of them ended before :since.
-- hot: a duty must not wait for lists.
-- index: primary keys, done_id of the days from :since on.
-- plan: the reason keeps out timer_due, which would be read whole.
-- postgres
SELECT q.id, CASE WHEN q.started_at IS NULL THEN 'waiting' ELSE 'running' END AS fate, q.started_at AS fate_at, CAST(NULL AS text) AS error
  FROM unnest(CAST(:ids AS uuid[])) AS i (id) JOIN queue q ON q.id = ANY(ARRAY[i.id])
UNION ALL
SELECT t.id, CASE WHEN t.reason = 2 THEN 'sleeping' ELSE 'waiting' END, t.due_at, NULL FROM unnest(CAST(:ids AS uuid[])) AS i (id) JOIN timer t ON t.id = ANY(ARRAY[i.id])
UNION ALL
SELECT d.id, CASE d.outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END, d.finished_at, coalesce(d.error, d.reason)
  FROM unnest(CAST(:ids AS uuid[])) AS i (id) JOIN done d ON d.id = ANY(ARRAY[i.id]) AND d.finished_at >= :since
UNION ALL
SELECT d.id, 'dead', d.finished_at, d.error FROM unnest(CAST(:ids AS uuid[])) AS i (id) JOIN dead d ON d.id = ANY(ARRAY[i.id])
-- sqlite
SELECT id, CASE WHEN started_at IS NULL THEN 'waiting' ELSE 'running' END AS fate, started_at AS fate_at, NULL AS error
  FROM queue WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT id, CASE WHEN reason = 2 THEN 'sleeping' ELSE 'waiting' END, due_at, NULL FROM timer WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT id, CASE outcome WHEN 0 THEN 'succeeded' WHEN 4 THEN 'cancelled' ELSE 'expired' END, finished_at, coalesce(error, reason)
  FROM done WHERE id IN (SELECT value FROM json_each(:ids)) AND finished_at >= :since
UNION ALL
SELECT id, 'dead', finished_at, error FROM dead WHERE id IN (SELECT value FROM json_each(:ids))

-- name: go_on
-- Set what is looked at next, and whether a run is missing.
-- guard: the slot and the time that were looked at; of two who look one tells.  locks: schedule_watch rows, skipping locked ones.
-- postgres
WITH l AS MATERIALIZED (
    SELECT w.schedule_id, i.next_slot_at, i.next_due_at, i.missing
      FROM rows(:looked, schedule_id uuid, slot_at timestamptz, due_at timestamptz, next_slot_at timestamptz, next_due_at timestamptz, missing int) AS i
      JOIN schedule_watch w ON w.schedule_id = ANY(ARRAY[i.schedule_id])
     WHERE w.slot_at = i.slot_at AND w.due_at + interval '0' = i.due_at FOR UPDATE OF w SKIP LOCKED
)
UPDATE schedule_watch w SET slot_at = l.next_slot_at, due_at = l.next_due_at, missing_at = CASE WHEN l.missing = 1 THEN coalesce(w.missing_at, :now) END
  FROM l WHERE w.schedule_id = ANY(ARRAY[l.schedule_id]) RETURNING w.schedule_id
-- sqlite
UPDATE schedule_watch SET slot_at = i.next_slot_at, due_at = i.next_due_at, missing_at = CASE WHEN i.missing = 1 THEN coalesce(missing_at, :now) END
  FROM rows(:looked) AS i WHERE schedule_watch.schedule_id = i.schedule_id AND schedule_watch.slot_at = i.slot_at AND schedule_watch.due_at = i.due_at
RETURNING schedule_watch.schedule_id

-- name: end_watch
-- Forget what is expected of schedules whose last run has succeeded.
-- guard: the slot and the time that were looked at.  locks: schedule_watch rows, skipping locked ones.
-- postgres
WITH l AS MATERIALIZED (
    SELECT w.schedule_id FROM rows(:looked, schedule_id uuid, slot_at timestamptz, due_at timestamptz) AS i
      JOIN schedule_watch w ON w.schedule_id = ANY(ARRAY[i.schedule_id])
     WHERE w.slot_at = i.slot_at AND w.due_at + interval '0' = i.due_at FOR UPDATE OF w SKIP LOCKED
)
DELETE FROM schedule_watch w USING l WHERE w.schedule_id = ANY(ARRAY[l.schedule_id]) RETURNING w.schedule_id
-- sqlite
DELETE FROM schedule_watch WHERE (schedule_id, slot_at, due_at) IN (SELECT i.schedule_id, i.slot_at, i.due_at FROM rows(:looked) AS i)
RETURNING schedule_id

-- name: missing_count
-- How many schedules miss a run, counted up to :most.
-- index: schedule_watch_missing.
-- both
SELECT count(*) AS schedules FROM (SELECT 1 AS one FROM schedule_watch WHERE missing_at IS NOT NULL LIMIT :most) x
