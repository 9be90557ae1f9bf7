-- name: lock_tenants
-- Keep tenants from being deleted while schedules of theirs are made; and the time at which that is done.
-- locks: tenant rows by name, shared.
-- both
SELECT name, erasing, :now AS clock_at FROM tenant WHERE name = ANY(CAST(:tenants AS text[])) ORDER BY name FOR KEY SHARE

-- name: clock
-- The time.
-- both
SELECT :now AS clock_at

-- name: make_tenants
-- Make tenants that are not there, and return those.
-- postgres
INSERT INTO tenant (name, created_at) SELECT i.name, :now FROM unnest(CAST(:tenants AS text[])) AS i(name) ORDER BY i.name ON CONFLICT (name) DO NOTHING RETURNING name
-- sqlite
INSERT INTO tenant (name, created_at) SELECT i.value, :now FROM json_each(:tenants) AS i WHERE true ON CONFLICT (name) DO NOTHING RETURNING name

-- name: insert_schedules
-- Store definitions whose names are free; a rival that has a name in an open transaction is waited for. What many of them
-- share, their shape, is sent once.
-- locks: names in order.  returns: what was stored.
-- both
INSERT INTO schedule (id, name, kind, expression, zone, payload, tenant, owner, start_at, end_at, exclude, task, headers, tags, queue, labels,
                      priority, max_attempts, max_lost, timeout_s, retry, start_within_s, catch_up, catch_up_max,
                      catch_up_window_s, misfire_grace_s, overlap, jitter_s, expect_within_s, paused, defaults, base_at, version, created_at, changed_at)
SELECT i.id, i.name, i.kind, i.expression, i.zone, i.payload, s.tenant, s.owner, s.start_at, s.end_at, s.exclude, s.task, s.headers, s.tags, s.queue, s.labels,
       s.priority, s.max_attempts, s.max_lost, s.timeout_s, s.retry, s.start_within_s, s.catch_up, s.catch_up_max,
       s.catch_up_window_s, s.misfire_grace_s, s.overlap, s.jitter_s, s.expect_within_s, s.paused, s.defaults, s.base_at, 1, CAST(:at AS timestamptz), CAST(:at AS timestamptz)
  FROM rows(:schedules, id uuid, name text, kind smallint, expression text, zone text, payload text, shape int) AS i
  JOIN rows(:shapes, number int, tenant text, owner text, start_at timestamptz, end_at timestamptz, exclude text, task text, headers text, tags text,
            queue text, labels text, priority smallint, max_attempts smallint, max_lost smallint, timeout_s int, retry text,
            start_within_s int, catch_up smallint, catch_up_max int, catch_up_window_s int, misfire_grace_s int, overlap smallint,
            jitter_s int, expect_within_s int, paused smallint, defaults int, base_at timestamptz) AS s
    ON s.number = i.shape
 ORDER BY s.tenant, i.name COLLATE "C"
ON CONFLICT (tenant, name) DO NOTHING
RETURNING id

-- name: insert_next
-- Say when new schedules fire.
-- both
INSERT INTO schedule_next (id, shard, version, waiting_count, next_at)
SELECT i.id, i.shard, 1, 0, i.next_at FROM rows(:cursors, id uuid, shard smallint, next_at timestamptz) AS i

-- name: lock_schedules
-- Lock schedules of a tenant: acts of people on one of them come one after the other.
-- locks: schedule rows by ascending id.
-- postgres
SELECT id FROM schedule WHERE id = ANY(CAST(:ids AS uuid[])) AND tenant = :tenant ORDER BY id FOR UPDATE
-- sqlite
SELECT s.id FROM json_each(:ids) AS i CROSS JOIN schedule AS s ON s.id = i.value WHERE s.tenant = :tenant ORDER BY s.id

-- name: lock_next
-- Lock where schedules stand: what fires at this moment is over before the act, or comes after it and finds another version.
-- locks: schedule_next rows by ascending id.
-- postgres
SELECT id FROM schedule_next WHERE id = ANY(CAST(:ids AS uuid[])) ORDER BY id FOR UPDATE
-- sqlite
SELECT n.id FROM json_each(:ids) AS i CROSS JOIN schedule_next AS n ON n.id = i.value ORDER BY n.id

-- name: schedules_now
-- Schedules of a tenant as they are now, and the time.
-- hot: part of transactions that write.
-- postgres
SELECT s.*, n.next_at, n.last_at, n.waiting_count, w.missing_at, p.reason AS pause_reason, p.actor AS pause_actor, p.paused_at, p.resume_at, :now AS clock_at
  FROM unnest(CAST(:ids AS uuid[])) AS i(id)
  JOIN schedule s ON s.id = ANY(ARRAY[i.id]) AND s.tenant = :tenant
  JOIN schedule_next n ON n.id = ANY(ARRAY[i.id])
  LEFT JOIN schedule_watch w ON w.schedule_id = ANY(ARRAY[i.id])
  LEFT JOIN pause p ON p.kind = 'schedule' AND p.tenant = :tenant AND p.name = CAST(i.id AS text)
-- sqlite
SELECT s.*, n.next_at, n.last_at, n.waiting_count, w.missing_at, p.reason AS pause_reason, p.actor AS pause_actor, p.paused_at, p.resume_at, :now AS clock_at
  FROM json_each(:ids) AS i CROSS JOIN schedule AS s ON s.id = i.value AND s.tenant = :tenant CROSS JOIN schedule_next AS n ON n.id = s.id
  LEFT JOIN schedule_watch AS w ON w.schedule_id = s.id
  LEFT JOIN pause AS p ON p.kind = 'schedule' AND p.tenant = s.tenant AND p.name = s.id

-- name: change_schedules
-- Give schedules other definitions, if they are still of the version that was looked at. The id and its history stay.
-- returns: those changed.
-- postgres
UPDATE schedule AS s
   SET name = i.name, owner = i.owner, kind = i.kind, expression = i.expression, zone = i.zone, start_at = i.start_at, end_at = i.end_at,
       exclude = i.exclude, task = i.task, payload = i.payload, headers = i.headers, tags = i.tags, queue = i.queue, labels = i.labels,
       priority = i.priority, max_attempts = i.max_attempts, max_lost = i.max_lost,
       timeout_s = i.timeout_s, retry = i.retry, start_within_s = i.start_within_s, catch_up = i.catch_up, catch_up_max = i.catch_up_max,
       catch_up_window_s = i.catch_up_window_s, misfire_grace_s = i.misfire_grace_s, overlap = i.overlap, jitter_s = i.jitter_s,
       expect_within_s = i.expect_within_s, paused = i.paused, defaults = i.defaults, base_at = i.base_at, version = s.version + 1, changed_at = CAST(:at AS timestamptz)
  FROM rows(:schedules, id uuid, name text, kind smallint, expression text, zone text, payload text,
            tenant text, owner text, start_at timestamptz, end_at timestamptz, exclude text, task text, headers text, tags text,
            queue text, labels text, priority smallint, max_attempts smallint, max_lost smallint, timeout_s int, retry text,
            start_within_s int, catch_up smallint, catch_up_max int, catch_up_window_s int, misfire_grace_s int, overlap smallint,
            jitter_s int, expect_within_s int, paused smallint, defaults int, base_at timestamptz, version int) AS i
 WHERE s.id = ANY(ARRAY[i.id]) AND s.tenant || '' = i.tenant AND s.version = i.version
RETURNING s.id
-- sqlite
UPDATE schedule AS s
   SET name = i.name, owner = i.owner, kind = i.kind, expression = i.expression, zone = i.zone, start_at = i.start_at, end_at = i.end_at,
       exclude = i.exclude, task = i.task, payload = i.payload, headers = i.headers, tags = i.tags, queue = i.queue, labels = i.labels,
       priority = i.priority, max_attempts = i.max_attempts, max_lost = i.max_lost,
       timeout_s = i.timeout_s, retry = i.retry, start_within_s = i.start_within_s, catch_up = i.catch_up, catch_up_max = i.catch_up_max,
       catch_up_window_s = i.catch_up_window_s, misfire_grace_s = i.misfire_grace_s, overlap = i.overlap, jitter_s = i.jitter_s,
       expect_within_s = i.expect_within_s, paused = i.paused, defaults = i.defaults, base_at = i.base_at, version = s.version + 1, changed_at = :at
  FROM rows(:schedules) AS i
 WHERE s.id = i.id AND s.tenant = i.tenant AND s.version = i.version
RETURNING id

-- name: move_next
-- Say where changed schedules stand now; the last slot decided only rises. Their version rises with that of the definition.
-- returns: those moved.
-- postgres
UPDATE schedule_next AS n
   SET next_at = i.next_at, last_at = greatest(n.last_at, i.last_at), version = n.version + 1
  FROM rows(:cursors, id uuid, version int, next_at timestamptz, last_at timestamptz) AS i
 WHERE n.id = ANY(ARRAY[i.id]) AND n.version = i.version
RETURNING n.id
-- sqlite
UPDATE schedule_next AS n
   SET next_at = i.next_at, last_at = nullif(max(coalesce(n.last_at, -1), coalesce(i.last_at, -1)), -1), version = n.version + 1
  FROM rows(:cursors) AS i
 WHERE n.id = i.id AND n.version = i.version
RETURNING id

-- name: record_slots
-- Write down what became of slots; a slot that was decided before stays as it was.
-- returns: the slots written.
-- both
INSERT INTO schedule_runs (schedule_id, slot_at, decision, job_id, term, decided_at, slot_count, first_at, reason)
SELECT i.schedule_id, i.slot_at, i.decision, i.job_id, 0, :now, i.slot_count, i.first_at, i.reason
  FROM rows(:slots, schedule_id uuid, slot_at timestamptz, decision smallint, job_id uuid, slot_count int, first_at timestamptz, reason text) AS i WHERE true
ON CONFLICT (schedule_id, slot_at) DO NOTHING
RETURNING schedule_id, slot_at

-- name: keep_schedule_pauses
-- Remember who paused schedules, why, since when and until when; a second pause keeps the first one's time.
-- both
INSERT INTO pause (kind, tenant, name, reason, actor, paused_at, resume_at)
SELECT 'schedule', i.tenant, i.name, :reason, :actor, :at, :until FROM rows(:pauses, tenant text, name text) AS i WHERE true
ON CONFLICT (kind, tenant, name) DO UPDATE SET reason = excluded.reason, actor = excluded.actor, resume_at = excluded.resume_at

-- name: drop_schedule_pauses
-- Forget that schedules were paused.
-- postgres
DELETE FROM pause USING rows(:pauses, tenant text, name text) AS i WHERE pause.kind = 'schedule' AND pause.tenant = i.tenant AND pause.name = i.name
-- sqlite
DELETE FROM pause WHERE kind = 'schedule' AND (tenant, name) IN (SELECT i.tenant, i.name FROM rows(:pauses) AS i)
