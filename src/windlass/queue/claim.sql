-- name: claim
-- Lease the best ready jobs of each group of lanes to its sessions, slot by slot; each job gets its next fence.
-- guard: place; the lane is not paused, and not limited or of the :queue that was counted; the session lives, is not draining,
-- and is of the lane's tenant.
-- wants: lane, how many of it are read, offset of its group's slots, how many slots, low-water rank.  place: 0 ready, 1 leased.
-- A lane alone in its group is locked as it is read, so that rivals take different jobs of it. Of several lanes more is read
-- than taken: only what is best of it is locked. Where fewer of a lane are read than its group has slots, and more may follow,
-- nothing behind the last one read is taken: jobs of that lane may come before it. The caller asks again.
-- flags: 256 is set in a queue with limits, which are counted by it.
-- locks: queue rows, skipping locked ones.  index: queue_ready, at most n heads of each lane. From there on rows are found by
-- their ctid: what changed meanwhile is not there, and what is locked stays there.
-- A job may have been submitted or promoted after this transaction began: it is not claimed before that; a minute ahead at most,
-- or a clock that went back would take leases and history with it into the future.
-- Long texts are left out, and read by `texts` for as many jobs as an answer holds.
-- plan: LIMIT 1 makes the planner look lanes and sessions up one by one; it would else read them whole for a hash join.
-- postgres
WITH wanted AS MATERIALIZED (
    SELECT w.*, l.tenant, l.limited, count(*) OVER (PARTITION BY w.off) = 1 AS is_alone
      FROM rows(:wants, lane int, n int, off int, size int, hint bigint) AS w
     CROSS JOIN LATERAL (
           SELECT l.tenant, l.limited FROM lane l LEFT JOIN lane o ON o.id = CAST(:queue AS int)
            WHERE l.id = w.lane AND l.paused = 0
              AND CASE WHEN o.id IS NULL THEN l.limited = 0 ELSE o.tenant = l.tenant AND o.queue = l.queue END LIMIT 1) l
),
head AS MATERIALIZED (
    SELECT w.off, w.size, w.tenant, w.limited, x.at, x.id, x.rank, w.n < w.size AND x.number = w.n AS is_last
      FROM wanted w
     CROSS JOIN LATERAL (
           SELECT q.ctid AS at, q.id, q.rank, row_number() OVER (ORDER BY q.rank, q.id) AS number FROM queue q
            WHERE q.place = 0 AND q.lane = w.lane AND q.rank >= w.hint AND (q.start_by IS NULL OR q.start_by > :now)
            ORDER BY q.rank, q.id LIMIT w.n) x
     WHERE NOT w.is_alone
),
best AS MATERIALIZED (
    SELECT h.at, h.off, h.tenant, h.limited
      FROM (SELECT head.*, row_number() OVER o AS number, count(*) FILTER (WHERE head.is_last) OVER (o ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS beyond
              FROM head WINDOW o AS (PARTITION BY head.off ORDER BY head.rank, head.id)) h
     WHERE h.number <= h.size AND h.beyond = 0
),
pick AS MATERIALIZED (
    SELECT * FROM (
        SELECT q.ctid AS at, q.id, q.rank, b.off, b.tenant, b.limited FROM best b JOIN queue q ON q.ctid = b.at AND q.place + 0 = 0
           FOR UPDATE OF q SKIP LOCKED) x
     UNION ALL
    SELECT x.at, x.id, x.rank, w.off, w.tenant, w.limited
      FROM wanted w
     CROSS JOIN LATERAL (
           SELECT q.ctid AS at, q.id, q.rank FROM queue q
            WHERE q.place = 0 AND q.lane = w.lane AND q.rank >= w.hint AND (q.start_by IS NULL OR q.start_by > :now)
            ORDER BY q.rank, q.id LIMIT w.n FOR UPDATE OF q SKIP LOCKED) x
     WHERE w.is_alone
),
slot AS MATERIALIZED (
    SELECT p.at, (CAST(:slots AS uuid[]))[p.off + CAST(row_number() OVER (PARTITION BY p.off ORDER BY p.rank, p.id) AS int)] AS session,
           p.tenant, p.limited
      FROM pick p
),
u AS (
    UPDATE queue q SET place = 1, fence = q.fence + 1, attempt = q.attempt + 1, session = slot.session,
                       claimed_at = greatest(:now, least(q.queued_at, :now + interval '1 minute')), started_at = NULL, deadline_at = NULL,
                       flags = CASE WHEN slot.limited = 0 THEN q.flags & ~256 ELSE q.flags | 256 END
      FROM slot CROSS JOIN LATERAL (
           SELECT s.id FROM session s
            WHERE s.id = slot.session AND s.tenant = slot.tenant AND s.state + 0 = 0 AND s.draining = 0 LIMIT 1) alive
     WHERE q.ctid = slot.at AND q.place + 0 = 0
    RETURNING q.id, q.lane, q.rank, q.attempt, q.fence, q.session, q.claimed_at, q.flags
)
SELECT u.id, u.lane, u.rank, u.attempt, u.fence, u.session, j.task,
       CASE WHEN octets(j.payload, j.headers) <= :inline THEN j.payload ELSE '' END AS payload,
       CASE WHEN octets(j.payload, j.headers) <= :inline THEN j.headers END AS headers, j.tags, j.priority, j.timeout_s,
       j.max_attempts, j.run, j.run_at AS scheduled_at, j.created_at, u.claimed_at, j.schedule_id, j.flow_id, j.parent_id, u.flags,
       octets(j.payload, j.headers) AS size
  FROM u JOIN job j ON j.id = ANY(ARRAY[u.id])
-- sqlite   (the one writer takes the place of SKIP LOCKED; heads are read lane by lane, never the whole backlog)
CREATE TEMP TABLE IF NOT EXISTS claim_slot (session);
CREATE TEMP TABLE IF NOT EXISTS claim_pick (id, session, limited);
DELETE FROM temp.claim_slot;
DELETE FROM temp.claim_pick;
INSERT INTO temp.claim_slot (rowid, session) SELECT key, value FROM json_each(:slots);
INSERT INTO temp.claim_pick
SELECT b.id, c.session, b.limited
  FROM (SELECT h.id, h.off, h.size, h.tenant, h.limited, row_number() OVER o AS rn,
               count(*) FILTER (WHERE h.n < h.size AND h.ln = h.n) OVER (o ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS beyond
          FROM (SELECT q.id, q.rank, w.off, w.size, w.n, l.tenant, l.limited, row_number() OVER (PARTITION BY w.lane ORDER BY q.rank, q.id) AS ln
                  FROM rows(:wants, lane int, n int, off int, size int, hint bigint) AS w
                 CROSS JOIN lane AS l ON l.id = w.lane AND l.paused = 0
                   AND CASE WHEN :queue IS NULL THEN l.limited = 0
                            ELSE EXISTS (SELECT 1 FROM lane AS o WHERE o.id = :queue AND o.tenant = l.tenant AND o.queue = l.queue) END
                 CROSS JOIN queue AS q
                 WHERE q.id IN (SELECT x.id FROM queue AS x INDEXED BY queue_ready
                                 WHERE x.place = 0 AND x.lane = w.lane AND x.rank >= w.hint
                                   AND (x.start_by IS NULL OR x.start_by > :now)
                                 ORDER BY x.rank, x.id LIMIT (SELECT max(m.n) FROM rows(:wants) AS m))) AS h
         WHERE h.ln <= h.n WINDOW o AS (PARTITION BY h.off ORDER BY h.rank, h.id)) AS b
 CROSS JOIN temp.claim_slot AS c ON c.rowid = b.off + b.rn - 1
 CROSS JOIN session AS s ON s.id = c.session AND s.tenant = b.tenant AND s.state = 0 AND s.draining = 0
 WHERE b.rn <= b.size AND b.beyond = 0;
UPDATE queue SET place = 1, fence = fence + 1, attempt = attempt + 1, claimed_at = :now, started_at = NULL, deadline_at = NULL,
       session = p.session, flags = CASE WHEN p.limited = 0 THEN flags & ~256 ELSE flags | 256 END
  FROM temp.claim_pick AS p WHERE queue.id = p.id AND queue.place = 0;
SELECT u.id, u.lane, u.rank, u.attempt, u.fence, u.session, j.task,
       CASE WHEN octets(j.payload, j.headers) <= :inline THEN j.payload ELSE '' END AS payload,
       CASE WHEN octets(j.payload, j.headers) <= :inline THEN j.headers END AS headers, j.tags, j.priority, j.timeout_s,
       j.max_attempts, j.run, j.run_at AS scheduled_at, j.created_at, u.claimed_at, j.schedule_id, j.flow_id, j.parent_id, u.flags,
       octets(j.payload, j.headers) AS size
  FROM temp.claim_pick AS p CROSS JOIN queue AS u ON u.id = p.id CROSS JOIN job AS j ON j.id = u.id

-- name: claim_back
-- Lease retries that are kept for the worker that failed them (flag 16) to that worker's session again.
-- Not in a queue with limits: only limits.py may claim there, so such a retry waits for its window to end.
-- guard: fence, flags, the caller's tenant, a session that failed it, lives, is not draining, and outlives its leases.
-- locks: timer rows, skipping locked ones.
-- postgres
WITH pick AS MATERIALIZED (
    SELECT t.id FROM rows(:leases, id uuid, fence int) AS i JOIN timer t ON t.id = ANY(ARRAY[i.id])
     WHERE t.fence = i.fence AND t.reason = 1 AND t.flags & 17 = 16
       AND EXISTS (SELECT 1 FROM lane l JOIN session s ON s.tenant = l.tenant
                    WHERE l.id = t.lane AND l.tenant = :tenant AND l.paused = 0 AND l.limited = 0
                      AND s.id = CAST(:session AS uuid) AND s.state + 0 = 0 AND s.draining = 0 AND s.bare = 0)
       AND EXISTS (SELECT 1 FROM attempt a WHERE a.job_id = ANY(ARRAY[t.id]) AND a.fence = t.fence AND a.session = CAST(:session AS uuid))
       FOR UPDATE OF t SKIP LOCKED
),
t AS (DELETE FROM timer USING pick WHERE timer.id = ANY(ARRAY[pick.id]) RETURNING timer.*),
u AS (
    INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, session, queued_at, claimed_at, pending, flags)
    SELECT t.id, t.lane,
           CASE WHEN l.fifo = 1 THEN CAST(floor(extract(epoch FROM j.created_at) * 1000) AS bigint)
                ELSE CAST(floor(extract(epoch FROM :now) * 1000) AS bigint) - j.priority * l.credit_ms END,
           1, t.attempt + 1, t.fence + 1, t.lost, t.releases, CAST(:session AS uuid), :now, :now, 0, t.flags - 16
      FROM t JOIN job j ON j.id = ANY(ARRAY[t.id]) JOIN lane l ON l.id = t.lane
    RETURNING id, lane, rank, attempt, fence, session, claimed_at, flags
)
SELECT u.id, u.lane, u.rank, u.attempt, u.fence, u.session, j.task,
       CASE WHEN octets(j.payload, j.headers) <= :inline THEN j.payload ELSE '' END AS payload,
       CASE WHEN octets(j.payload, j.headers) <= :inline THEN j.headers END AS headers, j.tags, j.priority, j.timeout_s,
       j.max_attempts, j.run, j.run_at AS scheduled_at, j.created_at, u.claimed_at, j.schedule_id, j.flow_id, j.parent_id, u.flags,
       octets(j.payload, j.headers) AS size
  FROM u JOIN job j ON j.id = ANY(ARRAY[u.id])
-- sqlite
CREATE TEMP TABLE IF NOT EXISTS claim_back_pick (id);
DELETE FROM temp.claim_back_pick;
INSERT INTO temp.claim_back_pick
SELECT t.id FROM rows(:leases, id uuid, fence int) AS i CROSS JOIN timer AS t ON t.id = i.id
 WHERE t.fence = i.fence AND t.reason = 1 AND t.flags & 17 = 16
   AND EXISTS (SELECT 1 FROM lane AS l JOIN session AS s ON s.tenant = l.tenant
                WHERE l.id = t.lane AND l.tenant = :tenant AND l.paused = 0 AND l.limited = 0
                  AND s.id = :session AND s.state = 0 AND s.draining = 0 AND s.bare = 0)
   AND EXISTS (SELECT 1 FROM attempt AS a WHERE a.job_id = t.id AND a.fence = t.fence AND a.session = :session);
INSERT INTO queue (id, lane, rank, place, attempt, fence, lost, releases, session, queued_at, claimed_at, pending, flags)
SELECT t.id, t.lane, CASE WHEN l.fifo = 1 THEN j.created_at / 1000 ELSE :now / 1000 - j.priority * l.credit_ms END,
       1, t.attempt + 1, t.fence + 1, t.lost, t.releases, :session, :now, :now, 0, t.flags - 16
  FROM temp.claim_back_pick AS p CROSS JOIN timer AS t ON t.id = p.id
 CROSS JOIN job AS j ON j.id = t.id CROSS JOIN lane AS l ON l.id = t.lane;
DELETE FROM timer WHERE id IN (SELECT id FROM temp.claim_back_pick);
SELECT u.id, u.lane, u.rank, u.attempt, u.fence, u.session, j.task,
       CASE WHEN octets(j.payload, j.headers) <= :inline THEN j.payload ELSE '' END AS payload,
       CASE WHEN octets(j.payload, j.headers) <= :inline THEN j.headers END AS headers, j.tags, j.priority, j.timeout_s,
       j.max_attempts, j.run, j.run_at AS scheduled_at, j.created_at, u.claimed_at, j.schedule_id, j.flow_id, j.parent_id, u.flags,
       octets(j.payload, j.headers) AS size
  FROM temp.claim_back_pick AS p CROSS JOIN queue AS u ON u.id = p.id CROSS JOIN job AS j ON j.id = u.id

-- name: texts
-- The payloads and headers of jobs whose texts are long.
-- hot: workers wait for it.
-- postgres
SELECT j.id, j.payload, j.headers FROM unnest(CAST(:ids AS uuid[])) AS i (id) JOIN job j ON j.id = ANY(ARRAY[i.id])
-- sqlite
SELECT id, payload, headers FROM job WHERE id IN (SELECT value FROM json_each(:ids))

-- name: kept
-- Retries that are kept for a session, with their lanes.
-- hot: workers wait for it.
-- index: timer_kept.
-- both
SELECT id, fence, lane FROM timer WHERE session = CAST(:session AS uuid)

-- name: heads
-- Every lane that has ready jobs and is not paused, with the rank of its first: one probe of the index for each lane.
-- index: queue_ready; a loose scan, which reads no more than the lanes' first entries.
-- hot: claims wait for it.
-- postgres
WITH RECURSIVE head AS (
    (SELECT q.lane, q.rank FROM queue q WHERE q.place = 0 ORDER BY q.lane, q.rank LIMIT 1)
    UNION ALL
    SELECT x.lane, x.rank FROM head h CROSS JOIN LATERAL (
           SELECT q.lane, q.rank FROM queue q WHERE q.place = 0 AND q.lane > h.lane ORDER BY q.lane, q.rank LIMIT 1) x
)
SELECT h.rank, l.id AS number, l.tenant, l.queue, l.task, l.labels, l.key, l.paused, l.limited, l.credit_ms, l.fifo, l.max_running,
       l.rate_per_s, l.burst
  FROM head h JOIN lane l ON l.id = h.lane WHERE l.paused = 0
-- sqlite
WITH RECURSIVE head (lane) AS (
    SELECT min(q.lane) FROM queue AS q INDEXED BY queue_ready WHERE q.place = 0
    UNION ALL
    SELECT (SELECT min(q.lane) FROM queue AS q INDEXED BY queue_ready WHERE q.place = 0 AND q.lane > h.lane)
      FROM head AS h WHERE h.lane IS NOT NULL
)
SELECT (SELECT min(q.rank) FROM queue AS q INDEXED BY queue_ready WHERE q.place = 0 AND q.lane = l.id) AS rank, l.id AS number, l.tenant,
       l.queue, l.task, l.labels, l.key, l.paused, l.limited, l.credit_ms, l.fifo, l.max_running, l.rate_per_s, l.burst
  FROM head AS h CROSS JOIN lane AS l ON l.id = h.lane WHERE l.paused = 0

-- name: undo
-- Make leases ready again that no worker was told of: no attempt is used and none recorded; the fence stays as high as it is.
-- One that is to be cancelled is left: it ends with its lease.
-- guard: job, fence, place, session, not begun.  locks: queue rows by ascending id.
-- postgres
WITH l AS MATERIALIZED (
    SELECT q.id FROM rows(:leases, id uuid, fence int, session uuid) AS i JOIN queue q ON q.id = ANY(ARRAY[i.id])
     WHERE q.fence = i.fence AND q.place + 0 = 1 AND q.session = i.session AND q.started_at IS NULL AND q.flags & 2 = 0
     ORDER BY i.id FOR UPDATE OF q
)
UPDATE queue q SET place = 0, session = NULL, claimed_at = NULL, deadline_at = NULL, attempt = q.attempt - 1,
       flags = q.flags & ~256
  FROM l WHERE q.id = ANY(ARRAY[l.id]) RETURNING q.id
-- sqlite
UPDATE queue SET place = 0, session = NULL, claimed_at = NULL, deadline_at = NULL, attempt = attempt - 1, flags = flags & ~256
  FROM rows(:leases, id uuid, fence int, session uuid) AS i
 WHERE queue.id = i.id AND queue.fence = i.fence AND queue.place = 1 AND queue.session = i.session AND queue.started_at IS NULL
   AND queue.flags & 2 = 0
RETURNING id
