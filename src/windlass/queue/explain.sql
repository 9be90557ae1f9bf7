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
-- What the live workers of a tenant can run, each kind of worker once: of up to :limit workers, those that have run longest, until what
-- they say has :most bytes. live: how many there were, up to :limit. Draining workers are left out: they claim no more.
-- index: session_live.  cost: SQLite reads a text to know its bytes, so it goes from one worker to the next and stops there.
-- postgres
WITH sized AS MATERIALIZED (
    SELECT s.id, s.started_at, octets(s.queues, s.tasks, s.labels) AS bytes FROM session s
     WHERE s.state = 0 AND s.bare = 0 AND s.draining = 0 AND s.tenant = :tenant AND s.expires_at > :now ORDER BY s.started_at, s.id LIMIT :limit
),
cut AS MATERIALIZED (
    SELECT c.id, c.live FROM (SELECT z.*, count(*) OVER () AS live, sum(z.bytes) OVER (ORDER BY z.started_at, z.id) AS upto FROM sized z) c
     WHERE c.upto - c.bytes < :most
)
SELECT s.queues, s.tasks, s.labels, max(c.live) AS live, CAST(count(*) AS bigint) AS workers, CAST(sum(s.capacity) AS bigint) AS threads,
       CAST(sum(s.busy) AS bigint) AS busy
  FROM cut c JOIN session s ON s.id = ANY(ARRAY[c.id]) GROUP BY s.queues, s.tasks, s.labels
-- sqlite
WITH RECURSIVE cut (number, started_at, place, upto) AS (
    SELECT 0, -1, 0, 0
    UNION ALL
    SELECT s.rowid, s.started_at, c.place + 1, c.upto + octets(s.queues, s.tasks, s.labels) FROM cut AS c CROSS JOIN session AS s
        ON s.rowid = (SELECT n.rowid FROM session AS n INDEXED BY session_live
                       WHERE n.state = 0 AND n.bare = 0 AND n.draining = 0 AND n.tenant = :tenant AND n.expires_at > :now
                         AND (n.started_at, n.rowid) > (c.started_at, c.number) ORDER BY n.started_at, n.rowid LIMIT 1)
     WHERE c.place < :limit AND c.upto < :most
)
SELECT s.queues, s.tasks, s.labels, count(*) AS workers, sum(s.capacity) AS threads, sum(s.busy) AS busy,
       (SELECT count(*) FROM (SELECT 1 FROM session AS n INDEXED BY session_live
         WHERE n.state = 0 AND n.bare = 0 AND n.draining = 0 AND n.tenant = :tenant AND n.expires_at > :now LIMIT :limit)) AS live
  FROM cut AS c CROSS JOIN session AS s ON s.rowid = c.number GROUP BY s.queues, s.tasks, s.labels

-- name: ready_lanes
-- The lanes of a tenant that have a ready job, by name, up to :limit and as many as fit into :most bytes, the first always.
-- found: how many there were, up to :limit.
-- index: the lane's unique key, then one probe of queue_ready for each lane.
-- both
SELECT c.queue, c.task, c.labels, c.paused, c.found FROM (
    SELECT r.*, count(*) OVER () AS found, sum(r.bytes) OVER (ORDER BY r.queue, r.task, r.labels, r.id) AS upto FROM (
        SELECT l.id, l.queue, l.task, l.labels, l.paused, octets(l.queue, l.task, l.labels) AS bytes FROM lane l
         WHERE l.tenant = :tenant AND l.task <> '' AND EXISTS (SELECT 1 FROM queue q WHERE q.place = 0 AND q.lane = l.id)
         ORDER BY l.queue, l.task, l.labels LIMIT :limit) r
) c WHERE c.upto <= :most OR c.upto = c.bytes ORDER BY c.queue, c.task, c.labels
