-- name: lock_notes
-- Let nobody erase these jobs before what the holders of their leases tell is written (erasure.sql).
-- guard: as in keep, which looks at the leases again.
-- locks: a lock of its own for each job, by ascending id.
-- postgres
SELECT pg_advisory_xact_lock(hashtextextended(CAST(i.id AS text), 8))
  FROM rows(:notes, id uuid, fence int, session uuid, worker text, tenant text, progress text, value text) AS i
  JOIN queue q ON q.id = ANY(ARRAY[i.id])
 WHERE q.fence = i.fence AND q.place + 0 = 1 AND (i.session IS NULL OR i.session = q.session)
   AND EXISTS (SELECT 1 FROM session s WHERE s.id = ANY(ARRAY[q.session]) AND s.worker = i.worker AND s.tenant = i.tenant)
 ORDER BY i.id
-- sqlite   (one writer at a time)
SELECT i.id FROM rows(:notes) AS i WHERE false

-- name: keep
-- Keep how far attempts are, and from where a later one may go on; of one field that is not told the old value stays.
-- guard: job, fence, place (1 leased), the session's worker and tenant, and the session when named; never over a later fence.
-- locks: checkpoint rows by ascending id, no place rows: an application may lock the place of a job that it finishes for long, and
-- nobody's words wait for that. A word that meets the end of its own lease may come after it, and is then not brought along.
-- plan: ids looked up one by one, as in report.sql.
-- postgres
INSERT INTO checkpoint AS c (job_id, fence, progress, value, updated_at)
SELECT DISTINCT ON (i.id) i.id, i.fence, i.progress, i.value, :now
  FROM rows(:notes, id uuid, fence int, session uuid, worker text, tenant text, progress text, value text) AS i
  JOIN queue q ON q.id = ANY(ARRAY[i.id])
 WHERE q.fence = i.fence AND q.place + 0 = 1 AND (i.session IS NULL OR i.session = q.session)
   AND EXISTS (SELECT 1 FROM session s WHERE s.id = ANY(ARRAY[q.session]) AND s.worker = i.worker AND s.tenant = i.tenant)
 ORDER BY i.id
ON CONFLICT (job_id) DO UPDATE SET fence = excluded.fence, progress = coalesce(excluded.progress, c.progress),
   value = coalesce(excluded.value, c.value), updated_at = excluded.updated_at
 WHERE c.fence <= excluded.fence
RETURNING job_id
-- sqlite
INSERT INTO checkpoint AS c (job_id, fence, progress, value, updated_at)
SELECT q.id, q.fence, i.progress, i.value, :now
  FROM rows(:notes) AS i CROSS JOIN queue AS q ON q.id = i.id CROSS JOIN session AS s ON s.id = q.session
 WHERE q.fence = i.fence AND q.place = 1 AND s.worker = i.worker AND s.tenant = i.tenant AND (i.session IS NULL OR i.session = q.session)
ON CONFLICT (job_id) DO UPDATE SET fence = excluded.fence, progress = coalesce(excluded.progress, c.progress),
   value = coalesce(excluded.value, c.value), updated_at = excluded.updated_at
 WHERE c.fence <= excluded.fence
RETURNING job_id

-- name: sizes
-- How large what is kept of jobs is.
-- hot: claims wait for it.
-- postgres
SELECT c.job_id, coalesce(octet_length(c.value), 0) + coalesce(octet_length(c.progress), 0) AS size
  FROM rows(:ids, id uuid) AS i JOIN checkpoint c ON c.job_id = ANY(ARRAY[i.id])
-- sqlite
SELECT c.job_id, coalesce(length(CAST(c.value AS BLOB)), 0) + coalesce(length(CAST(c.progress AS BLOB)), 0) AS size
  FROM rows(:ids) AS i CROSS JOIN checkpoint AS c ON c.job_id = i.id

-- name: read
-- The checkpoints of jobs, and how far these are.
-- hot: claims wait for it.
-- postgres
SELECT c.job_id, c.fence, c.progress, c.value, c.updated_at FROM rows(:ids, id uuid) AS i JOIN checkpoint c ON c.job_id = ANY(ARRAY[i.id])
-- sqlite
SELECT c.job_id, c.fence, c.progress, c.value, c.updated_at FROM rows(:ids) AS i CROSS JOIN checkpoint AS c ON c.job_id = i.id
