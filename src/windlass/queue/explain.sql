-- name: pauses_of
-- The pauses that keep a job back: its own, its queue's, its tenant's; of a schedule in the shape of a job, the schedule's.
-- index: the primary key, once for each kind.
-- both
SELECT kind, reason, actor, resume_at FROM pause
 WHERE (kind = 'job' AND tenant = :tenant AND name = :name) OR (kind = 'schedule' AND tenant = :tenant AND name = :name)
    OR (kind = 'queue' AND tenant = :tenant AND name = :queue) OR (kind = 'tenant' AND tenant = :tenant AND name = '')
 ORDER BY kind

-- name: servers_live
-- How many servers live, and what time it is.
-- both
SELECT count(*) AS live, :now AS now_at FROM server WHERE expires_at > :now

-- name: capabilities
-- What the live workers of a tenant can run, each kind of worker once; up to :most kinds. Who drains claims no more.
-- index: session_live.
-- both
SELECT queues, tasks, labels, CAST(count(*) AS bigint) AS workers, CAST(sum(capacity) AS bigint) AS threads, CAST(sum(busy) AS bigint) AS busy
  FROM session WHERE state = 0 AND bare = 0 AND draining = 0 AND tenant = :tenant AND expires_at > :now
 GROUP BY queues, tasks, labels ORDER BY queues, tasks, labels LIMIT :most

-- name: ready_lanes
-- The lanes of a tenant that have a ready job, by name, up to :most.
-- index: the lane's unique key, then one probe of queue_ready for each lane.
-- both
SELECT l.queue, l.task, l.labels, l.paused FROM lane l
 WHERE l.tenant = :tenant AND l.task <> '' AND EXISTS (SELECT 1 FROM queue q WHERE q.place = 0 AND q.lane = l.id)
 ORDER BY l.queue, l.task, l.labels LIMIT :most
