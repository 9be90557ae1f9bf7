-- name: i3_unique_keys
-- I3: a live job with a unique key holds it, and its place is marked; a key held while its job lives names a live job.
-- both
SELECT * FROM (
    SELECT CAST(j.id AS text) AS subject, 'unique key ' || j.unique_key || ' is not held by this live job' AS detail
      FROM (SELECT id FROM queue UNION ALL SELECT id FROM timer) p JOIN job j ON j.id = p.id WHERE j.unique_key IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM dedup d WHERE d.job_id = j.id AND d.expires_at IS NULL AND d.key = j.unique_key)
    UNION ALL
    SELECT CAST(d.job_id AS text), 'unique key ' || d.key || ' is held by a job that is not live'
      FROM dedup d WHERE d.expires_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = d.job_id) AND NOT EXISTS (SELECT 1 FROM timer t WHERE t.id = d.job_id)
    UNION ALL
    SELECT CAST(j.id AS text), 'unique key ' || j.unique_key || ' is not marked on the place'
      FROM queue q JOIN job j ON j.id = q.id WHERE j.unique_key IS NOT NULL AND q.flags & 4 = 0
    UNION ALL
    SELECT CAST(j.id AS text), 'unique key ' || j.unique_key || ' is not marked on the timer'
      FROM timer t JOIN job j ON j.id = t.id WHERE j.unique_key IS NOT NULL AND t.flags & 4 = 0
) v LIMIT :limit

-- name: i4_one_end
-- I4: a job ends once: in done or in dead, not in both, not while it lives, and once for each run; what it was stays with its end.
-- both
SELECT * FROM (
    SELECT CAST(d.id AS text) AS subject, 'in done and in dead' AS detail FROM dead d WHERE EXISTS (SELECT 1 FROM done x WHERE x.id = d.id)
    UNION ALL
    SELECT CAST(p.id AS text), 'live and in dead' FROM (SELECT id FROM queue UNION ALL SELECT id FROM timer) p
     WHERE EXISTS (SELECT 1 FROM dead x WHERE x.id = p.id)
    UNION ALL
    SELECT CAST(p.id AS text), 'live and in done' FROM (SELECT id FROM queue UNION ALL SELECT id FROM timer) p
     WHERE EXISTS (SELECT 1 FROM done x WHERE x.id = p.id)
    UNION ALL
    SELECT CAST(d.id AS text), 'ended more than once' FROM done d GROUP BY d.id HAVING count(*) > 1
    UNION ALL
    SELECT CAST(d.id AS text), 'in done without a job' FROM done d WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = d.id)
    UNION ALL
    SELECT CAST(d.id AS text), 'in dead without a job' FROM dead d WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = d.id)
    UNION ALL
    SELECT CAST(d.id AS text), 'in done with outcome ' || CAST(d.outcome AS text) FROM done d WHERE d.outcome NOT IN (0, 4, 7)
) v LIMIT :limit

-- name: i5_fences
-- I5: a (job, fence) is given out once; no ended attempt has a higher fence than its job.
-- both
SELECT * FROM (
    SELECT CAST(a.job_id AS text) AS subject, 'fence ' || CAST(a.fence AS text) || ' ended more than once' AS detail
      FROM attempts a WHERE a.session IS NOT NULL GROUP BY a.job_id, a.fence HAVING count(*) > 1
    UNION ALL
    SELECT CAST(q.id AS text), 'fence ' || CAST(q.fence AS text) || ' is below that of an ended attempt'
      FROM queue q WHERE EXISTS (SELECT 1 FROM attempt a WHERE a.job_id = q.id AND a.fence > q.fence)
    UNION ALL
    SELECT CAST(q.id AS text), 'fence ' || CAST(q.fence AS text) || ' is leased and has ended'
      FROM queue q JOIN attempt a ON a.job_id = q.id AND a.fence = q.fence WHERE q.place = 1
    UNION ALL
    SELECT CAST(t.id AS text), 'fence ' || CAST(t.fence AS text) || ' is below that of an ended attempt'
      FROM timer t WHERE EXISTS (SELECT 1 FROM attempt a WHERE a.job_id = t.id AND a.fence > t.fence)
) v LIMIT :limit

-- name: i10_attempts
-- I10: no job has used more attempts, or lost more leases, than it has. A policy by error type may allow more attempts.
-- both
SELECT * FROM (
    SELECT CAST(v.id AS text) AS subject,
           'attempt ' || CAST(v.attempt AS text) || ' of ' || CAST(v.max_attempts AS text) || ', lost ' || CAST(v.lost AS text)
           || ' of ' || CAST(v.max_lost AS text) AS detail
      FROM jobs v
     WHERE (v.attempt > v.max_attempts AND (v.retry IS NULL OR v.retry NOT LIKE '%by_error%')) OR v.lost > v.max_lost
        OR (v.finished_at IS NULL AND v.lost >= v.max_lost) OR v.attempt < 0 OR v.lost < 0
) v LIMIT :limit

-- name: i12_pending
-- I12: what is ready or leased waits for nobody; what is blocked waits for somebody.
-- both
SELECT CAST(q.id AS text) AS subject, 'place ' || CAST(q.place AS text) || ' with ' || CAST(q.pending AS text) || ' open parents' AS detail
  FROM queue q WHERE (q.place IN (0, 1) AND q.pending <> 0) OR (q.place = 2 AND q.pending < 1) OR q.pending < 0 LIMIT :limit

-- name: i15_limits
-- I15: no queue has more leased jobs than its limit. (One lowered while more were running shows here until they end.)
-- both
SELECT * FROM (
    SELECT o.tenant || '/' || o.queue AS subject,
           CAST(count(*) AS text) || ' leased, limit ' || CAST(min(o.max_running) AS text) AS detail
      FROM lane o JOIN lane l ON l.tenant = o.tenant AND l.queue = o.queue JOIN queue q ON q.lane = l.id AND q.place = 1
     WHERE o.task = '' AND o.max_running IS NOT NULL
     GROUP BY o.tenant, o.queue HAVING count(*) > min(o.max_running)
) v LIMIT :limit

-- name: i20_times
-- I20: created, claimed, started and finished come in this order.
-- both
SELECT * FROM (
    SELECT CAST(v.id AS text) AS subject, 'times of the job are out of order' AS detail
      FROM jobs v WHERE v.created_at > v.claimed_at OR v.claimed_at > v.started_at OR v.started_at > v.finished_at
          OR v.claimed_at > v.finished_at OR v.created_at > v.finished_at
    UNION ALL
    SELECT CAST(a.job_id AS text), 'times of attempt ' || CAST(a.fence AS text) || ' are out of order'
      FROM attempt a WHERE a.claimed_at > a.started_at OR a.started_at > a.finished_at OR a.claimed_at > a.finished_at
) v LIMIT :limit

-- name: i21_one_place
-- I21: a job lives in exactly one place, or it has ended. (On PostgreSQL the row of a job goes later than its end: only rows are looked
-- at whose ends cannot be gone.)
-- postgres
SELECT * FROM (
    SELECT CAST(j.id AS text) AS subject, 'a job without a place or an end' AS detail FROM job j
     WHERE j.created_at >= (SELECT CAST(to_date(min(right(c.relname, 8)), 'YYYYMMDD') AS timestamp) AT TIME ZONE 'UTC'
                              FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
                             WHERE i.inhparent = to_regclass('windlass.done') AND NOT i.inhdetachpending)
       AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = j.id) AND NOT EXISTS (SELECT 1 FROM timer t WHERE t.id = j.id)
       AND NOT EXISTS (SELECT 1 FROM done d WHERE d.id = j.id) AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.id = j.id)
    UNION ALL
    SELECT CAST(q.id AS text), 'in queue without a job' FROM queue q WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = q.id)
    UNION ALL
    SELECT CAST(t.id AS text), 'in timer without a job' FROM timer t WHERE NOT EXISTS (SELECT 1 FROM job j WHERE j.id = t.id)
    UNION ALL
    SELECT CAST(q.id AS text), 'in queue and in timer' FROM queue q WHERE EXISTS (SELECT 1 FROM timer t WHERE t.id = q.id)
    UNION ALL
    SELECT CAST(q.id AS text), 'in queue of lane ' || CAST(q.lane AS text) || ', and of lane ' || CAST(j.lane AS text)
      FROM queue q JOIN job j ON j.id = q.id WHERE j.lane <> q.lane
    UNION ALL
    SELECT CAST(t.id AS text), 'in timer of lane ' || CAST(t.lane AS text) || ', and of lane ' || CAST(j.lane AS text)
      FROM timer t JOIN job j ON j.id = t.id WHERE j.lane <> t.lane
) v LIMIT :limit
-- sqlite
SELECT * FROM (
    SELECT j.id AS subject, 'a job without a place or an end' AS detail FROM job AS j
     WHERE NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.id = j.id) AND NOT EXISTS (SELECT 1 FROM timer AS t WHERE t.id = j.id)
       AND NOT EXISTS (SELECT 1 FROM done AS d WHERE d.id = j.id) AND NOT EXISTS (SELECT 1 FROM dead AS d WHERE d.id = j.id)
    UNION ALL
    SELECT q.id, 'in queue without a job' FROM queue AS q WHERE NOT EXISTS (SELECT 1 FROM job AS j WHERE j.id = q.id)
    UNION ALL
    SELECT t.id, 'in timer without a job' FROM timer AS t WHERE NOT EXISTS (SELECT 1 FROM job AS j WHERE j.id = t.id)
    UNION ALL
    SELECT q.id, 'in queue and in timer' FROM queue AS q WHERE EXISTS (SELECT 1 FROM timer AS t WHERE t.id = q.id)
    UNION ALL
    SELECT q.id, 'in queue of lane ' || q.lane || ', and of lane ' || j.lane FROM queue AS q JOIN job AS j ON j.id = q.id WHERE j.lane <> q.lane
    UNION ALL
    SELECT t.id, 'in timer of lane ' || t.lane || ', and of lane ' || j.lane FROM timer AS t JOIN job AS j ON j.id = t.id WHERE j.lane <> t.lane
) v LIMIT :limit

-- name: i22_leases
-- I22: leased means a session, a fence and a claim time; a deadline from the told start on. Not leased means none of them.
-- both
SELECT * FROM (
    SELECT CAST(q.id AS text) AS subject, 'leased without session, fence or claim time' AS detail
      FROM queue q WHERE q.place = 1 AND (q.session IS NULL OR q.fence < 1 OR q.claimed_at IS NULL)
    UNION ALL
    SELECT CAST(q.id AS text), 'leased by a session that does not exist'
      FROM queue q WHERE q.place = 1 AND q.session IS NOT NULL AND NOT EXISTS (SELECT 1 FROM session s WHERE s.id = q.session)
    UNION ALL
    SELECT CAST(q.id AS text), 'started, with a time-out and without a deadline'
      FROM queue q JOIN job j ON j.id = q.id
     WHERE q.place = 1 AND q.started_at IS NOT NULL AND j.timeout_s IS NOT NULL AND q.deadline_at IS NULL
    UNION ALL
    SELECT CAST(q.id AS text), 'not leased, with a session, claim, start or deadline' FROM queue q
     WHERE q.place <> 1 AND (q.session IS NOT NULL OR q.claimed_at IS NOT NULL OR q.started_at IS NOT NULL OR q.deadline_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.id = q.id AND o.kind = 'finish' AND o.fence = q.fence AND q.place = 3 AND q.session IS NOT NULL)
    UNION ALL
    SELECT CAST(q.id AS text), 'cancel asked of a job that is not leased' FROM queue q WHERE q.place <> 1 AND q.flags & 2 = 2
    UNION ALL
    SELECT CAST(q.id AS text), 'unknown place ' || CAST(q.place AS text) FROM queue q WHERE q.place NOT IN (0, 1, 2, 3)
) v LIMIT :limit

-- name: partitions
-- Partitions: what happens today and on the next two days can be written; of job there are few, for each statement that joins it opens
-- all of them. SQLite has none.
-- postgres
WITH spans AS (
    SELECT c.relname AS name, substring(pg_catalog.pg_get_expr(c.relpartbound, c.oid) FROM 'FROM .''([0-9a-f-]{36})''') AS since_id,
           substring(pg_catalog.pg_get_expr(c.relpartbound, c.oid) FROM 'TO .''([0-9a-f-]{36})''') COLLATE "C" AS until_id
      FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = to_regclass('windlass.job') AND NOT i.inhdetachpending
)
SELECT * FROM (
    SELECT w.history AS subject,
           'no partition for ' || string_agg(to_char(w.day, 'YYYY-MM-DD'), ', ' ORDER BY w.day)
           || ', so nothing can be written to it then. Run `windlass migrate` or start a server: either makes the days ahead.' AS detail
      FROM (SELECT h.history, CAST(:now AT TIME ZONE 'UTC' AS date) + n.ahead AS day
              FROM unnest(ARRAY['done', 'attempt', 'event', 'log', 'schedule_runs']) AS h(history) CROSS JOIN generate_series(0, 2) AS n(ahead)) AS w
     WHERE NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = to_regclass('windlass.' || w.history) AND NOT i.inhdetachpending
           AND c.relname = w.history || '_' || to_char(w.day, 'YYYYMMDD'))
     GROUP BY w.history
    UNION ALL
    SELECT 'job', 'no partition for the days after ' || to_char(to_timestamp(CAST(CAST('x' || left(replace(p.until_id, '-', ''), 12) AS bit(48)) AS bigint) / 1000.0 - 1)
           AT TIME ZONE 'UTC', 'YYYY-MM-DD') || ', so no job can be submitted then. Run `windlass migrate` or start a server: either makes the days ahead.'
      FROM (SELECT max(until_id) AS until_id FROM spans) AS p
     WHERE CAST(CAST('x' || left(replace(p.until_id, '-', ''), 12) AS bit(48)) AS bigint) < extract(epoch FROM CAST(:now AT TIME ZONE 'UTC' AS date) + 3) * 1000
    UNION ALL
    SELECT CAST(s.name AS text), 'a gap lies before this partition of job' FROM spans s
     WHERE s.since_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM spans p WHERE p.until_id = s.since_id)
    UNION ALL
    SELECT 'job', CAST(count(*) AS text) || ' partitions, and each statement that joins job opens all of them. Many jobs wait for long or are dead,'
           || ' and keep old ones: purge dead jobs, or keep history for less long.'
      FROM spans HAVING count(*) > 20
) v LIMIT :limit
-- sqlite
SELECT '' AS subject, '' AS detail WHERE false LIMIT :limit

-- name: pauses
-- Pause: the bits that claims read say what the pauses say; what is held is paused, what is ready is not.
-- both
SELECT * FROM (
    SELECT l.tenant || '/' || l.queue AS subject, 'lane ' || CAST(l.id AS text) || ' has pause bits ' || CAST(l.paused AS text) AS detail
      FROM lane l
     WHERE l.paused <> CASE WHEN EXISTS (SELECT 1 FROM pause p WHERE p.kind = 'queue' AND p.tenant = l.tenant AND p.name = l.queue)
                            THEN 1 ELSE 0 END
                       + CASE WHEN EXISTS (SELECT 1 FROM pause p WHERE p.kind = 'tenant' AND p.tenant = l.tenant) THEN 2 ELSE 0 END
    UNION ALL
    SELECT CAST(q.id AS text), 'ready and paused' FROM queue q WHERE q.place IN (0, 2) AND q.flags & 1 = 1
    UNION ALL
    SELECT CAST(q.id AS text), 'held and not paused' FROM queue q WHERE q.place = 3 AND q.flags & 1 = 0 AND q.session IS NULL
    UNION ALL
    SELECT CAST(q.id AS text), 'paused, and nobody said so' FROM queue q
     WHERE q.flags & 1 = 1 AND NOT EXISTS (SELECT 1 FROM pause p WHERE p.kind = 'job' AND p.name = CAST(q.id AS text))
    UNION ALL
    SELECT CAST(t.id AS text), 'a paused timer, and nobody said so' FROM timer t
     WHERE t.flags & 1 = 1 AND NOT EXISTS (SELECT 1 FROM pause p WHERE p.kind = 'job' AND p.name = CAST(t.id AS text))
) v LIMIT :limit

-- name: references
-- Every row names a lane that exists. (There are no foreign keys on hot tables.)
-- both
SELECT * FROM (
    SELECT CAST(q.id AS text) AS subject, 'in queue, of no lane' AS detail FROM queue q WHERE NOT EXISTS (SELECT 1 FROM lane l WHERE l.id = q.lane)
    UNION ALL
    SELECT CAST(t.id AS text), 'in timer, of no lane' FROM timer t WHERE NOT EXISTS (SELECT 1 FROM lane l WHERE l.id = t.lane)
    UNION ALL
    SELECT CAST(d.id AS text), 'in done, of no lane' FROM done d WHERE NOT EXISTS (SELECT 1 FROM lane l WHERE l.id = d.lane)
    UNION ALL
    SELECT CAST(d.id AS text), 'in dead, of no lane' FROM dead d WHERE NOT EXISTS (SELECT 1 FROM lane l WHERE l.id = d.lane)
) v LIMIT :limit

-- name: outbox
-- Outbox: a finish that waits for its relay names a lease that waits for it; and rows that cannot be done are for people to see.
-- both
SELECT * FROM (
    SELECT CAST(o.id AS text) AS subject, 'a finish of fence ' || CAST(o.fence AS text) || ' that no held lease waits for' AS detail
      FROM outbox o
     WHERE o.kind = 'finish' AND NOT EXISTS (
        SELECT 1 FROM queue q WHERE q.id = o.id AND q.fence = o.fence AND q.place = 3 AND q.session IS NOT NULL)
    UNION ALL
    SELECT CAST(o.id AS text), 'set aside: ' || o.error || ' Delete the row, or clear its error to have it tried again.' FROM outbox o
     WHERE o.error IS NOT NULL
) v LIMIT :limit

-- name: schedules
-- Schedules: each stands in one place, of the same version; nothing is kept of one that is gone; what is paused is due never,
-- and somebody said so; jobs wait where they are counted, and are blocked or held.
-- both
SELECT * FROM (
    SELECT CAST(s.id AS text) AS subject, 'a schedule that stands nowhere' AS detail FROM schedule s
     WHERE NOT EXISTS (SELECT 1 FROM schedule_next n WHERE n.id = s.id)
    UNION ALL
    SELECT CAST(s.id AS text), 'of version ' || CAST(s.version AS text) || ', and stands as version ' || CAST(n.version AS text)
      FROM schedule s JOIN schedule_next n ON n.id = s.id WHERE n.version <> s.version
    UNION ALL
    SELECT CAST(n.id AS text), 'stands, of no schedule' FROM schedule_next n WHERE NOT EXISTS (SELECT 1 FROM schedule s WHERE s.id = n.id)
    UNION ALL
    SELECT CAST(w.job_id AS text), 'waits for a run of no schedule' FROM schedule_wait w
     WHERE NOT EXISTS (SELECT 1 FROM schedule s WHERE s.id = w.schedule_id)
    UNION ALL
    SELECT CAST(w.schedule_id AS text), 'runs are expected of no schedule' FROM schedule_watch w
     WHERE NOT EXISTS (SELECT 1 FROM schedule s WHERE s.id = w.schedule_id)
    UNION ALL
    SELECT CAST(b.id AS text), 'a backfill of no schedule' FROM backfill b WHERE NOT EXISTS (SELECT 1 FROM schedule s WHERE s.id = b.schedule_id)
    UNION ALL
    SELECT p.name, 'a pause of no schedule that is paused' FROM pause p
     WHERE p.kind = 'schedule'
       AND NOT EXISTS (SELECT 1 FROM schedule s WHERE CAST(s.id AS text) = p.name AND s.tenant = p.tenant AND s.paused = 1)
    UNION ALL
    SELECT CAST(s.id AS text), 'a paused schedule, and nobody said so' FROM schedule s
     WHERE s.paused = 1 AND NOT EXISTS (SELECT 1 FROM pause p WHERE p.kind = 'schedule' AND p.tenant = s.tenant AND p.name = CAST(s.id AS text))
    UNION ALL
    SELECT CAST(s.id AS text), 'paused and due' FROM schedule s JOIN schedule_next n ON n.id = s.id WHERE s.paused = 1 AND n.next_at IS NOT NULL
    UNION ALL
    SELECT CAST(n.id AS text), 'due again at a slot that was decided' FROM schedule_next n WHERE n.next_at <= n.last_at
    UNION ALL
    SELECT CAST(n.id AS text), CAST(n.waiting_count AS text) || ' jobs wait, by the count'
      FROM schedule_next n WHERE n.waiting_count <> (SELECT count(*) FROM schedule_wait w WHERE w.schedule_id = n.id)
    UNION ALL
    SELECT CAST(w.job_id AS text), 'waits for the run before it, and is not blocked' FROM schedule_wait w
      LEFT JOIN queue q ON q.id = w.job_id LEFT JOIN timer t ON t.id = w.job_id WHERE q.place NOT IN (2, 3) OR q.pending < 1 OR t.id IS NOT NULL
) v LIMIT :limit

-- name: slots
-- Slots: no two live jobs are of one slot, and the slot of each is written down. (Of a schedule that is gone it may be purged,
-- and of an old slot it may be past retention.)
-- postgres
SELECT * FROM (
    SELECT CAST(j.schedule_id AS text) AS subject, 'two live jobs of the slot ' || CAST(j.slot_at AS text) AS detail
      FROM (SELECT id FROM queue UNION ALL SELECT id FROM timer) p JOIN job j ON j.id = p.id
     WHERE j.schedule_id IS NOT NULL AND j.slot_at IS NOT NULL GROUP BY j.schedule_id, j.slot_at HAVING count(*) > 1
    UNION ALL
    SELECT CAST(j.id AS text), 'of the slot ' || CAST(j.slot_at AS text) || ', which is not written down as its own'
      FROM (SELECT id FROM queue UNION ALL SELECT id FROM timer) p JOIN job j ON j.id = p.id
     WHERE j.slot_at >= :now - interval '1 day' AND EXISTS (SELECT 1 FROM schedule s WHERE s.id = j.schedule_id)
       AND NOT EXISTS (SELECT 1 FROM schedule_runs r WHERE r.schedule_id = j.schedule_id AND r.slot_at = j.slot_at AND r.job_id = j.id)
) v LIMIT :limit
-- sqlite
SELECT * FROM (
    SELECT j.schedule_id AS subject, 'two live jobs of the slot ' || CAST(j.slot_at AS text) AS detail
      FROM (SELECT id FROM queue UNION ALL SELECT id FROM timer) AS p JOIN job AS j ON j.id = p.id
     WHERE j.schedule_id IS NOT NULL AND j.slot_at IS NOT NULL GROUP BY j.schedule_id, j.slot_at HAVING count(*) > 1
    UNION ALL
    SELECT j.id, 'of the slot ' || CAST(j.slot_at AS text) || ', which is not written down as its own'
      FROM (SELECT id FROM queue UNION ALL SELECT id FROM timer) AS p JOIN job AS j ON j.id = p.id
     WHERE j.slot_at >= :now - 86400000000 AND EXISTS (SELECT 1 FROM schedule AS s WHERE s.id = j.schedule_id)
       AND NOT EXISTS (SELECT 1 FROM schedule_runs AS r WHERE r.schedule_id = j.schedule_id AND r.slot_at = j.slot_at AND r.job_id = j.id)
) v LIMIT :limit
