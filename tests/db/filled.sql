-- What filled.py fills a database with; the names with a colon are its figures.

CREATE FUNCTION pg_temp.made(kind int, n int) RETURNS uuid LANGUAGE sql IMMUTABLE AS
$$ SELECT CAST(lpad(to_hex(:first_ms + CAST(n AS bigint) * :step_ms), 12, '0') || '70008000'
               || lpad(to_hex(kind), 12, '0') AS uuid) $$;

DO $$ DECLARE name text; BEGIN
    FOREACH name IN ARRAY ARRAY['queue', 'timer', 'session', 'lane', 'dedup', 'dead'] LOOP
        EXECUTE format('ALTER TABLE windlass.%I SET (autovacuum_enabled = off)', name);
    END LOOP;
    FOR name IN SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE windlass.%I SET (autovacuum_enabled = off)', name);
    END LOOP;
END $$;

INSERT INTO windlass.lane (id, tenant, queue, task, labels, key, paused, limited, credit_ms, fifo)
SELECT n, 'default', 'full', CASE WHEN n = 0 THEN '' ELSE 'task' || n END, '', '', 0, 0, 1, 0 FROM generate_series(0, :lanes) AS n;

INSERT INTO windlass.session (id, worker, tenant, state, lease_ms, expires_at, heartbeat_at, started_at, capacity, busy, bare, draining)
SELECT pg_temp.made(:session, n), 'worker' || n, 'default', CASE WHEN n <= :dead_sessions THEN 1 ELSE 0 END, 30000,
       windlass.clock() + interval '1 hour', windlass.clock(), windlass.clock(), 100, 100, 0, 0
  FROM generate_series(1, :sessions) AS n;

INSERT INTO windlass.job (id, lane, task, payload, priority, max_attempts, max_lost, timeout_s, run, run_at, created_at)
SELECT pg_temp.made(kind, n), 1 + n % :lanes, 'task1', '{"n": 1}', 0, 3, 5, 3600, 1, windlass.clock(), windlass.clock()
  FROM unnest(ARRAY[:ready, :blocked, :leased, :timed, :done]) AS kind, generate_series(1, :count) AS n;

INSERT INTO windlass.queue (id, lane, rank, place, attempt, fence, lost, releases, queued_at, session, claimed_at, start_by, pending, flags)
SELECT pg_temp.made(kind, n), 1 + n % :lanes, n, CASE kind WHEN :ready THEN 0 WHEN :leased THEN 1 ELSE 2 END,
       1, 1, 0, 0, windlass.clock(),
       CASE WHEN kind = :leased THEN pg_temp.made(:session, 1 + n % :sessions) END,
       CASE WHEN kind = :leased THEN windlass.clock() - interval '1 hour' END,
       CASE WHEN kind = :blocked AND n <= :passed THEN windlass.clock() - interval '1 minute'
            WHEN kind <> :leased AND n % 2 = 0 THEN windlass.clock() + interval '1 day' END,
       CASE WHEN kind = :blocked THEN 1 ELSE 0 END, 0
  FROM unnest(ARRAY[:blocked, :leased, :ready]) AS kind, generate_series(1, :count) AS n;

INSERT INTO windlass.timer (id, due_at, lane, attempt, fence, lost, releases, flags, reason)
SELECT pg_temp.made(:timed, n), windlass.clock() + (n - :due) * interval '1 second', 1 + n % :lanes, 0, 0, 0, 0, 0, 0
  FROM generate_series(1, :count) AS n;

INSERT INTO windlass.done (id, lane, attempt, fence, lost, releases, outcome, finished_at)
SELECT pg_temp.made(:done, n), 1 + n % :lanes, 1, 1, 0, 0, 0,
       (SELECT min(CAST(substring(relname FROM '[0-9]+$') AS timestamptz)) FROM pg_class WHERE relname ~ '^done_[0-9]+$')
       + (n % 8) * interval '1 day' + interval '12 hours'
  FROM generate_series(1, :count) AS n;
