-- name: stretches
-- Rows of a schedule that stand for several slots, of which one or more may lie from :first up to :last.
-- hot: a duty must not wait for lists.
-- index: the primary key of schedule_runs.
-- both
SELECT slot_at, first_at, slot_count FROM schedule_runs
 WHERE schedule_id = :schedule_id AND slot_at >= :first AND slot_at <= :last AND slot_count > 1 AND job_id IS NULL
UNION ALL
SELECT x.slot_at, x.first_at, x.slot_count FROM (
    SELECT slot_at, first_at, slot_count FROM schedule_runs
     WHERE schedule_id = :schedule_id AND slot_at > :last AND slot_count > 1 AND job_id IS NULL ORDER BY slot_at LIMIT 1) x
 WHERE x.first_at <= :last

-- name: own_rows
-- Slots of a schedule from :first up to :last that have a job.
-- hot: a duty must not wait for lists.
-- index: the primary key of schedule_runs.
-- both
SELECT slot_at FROM schedule_runs WHERE schedule_id = :schedule_id AND slot_at >= :first AND slot_at <= :last AND job_id IS NOT NULL

-- name: narrow
-- Let a row stand for fewer slots.
-- guard: it stands for those that were read, and has no job.  locks: the row.
-- both
UPDATE schedule_runs SET first_at = :left_from, slot_count = :left
 WHERE schedule_id = :schedule_id AND slot_at = :slot_at AND first_at = :first_at AND slot_count = :slot_count AND job_id IS NULL
RETURNING slot_at

-- name: move
-- Let another row, of the last slot that is left, stand for what a row stood for whose own slot gets its job.
-- guard: that slot has no row.
-- both
INSERT INTO schedule_runs (schedule_id, slot_at, decision, job_id, term, decided_at, slot_count, first_at, reason)
SELECT schedule_id, :left_until, decision, job_id, term, decided_at, slot_count, first_at, reason FROM schedule_runs
 WHERE schedule_id = :schedule_id AND slot_at = :slot_at
ON CONFLICT (schedule_id, slot_at) DO NOTHING RETURNING slot_at
