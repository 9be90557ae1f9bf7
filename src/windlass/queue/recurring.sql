-- name: floor
-- The id down to which a tenant has :examined schedules, from the cursor on; no row if there are fewer.
-- index: schedule_tenant.
-- both
SELECT id FROM schedule WHERE tenant = :tenant AND id < :cursor ORDER BY id DESC LIMIT 1 OFFSET :examined

-- name: newest
-- The ids of a page of a tenant's schedules, newest first, from :floor up.
-- index: schedule_tenant.
-- both
SELECT x.id FROM schedule x WHERE x.tenant = :tenant AND x.id < :cursor AND x.id >= :floor AND {filters} ORDER BY x.id DESC LIMIT :limit

-- name: sizes
-- How many bytes of text a list shows of each of these schedules.
-- postgres
SELECT s.id, octets(s.payload, s.headers, s.tags, s.retry) AS bytes FROM schedule s WHERE s.id = ANY(CAST(:ids AS uuid[]))
-- sqlite
SELECT s.id, octets(s.payload, s.headers, s.tags, s.retry) AS bytes FROM json_each(:ids) AS i CROSS JOIN schedule AS s ON s.id = i.value

-- name: of_page
-- These schedules of a tenant, with their next slots and pauses.
-- postgres
SELECT s.*, n.next_at, n.last_at, n.waiting_count, w.missing_at, p.reason AS pause_reason, p.actor AS pause_actor, p.paused_at, p.resume_at
  FROM schedule s JOIN schedule_next n ON n.id = s.id LEFT JOIN schedule_watch w ON w.schedule_id = s.id
  LEFT JOIN pause p ON p.kind = 'schedule' AND p.tenant = s.tenant AND p.name = CAST(s.id AS text)
 WHERE s.id = ANY(CAST(:ids AS uuid[])) AND s.tenant = :tenant
-- sqlite
SELECT s.*, n.next_at, n.last_at, n.waiting_count, w.missing_at, p.reason AS pause_reason, p.actor AS pause_actor, p.paused_at, p.resume_at
  FROM json_each(:ids) AS i CROSS JOIN schedule AS s ON s.id = i.value
  JOIN schedule_next AS n ON n.id = s.id LEFT JOIN schedule_watch AS w ON w.schedule_id = s.id
  LEFT JOIN pause AS p ON p.kind = 'schedule' AND p.tenant = s.tenant AND p.name = s.id
 WHERE s.tenant = :tenant

-- name: matching
-- How many of a tenant's newest :examined schedules match, and how many there are up to that number.
-- index: schedule_tenant.
-- both
SELECT count(*) AS examined, coalesce(sum(CASE WHEN {filters} THEN 1 ELSE 0 END), 0) AS schedules
  FROM (SELECT * FROM schedule WHERE tenant = :tenant ORDER BY id DESC LIMIT :examined) x

-- name: keep_created
-- Let the job that stands for a schedule have been made when the schedule was, and be due when that was.
-- both
UPDATE job SET created_at = :created_at, run_at = :due_at WHERE id = :id

-- name: read_clock
-- The time that decides what is due.
-- both
SELECT :now AS now_at
