-- Schedules: what makes jobs at set times. The definition is cold; when it fires next is narrow and hot; each slot is decided once.
-- kind: 0 by hand only, 1 cron, 2 interval (seconds), 3 one time; `expression` is its text.
-- name is ordered by its bytes, on both databases: pages and prefixes go by it.
-- overlap: 0 skip, 1 allow, 2 queue_one, 3 queue_all, 4 cancel_previous. catch_up: 0 latest, 1 skip, 2 all.

-- postgres

CREATE TABLE windlass.schedule (
    id uuid NOT NULL, tenant text NOT NULL, name text COLLATE "C" NOT NULL, owner text, kind smallint NOT NULL, expression text, zone text NOT NULL,
    start_at timestamptz, end_at timestamptz, exclude text, task text NOT NULL, payload text NOT NULL, headers text, tags text,
    queue text NOT NULL, labels text NOT NULL, priority smallint NOT NULL, max_attempts smallint NOT NULL,
    max_lost smallint NOT NULL, timeout_s integer, retry text, start_within_s integer, catch_up smallint NOT NULL, catch_up_max integer NOT NULL,
    catch_up_window_s integer, misfire_grace_s integer NOT NULL, overlap smallint NOT NULL, jitter_s integer NOT NULL, expect_within_s integer,
    version integer NOT NULL, paused smallint NOT NULL, defaults integer NOT NULL, base_at timestamptz NOT NULL, created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL, PRIMARY KEY (id), UNIQUE (tenant, name)
);

CREATE INDEX schedule_owner ON windlass.schedule (tenant, owner, name) WHERE owner IS NOT NULL;
CREATE INDEX schedule_tenant ON windlass.schedule (tenant, id);

-- next_at: when the next slot is due; null: never, paused, or by hand only. last_at: the last slot that was decided; it only rises.
-- live_job_id: the last job of the series that was let go; while its row lives, or jobs wait behind it, the previous run is not over.
CREATE TABLE windlass.schedule_next (
    id uuid NOT NULL, shard smallint NOT NULL, version integer NOT NULL, waiting_count integer NOT NULL, next_at timestamptz,
    last_at timestamptz, live_job_id uuid, PRIMARY KEY (id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000, vacuum_truncate = off);

CREATE INDEX schedule_due ON windlass.schedule_next (shard, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_behind ON windlass.schedule_next (id) WHERE waiting_count > 0;

-- Jobs of slots that wait, blocked, until the run before them is over; the earliest slot goes first.
CREATE TABLE windlass.schedule_wait (
    schedule_id uuid NOT NULL, slot_at timestamptz NOT NULL, job_id uuid NOT NULL, PRIMARY KEY (schedule_id, slot_at)
);

-- One row for each slot that was decided: the guard of firing and of backfill. Insert-only. A row that stands for several slots
-- passed over together (after an outage, or a pause) has the last of them, their number and the first.
CREATE TABLE windlass.schedule_runs (
    schedule_id uuid NOT NULL, slot_at timestamptz NOT NULL, decision smallint NOT NULL, job_id uuid, term integer NOT NULL,
    decided_at timestamptz NOT NULL, slot_count integer NOT NULL, first_at timestamptz, reason text, PRIMARY KEY (schedule_id, slot_at)
) PARTITION BY RANGE (slot_at);

-- What is expected of a schedule with a dead-man's switch: the slot whose run must have succeeded by due_at. With missing_at the
-- slot was told to be missing, and due_at is when to look again.
CREATE TABLE windlass.schedule_watch (
    schedule_id uuid NOT NULL, slot_at timestamptz NOT NULL, due_at timestamptz NOT NULL, missing_at timestamptz, PRIMARY KEY (schedule_id)
) WITH (fillfactor = 80);

CREATE INDEX schedule_watch_due ON windlass.schedule_watch (due_at);
CREATE INDEX schedule_watch_missing ON windlass.schedule_watch (schedule_id) WHERE missing_at IS NOT NULL;

-- A past range of slots that is run, a few jobs at a time: state 0 under way, 1 done, 2 stopped. cursor_at: the last slot dealt with.
CREATE TABLE windlass.backfill (
    id uuid NOT NULL, tenant text NOT NULL, schedule_id uuid NOT NULL, since_at timestamptz NOT NULL, until_at timestamptz NOT NULL,
    cursor_at timestamptz NOT NULL, concurrency integer NOT NULL, state smallint NOT NULL, made_count integer NOT NULL,
    known_count integer NOT NULL, actor text, reason text, created_at timestamptz NOT NULL, ended_at timestamptz, PRIMARY KEY (id)
);

CREATE INDEX backfill_open ON windlass.backfill (id) WHERE state = 0;
CREATE INDEX backfill_schedule ON windlass.backfill (schedule_id, created_at);

CREATE TABLE windlass.backfill_job (
    backfill_id uuid NOT NULL, job_id uuid NOT NULL, PRIMARY KEY (backfill_id, job_id)
);

-- Pauses that end by themselves: of millions of schedules that are paused, few.
CREATE INDEX pause_over ON windlass.pause (resume_at) WHERE resume_at IS NOT NULL;

-- The live jobs of a schedule: to cancel them with it, and to list them.
CREATE INDEX job_schedule ON windlass.job (schedule_id, id) WHERE schedule_id IS NOT NULL;

-- What became of each slot and of its job, by plain SQL.
CREATE VIEW windlass.schedule_history (
       schedule_id, tenant, name, scheduled_at, decision, slot_count, reason, decided_at, job_id, status, executed_at, finished_at,
       execution_time_ms) AS
SELECT r.schedule_id, s.tenant, s.name, r.slot_at,
       CASE r.decision WHEN 0 THEN 'fired' WHEN 1 THEN 'waiting' WHEN 2 THEN 'replaced' WHEN 3 THEN 'backfilled' WHEN 4 THEN 'manual' WHEN 5 THEN 'overlapped'
                       WHEN 6 THEN 'missed' WHEN 7 THEN 'paused' END,
       r.slot_count, r.reason, r.decided_at, r.job_id,
       CASE WHEN d.outcome = 0 THEN 'succeeded' WHEN d.outcome = 4 THEN 'cancelled' WHEN d.id IS NOT NULL THEN 'expired'
            WHEN x.id IS NOT NULL THEN 'dead' WHEN t.reason = 2 THEN 'sleeping' WHEN t.id IS NOT NULL THEN 'scheduled'
            WHEN q.place = 1 AND q.flags & 2 = 2 THEN 'cancelling' WHEN q.place = 1 AND q.started_at IS NOT NULL THEN 'running'
            WHEN q.place = 1 THEN 'assigned' WHEN q.place = 2 OR q.pending > 0 THEN 'blocked' WHEN q.id IS NOT NULL THEN 'queued' END,
       coalesce(q.started_at, d.started_at, x.started_at), coalesce(d.finished_at, x.finished_at),
       CAST(round(extract(epoch FROM coalesce(d.finished_at - d.started_at, x.finished_at - x.started_at)) * 1000) AS bigint)
  FROM windlass.schedule_runs r LEFT JOIN windlass.schedule s ON s.id = r.schedule_id LEFT JOIN windlass.queue q ON q.id = r.job_id
  LEFT JOIN windlass.timer t ON t.id = r.job_id LEFT JOIN windlass.dead x ON x.id = r.job_id
  LEFT JOIN windlass.done d ON d.id = r.job_id AND d.finished_at >= r.decided_at - interval '1 day';

DO $$
DECLARE day date;
BEGIN
    FOR day IN SELECT CAST(windlass.clock() AT TIME ZONE 'UTC' AS date) + n FROM generate_series(-1, 7) AS n LOOP
        EXECUTE format('CREATE TABLE windlass.%I PARTITION OF windlass.schedule_runs FOR VALUES FROM (%L) TO (%L)',
                       'schedule_runs_' || to_char(day, 'YYYYMMDD'),
                       to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
    END LOOP;
END $$;

-- sqlite

CREATE TABLE schedule (
    id TEXT NOT NULL, tenant TEXT NOT NULL, name TEXT NOT NULL, owner TEXT, kind INTEGER NOT NULL, expression TEXT, zone TEXT NOT NULL,
    start_at INTEGER, end_at INTEGER, exclude TEXT, task TEXT NOT NULL, payload TEXT NOT NULL, headers TEXT, tags TEXT,
    queue TEXT NOT NULL, labels TEXT NOT NULL, priority INTEGER NOT NULL, max_attempts INTEGER NOT NULL,
    max_lost INTEGER NOT NULL, timeout_s INTEGER, retry TEXT, start_within_s INTEGER, catch_up INTEGER NOT NULL, catch_up_max INTEGER NOT NULL,
    catch_up_window_s INTEGER, misfire_grace_s INTEGER NOT NULL, overlap INTEGER NOT NULL, jitter_s INTEGER NOT NULL, expect_within_s INTEGER,
    version INTEGER NOT NULL, paused INTEGER NOT NULL, defaults INTEGER NOT NULL, base_at INTEGER NOT NULL, created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL, PRIMARY KEY (id), UNIQUE (tenant, name)
) STRICT;

CREATE INDEX schedule_owner ON schedule (tenant, owner, name) WHERE owner IS NOT NULL;
CREATE INDEX schedule_tenant ON schedule (tenant, id);

CREATE TABLE schedule_next (
    id TEXT NOT NULL, shard INTEGER NOT NULL, version INTEGER NOT NULL, waiting_count INTEGER NOT NULL, next_at INTEGER,
    last_at INTEGER, live_job_id TEXT, PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_due ON schedule_next (shard, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_behind ON schedule_next (id) WHERE waiting_count > 0;

CREATE TABLE schedule_wait (
    schedule_id TEXT NOT NULL, slot_at INTEGER NOT NULL, job_id TEXT NOT NULL, PRIMARY KEY (schedule_id, slot_at)
) STRICT, WITHOUT ROWID;

CREATE TABLE schedule_runs (
    schedule_id TEXT NOT NULL, slot_at INTEGER NOT NULL, decision INTEGER NOT NULL, job_id TEXT, term INTEGER NOT NULL,
    decided_at INTEGER NOT NULL, slot_count INTEGER NOT NULL, first_at INTEGER, reason TEXT, PRIMARY KEY (schedule_id, slot_at)
) STRICT;

CREATE TABLE schedule_watch (
    schedule_id TEXT NOT NULL, slot_at INTEGER NOT NULL, due_at INTEGER NOT NULL, missing_at INTEGER, PRIMARY KEY (schedule_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_watch_due ON schedule_watch (due_at);
CREATE INDEX schedule_watch_missing ON schedule_watch (schedule_id) WHERE missing_at IS NOT NULL;

CREATE TABLE backfill (
    id TEXT NOT NULL, tenant TEXT NOT NULL, schedule_id TEXT NOT NULL, since_at INTEGER NOT NULL, until_at INTEGER NOT NULL,
    cursor_at INTEGER NOT NULL, concurrency INTEGER NOT NULL, state INTEGER NOT NULL, made_count INTEGER NOT NULL,
    known_count INTEGER NOT NULL, actor TEXT, reason TEXT, created_at INTEGER NOT NULL, ended_at INTEGER, PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

CREATE INDEX backfill_open ON backfill (id) WHERE state = 0;
CREATE INDEX backfill_schedule ON backfill (schedule_id, created_at);

CREATE TABLE backfill_job (
    backfill_id TEXT NOT NULL, job_id TEXT NOT NULL, PRIMARY KEY (backfill_id, job_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_schedule ON job (schedule_id, id) WHERE schedule_id IS NOT NULL;

-- What became of each slot and of its job, by plain SQL.
CREATE VIEW schedule_history (
       schedule_id, tenant, name, scheduled_at, decision, slot_count, reason, decided_at, job_id, status, executed_at, finished_at,
       execution_time_ms) AS
SELECT r.schedule_id, s.tenant, s.name, r.slot_at,
       CASE r.decision WHEN 0 THEN 'fired' WHEN 1 THEN 'waiting' WHEN 2 THEN 'replaced' WHEN 3 THEN 'backfilled' WHEN 4 THEN 'manual' WHEN 5 THEN 'overlapped'
                       WHEN 6 THEN 'missed' WHEN 7 THEN 'paused' END,
       r.slot_count, r.reason, r.decided_at, r.job_id,
       CASE WHEN d.outcome = 0 THEN 'succeeded' WHEN d.outcome = 4 THEN 'cancelled' WHEN d.id IS NOT NULL THEN 'expired'
            WHEN x.id IS NOT NULL THEN 'dead' WHEN t.reason = 2 THEN 'sleeping' WHEN t.id IS NOT NULL THEN 'scheduled'
            WHEN q.place = 1 AND q.flags & 2 = 2 THEN 'cancelling' WHEN q.place = 1 AND q.started_at IS NOT NULL THEN 'running'
            WHEN q.place = 1 THEN 'assigned' WHEN q.place = 2 OR q.pending > 0 THEN 'blocked' WHEN q.id IS NOT NULL THEN 'queued' END,
       coalesce(q.started_at, d.started_at, x.started_at), coalesce(d.finished_at, x.finished_at),
       (coalesce(d.finished_at - d.started_at, x.finished_at - x.started_at) + 500) / 1000
  FROM schedule_runs r LEFT JOIN schedule s ON s.id = r.schedule_id LEFT JOIN queue q ON q.id = r.job_id
  LEFT JOIN timer t ON t.id = r.job_id LEFT JOIN dead x ON x.id = r.job_id
  LEFT JOIN done d ON d.id = r.job_id AND d.finished_at >= r.decided_at - 86400000000;
CREATE INDEX pause_over ON pause (resume_at) WHERE resume_at IS NOT NULL;
