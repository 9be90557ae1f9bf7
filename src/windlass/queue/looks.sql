-- name: look
-- When each duty has something to do next, and whether jobs of :shards wait for the run before them. `foreign_at` is the next
-- slot of the shards that other servers fire. With :whole = 0 what is read whole is left out: sessions and leases.
-- hot: a duty must not wait for lists.
-- index: the first entry of timer_due, queue_start_by, pause_over, outbox_due, schedule_watch_due, backfill_open, of each shard of
-- schedule_due; all of session_live, queue_leased and schedule_behind, which are small.
-- postgres
SELECT :now AS now_at, s.expires_at, s.lease_ms,
       (SELECT p.beat_at FROM pulse p WHERE p.name = 'rescue') AS beat_at,
       (SELECT due_at FROM timer ORDER BY due_at LIMIT 1) AS promote_at,
       (SELECT min(q.deadline_at) FROM queue q WHERE q.place = 1 AND CAST(:whole AS int) = 1) AS overdue_at,
       (SELECT q.start_by FROM queue q WHERE q.place <> 1 AND q.start_by IS NOT NULL ORDER BY q.start_by LIMIT 1) AS start_by,
       (SELECT min(p.resume_at) FROM pause p WHERE p.resume_at IS NOT NULL) AS resume_at,
       (SELECT o.due_at FROM outbox o WHERE o.error IS NULL ORDER BY o.due_at, o.id LIMIT 1) AS relay_at,
       (SELECT b.created_at FROM backfill b WHERE b.state = 0 ORDER BY b.id LIMIT 1) AS backfill_at,
       (SELECT w.due_at FROM schedule_watch w ORDER BY w.due_at LIMIT 1) AS watch_at,
       (SELECT min(n.next_at) FROM unnest(CAST(:shards AS smallint[])) AS p (shard) CROSS JOIN LATERAL (
               SELECT x.next_at FROM schedule_next x WHERE x.shard = p.shard AND x.next_at IS NOT NULL AND x.id <> ALL(CAST(:without AS uuid[]))
                ORDER BY x.next_at LIMIT 1) n) AS fire_at,
       (SELECT min(n.next_at) FROM unnest(CAST(:foreign AS smallint[])) AS p (shard) CROSS JOIN LATERAL (
               SELECT x.next_at FROM schedule_next x WHERE x.shard = p.shard AND x.next_at IS NOT NULL ORDER BY x.next_at LIMIT 1) n) AS foreign_at,
       CASE WHEN EXISTS (SELECT 1 FROM schedule_next b WHERE b.waiting_count > 0 AND b.shard = ANY(CAST(:shards AS smallint[]))) THEN 1 ELSE 0 END AS behind
  FROM (SELECT min(l.expires_at) AS expires_at, min(l.lease_ms) AS lease_ms FROM session l WHERE l.state = 0 AND CAST(:whole AS int) = 1) s
-- sqlite
SELECT :now AS now_at, s.expires_at, s.lease_ms,
       (SELECT p.beat_at FROM pulse AS p WHERE p.name = 'rescue') AS beat_at,
       (SELECT due_at FROM timer ORDER BY due_at LIMIT 1) AS promote_at,
       (SELECT min(q.deadline_at) FROM queue AS q WHERE q.place = 1 AND :whole = 1) AS overdue_at,
       (SELECT q.start_by FROM queue AS q WHERE q.place <> 1 AND q.start_by IS NOT NULL ORDER BY q.start_by LIMIT 1) AS start_by,
       (SELECT min(p.resume_at) FROM pause AS p WHERE p.resume_at IS NOT NULL) AS resume_at,
       (SELECT o.due_at FROM outbox AS o WHERE o.error IS NULL ORDER BY o.due_at, o.id LIMIT 1) AS relay_at,
       (SELECT b.created_at FROM backfill AS b WHERE b.state = 0 ORDER BY b.id LIMIT 1) AS backfill_at,
       (SELECT w.due_at FROM schedule_watch AS w ORDER BY w.due_at LIMIT 1) AS watch_at,
       (SELECT min((SELECT x.next_at FROM schedule_next AS x WHERE x.shard = p.value AND x.next_at IS NOT NULL
                     AND x.id NOT IN (SELECT value FROM json_each(:without)) ORDER BY x.next_at LIMIT 1))
          FROM json_each(:shards) AS p) AS fire_at,
       (SELECT min((SELECT x.next_at FROM schedule_next AS x WHERE x.shard = p.value AND x.next_at IS NOT NULL ORDER BY x.next_at LIMIT 1))
          FROM json_each(:foreign) AS p) AS foreign_at,
       CASE WHEN EXISTS (SELECT 1 FROM schedule_next AS b WHERE b.waiting_count > 0
                          AND b.shard IN (SELECT value FROM json_each(:shards))) THEN 1 ELSE 0 END AS behind
  FROM (SELECT min(l.expires_at) AS expires_at, min(l.lease_ms) AS lease_ms FROM session AS l WHERE l.state = 0 AND :whole = 1) AS s
