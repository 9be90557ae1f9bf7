-- name: register
-- Note what a worker says of itself that names no session: a new start of the one presence that a worker may have.
-- presence: 1, or 2 where the worker has asked for its length.
-- index: session_presence.
-- both
INSERT INTO session AS s (id, worker, tenant, state, lease_ms, expires_at, heartbeat_at, started_at, capacity, busy, bare, draining,
                     presence, host, pid, version, build, region, labels, tasks, queues)
VALUES (:id, :worker, :tenant, 0, :lease_ms, :now + CAST(:lease_ms AS int) * interval '1 millisecond', :now, :now, :capacity, 0, 0, 0,
        :presence, :host, :pid, :version, :build, :region, :labels, :tasks, :queues)
ON CONFLICT (tenant, worker) WHERE presence > 0 AND state = 0 DO UPDATE SET id = excluded.id, lease_ms = excluded.lease_ms,
   expires_at = excluded.expires_at, heartbeat_at = excluded.heartbeat_at, started_at = excluded.started_at, capacity = excluded.capacity,
   busy = 0, draining = 0, presence = excluded.presence, host = excluded.host, pid = excluded.pid, version = excluded.version,
   build = excluded.build, region = excluded.region, labels = excluded.labels, tasks = excluded.tasks, queues = excluded.queues

-- name: appear
-- Make the presence of a caller that keeps no session, or renew it. A new one says what the worker's last row said, in the same start.
-- Who comes back within :slow_ms of a presence that has lapsed calls less often than was thought: the new one lasts as long.
-- index: session_presence, session_worker.
-- hot: workers wait for it.
-- both
INSERT INTO session AS s (id, worker, tenant, state, lease_ms, expires_at, heartbeat_at, started_at, capacity, busy, bare, draining,
                     presence, host, pid, version, build, region, labels, tasks, queues)
SELECT CAST(:id AS uuid), CAST(:worker AS text), CAST(:tenant AS text), 0, n.lease_ms, :now + n.lease_ms * interval '1 millisecond', :now,
       coalesce(n.started_at, :now), coalesce(n.capacity, 1), 0, 0, 0, CASE WHEN n.presence = 2 THEN 2 ELSE 1 END,
       n.host, n.pid, n.version, n.build, n.region, n.labels, n.tasks, n.queues
  FROM (SELECT w.*, CASE WHEN w.presence = 2 THEN w.asked_ms
                         WHEN w.presence = 1 AND w.heartbeat_at > :now - CAST(:slow_ms AS int) * interval '1 millisecond'
                         THEN greatest(w.asked_ms, CAST(:lease_ms AS int), CAST(:slow_ms AS int))
                         WHEN w.presence = 0 THEN greatest(w.asked_ms, CAST(:lease_ms AS int)) ELSE CAST(:lease_ms AS int) END AS lease_ms
          FROM (SELECT 1) AS one LEFT JOIN (
               SELECT started_at, heartbeat_at, lease_ms AS asked_ms, capacity, presence, host, pid, version, build, region, labels, tasks, queues
                 FROM session WHERE bare = 0 AND state <> 2 AND tenant = :tenant AND worker = :worker
                ORDER BY started_at DESC, heartbeat_at DESC LIMIT 1) AS w ON true) AS n WHERE true
ON CONFLICT (tenant, worker) WHERE presence > 0 AND state = 0 DO UPDATE SET heartbeat_at = :now,
   lease_ms = CASE WHEN s.presence = 1 THEN greatest(s.lease_ms, CAST(:lease_ms AS int)) ELSE s.lease_ms END,
   expires_at = :now + CASE WHEN s.presence = 1 THEN greatest(s.lease_ms, CAST(:lease_ms AS int)) ELSE s.lease_ms END * interval '1 millisecond'
RETURNING id, lease_ms, presence, draining
