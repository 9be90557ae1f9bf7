-- name: lock_writers
-- Which of the leases are held as named; one writer at a time adds to the log of a job.
-- guard: job, fence, place (1 leased), the session's worker and tenant, and the session when named.
-- locks: a lock of its own for each job, by ascending id, and no place rows: as in checkpoints.sql.
-- postgres
SELECT i.number, q.attempt, q.claimed_at, pg_advisory_xact_lock(hashtextextended(CAST(i.id AS text), 7))
  FROM rows(:leases, number int, id uuid, fence int, session uuid, worker text, tenant text) AS i JOIN queue q ON q.id = ANY(ARRAY[i.id])
 WHERE q.fence = i.fence AND q.place + 0 = 1 AND (i.session IS NULL OR i.session = q.session)
   AND EXISTS (SELECT 1 FROM session s WHERE s.id = ANY(ARRAY[q.session]) AND s.worker = i.worker AND s.tenant = i.tenant)
 ORDER BY i.id
-- sqlite
SELECT i.number, q.attempt, q.claimed_at
  FROM rows(:leases) AS i CROSS JOIN queue AS q ON q.id = i.id CROSS JOIN session AS s ON s.id = q.session
 WHERE q.fence = i.fence AND q.place = 1 AND s.worker = i.worker AND s.tenant = i.tenant AND (i.session IS NULL OR i.session = q.session)
 ORDER BY q.id

-- name: held
-- Which of the leases are held as named; nothing is locked.
-- guard: as in lock_writers, which is asked again before anything is kept.
-- hot: workers wait for it.
-- postgres
SELECT i.number
  FROM rows(:leases, number int, id uuid, fence int, session uuid, worker text, tenant text) AS i JOIN queue q ON q.id = ANY(ARRAY[i.id])
 WHERE q.fence = i.fence AND q.place + 0 = 1 AND (i.session IS NULL OR i.session = q.session)
   AND EXISTS (SELECT 1 FROM session s WHERE s.id = ANY(ARRAY[q.session]) AND s.worker = i.worker AND s.tenant = i.tenant)
-- sqlite
SELECT i.number
  FROM rows(:leases) AS i CROSS JOIN queue AS q ON q.id = i.id CROSS JOIN session AS s ON s.id = q.session
 WHERE q.fence = i.fence AND q.place = 1 AND s.worker = i.worker AND s.tenant = i.tenant AND (i.session IS NULL OR i.session = q.session)

-- name: keep
-- Keep chunks of lines under leases locked before. One that is there already is left out; the first with which an attempt has written
-- more than :most bytes is kept without its lines, which count as dropped, and those after it not at all.
-- before: bytes of the chunks of the same attempt that stand before it in the list.
-- guard: the lease is held still: the lock may have been waited for since it was seen, and the job may have ended and been erased.
-- index: log_job; only the days since the claim. `place + 0`: queue by its key, not by an index of all leases.
-- postgres
INSERT INTO log (job_id, fence, seq, attempt, written_at, lines, bytes, total, dropped)
SELECT c.job_id, c.fence, c.seq, c.attempt, greatest(:now, c.claimed_at),
       CASE WHEN t.base + c.bytes > CAST(:most AS bigint) THEN CAST('' AS bytea) ELSE c.lines END,
       CASE WHEN t.base + c.bytes > CAST(:most AS bigint) THEN 0 ELSE c.bytes END, t.base + c.bytes,
       CASE WHEN t.base + c.bytes > CAST(:most AS bigint) THEN c.dropped + c.line_count ELSE c.dropped END
  FROM rows(:chunks, job_id uuid, fence int, seq int, attempt smallint, claimed_at timestamptz, lines bytea, bytes int,
            before bigint, dropped int, line_count int) AS c
 CROSS JOIN LATERAL (
       SELECT c.before + coalesce((SELECT l.total FROM log l
                                    WHERE l.job_id = c.job_id AND l.fence = c.fence AND l.written_at >= c.claimed_at
                                    ORDER BY l.seq DESC LIMIT 1), 0) AS base) t
 WHERE t.base <= CAST(:most AS bigint)
   AND (SELECT 1 FROM log l WHERE l.job_id = c.job_id AND l.fence = c.fence AND l.seq = c.seq AND l.written_at >= c.claimed_at LIMIT 1) IS NULL
   AND (SELECT 1 FROM queue q WHERE q.id = c.job_id AND q.fence = c.fence AND q.place + 0 = 1) = 1
RETURNING job_id
-- sqlite
INSERT INTO log (job_id, fence, seq, attempt, written_at, lines, bytes, total, dropped)
SELECT c.job_id, c.fence, c.seq, c.attempt, max(:now, c.claimed_at),
       CASE WHEN c.base + c.bytes > :most THEN CAST('' AS BLOB) ELSE c.lines END,
       CASE WHEN c.base + c.bytes > :most THEN 0 ELSE c.bytes END, c.base + c.bytes,
       CASE WHEN c.base + c.bytes > :most THEN c.dropped + c.line_count ELSE c.dropped END
  FROM (SELECT i.*, i.before + coalesce((SELECT l.total FROM log AS l WHERE l.job_id = i.job_id AND l.fence = i.fence
                                          ORDER BY l.seq DESC LIMIT 1), 0) AS base
          FROM rows(:chunks) AS i) AS c
 WHERE c.base <= :most AND NOT EXISTS (SELECT 1 FROM log AS l WHERE l.job_id = c.job_id AND l.fence = c.fence AND l.seq = c.seq)
RETURNING job_id

-- name: read
-- Chunks of a job's log in order, from one on; of one attempt where it is named. As many as have up to :most bytes, the first always.
-- found: how many there were to read, up to :limit.
-- index: log_job.
-- both
WITH sized AS MATERIALIZED (
    SELECT l.fence, l.seq, l.written_at, l.bytes FROM log AS l
     WHERE l.job_id = :id AND (l.fence > :fence OR (l.fence = :fence AND l.seq >= :seq))
       AND (CAST(:attempt AS int) IS NULL OR l.attempt = :attempt)
     ORDER BY l.fence, l.seq LIMIT :limit
),
cut AS MATERIALIZED (
    SELECT fence, seq, written_at, found FROM (
        SELECT s.*, count(*) OVER () AS found, sum(s.bytes) OVER (ORDER BY s.fence, s.seq) AS upto FROM sized AS s) AS c
     WHERE c.upto <= :most OR c.upto = c.bytes
)
SELECT l.fence, l.seq, l.attempt, l.lines, l.bytes, l.dropped, c.found
  FROM cut AS c JOIN log AS l ON l.job_id = :id AND l.fence = c.fence AND l.seq = c.seq AND l.written_at = c.written_at
 ORDER BY l.fence, l.seq
