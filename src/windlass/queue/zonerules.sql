-- name: rules_noted
-- The zone rules that the next slots of all schedules were looked at with, as names; none: never.
-- hot: a duty must not wait for lists.
-- both
SELECT name FROM pulse WHERE name LIKE 'zones:%'

-- name: note_rules
-- Remember with which zone rules the next slots of all schedules were looked at.
-- both
INSERT INTO pulse (name, beat_at) VALUES (:name, :now) ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at

-- name: zoned
-- The next :limit schedules after an id; what their times follow from is given only of those in a zone with rules.
-- hot: a duty must not wait for lists.
-- postgres
SELECT n.id, n.version, n.next_at, n.last_at, s.kind, s.expression, s.zone, s.start_at, s.end_at, s.exclude, s.base_at, s.jitter_s,
       s.expect_within_s, w.slot_at AS watched_at, :now AS now_at
  FROM (SELECT x.id, x.version, x.next_at, x.last_at FROM schedule_next x WHERE x.id > CAST(:after AS uuid) ORDER BY x.id LIMIT :limit) n
  LEFT JOIN LATERAL (SELECT x.* FROM schedule x WHERE x.id = n.id AND x.zone <> 'UTC' LIMIT 1) s ON true
  LEFT JOIN LATERAL (SELECT x.slot_at FROM schedule_watch x WHERE x.schedule_id = n.id LIMIT 1) w ON true
-- sqlite
SELECT n.id, n.version, n.next_at, n.last_at, s.kind, s.expression, s.zone, s.start_at, s.end_at, s.exclude, s.base_at, s.jitter_s,
       s.expect_within_s, w.slot_at AS watched_at, :now AS now_at
  FROM (SELECT x.id, x.version, x.next_at, x.last_at FROM schedule_next AS x WHERE x.id > :after ORDER BY x.id LIMIT :limit) AS n
  LEFT JOIN schedule AS s ON s.id = n.id AND s.zone <> 'UTC' LEFT JOIN schedule_watch AS w ON w.schedule_id = n.id

-- name: move_zoned
-- Let the next slots of schedules be due at other times, each only if nobody has moved it since it was read.
-- locks: schedule_next rows by id, skipping locked ones: they have just been computed.
-- postgres
WITH l AS MATERIALIZED (
    SELECT i.id, i.to_next_at
      FROM rows(:cursors, id uuid, version int, next_at timestamptz, to_next_at timestamptz) AS i
      JOIN schedule_next n ON n.id = ANY(ARRAY[i.id])
     WHERE n.version = i.version AND n.next_at IS NOT DISTINCT FROM i.next_at FOR UPDATE OF n SKIP LOCKED
)
UPDATE schedule_next n SET next_at = l.to_next_at FROM l WHERE n.id = ANY(ARRAY[l.id]) RETURNING n.id
-- sqlite
UPDATE schedule_next SET next_at = i.to_next_at FROM rows(:cursors) AS i
 WHERE schedule_next.id = i.id AND schedule_next.version = i.version AND schedule_next.next_at IS i.next_at
RETURNING schedule_next.id
