-- name: list_queues
-- A page of the queues of a tenant, or one of them, by name: their own rows, and the pause of the queue, else that of the tenant.
-- A queue that a deleted tenant of the same name left behind is not among them.
-- both
SELECT l.queue, l.paused, l.credit_ms, l.fifo, l.max_running, l.rate_per_s, l.burst,
       coalesce(p.kind, t.kind) AS pause_kind,
       CASE WHEN p.kind IS NULL THEN t.reason ELSE p.reason END AS pause_reason, CASE WHEN p.kind IS NULL THEN t.actor ELSE p.actor END AS pause_actor,
       coalesce(p.paused_at, t.paused_at) AS paused_at, CASE WHEN p.kind IS NULL THEN t.resume_at ELSE p.resume_at END AS resume_at
  FROM lane l LEFT JOIN pause p ON p.kind = 'queue' AND p.tenant = l.tenant AND p.name = l.queue
  LEFT JOIN pause t ON t.kind = 'tenant' AND t.tenant = l.tenant
 WHERE l.tenant = :tenant AND l.task = '' AND l.labels = '' AND l.key = '' AND l.retired = 0 AND l.queue > CAST(:cursor AS text)
   AND (CAST(:queue AS text) IS NULL OR l.queue = :queue)
 ORDER BY l.queue LIMIT :limit
