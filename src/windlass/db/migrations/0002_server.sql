-- The servers: who they are, who does which duty, who may call them, what people did by hand, and statistics by the minute.

-- postgres

CREATE TABLE windlass.server (
    id uuid NOT NULL, name text NOT NULL, version text NOT NULL, address text, started_at timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, PRIMARY KEY (id)
) WITH (fillfactor = 50);

-- Logged like every table: a term must survive a crash. No holder: the duty was given up, or nobody has taken it yet.
CREATE TABLE windlass.duty (
    name text NOT NULL, holder uuid, server text, term integer NOT NULL, acquired_at timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata text NOT NULL, PRIMARY KEY (name)
) WITH (fillfactor = 50);

-- The secret itself is nowhere. No tenant: a key for all of them. No queues: for every queue.
CREATE TABLE windlass.key (
    id text NOT NULL, name text NOT NULL, hash text NOT NULL, tenant text, scopes text NOT NULL, queues text,
    created_at timestamptz NOT NULL, expires_at timestamptz, revoked_at timestamptz, PRIMARY KEY (id)
);

CREATE TABLE windlass.audit (
    id uuid NOT NULL, happened_at timestamptz NOT NULL, tenant text NOT NULL, actor text, address text, request_id text,
    action text NOT NULL, subject text NOT NULL, reason text, was text, became text, PRIMARY KEY (id)
);

CREATE TABLE windlass.stat (
    minute_at timestamptz NOT NULL, tenant text NOT NULL, queue text NOT NULL, succeeded integer NOT NULL,
    failed integer NOT NULL, lost integer NOT NULL, dead integer NOT NULL, cancelled integer NOT NULL,
    expired integer NOT NULL, claimed integer NOT NULL, wait_ms bigint NOT NULL, run_ms bigint NOT NULL,
    PRIMARY KEY (minute_at, tenant, queue)
);

CREATE INDEX audit_tenant ON windlass.audit (tenant, id);
-- Attempts that ended in a span of time, as of done and dead: statistics by the minute, lists of attempts.
CREATE INDEX attempt_finished ON windlass.attempt (lane, finished_at);
-- What people did lately, for those who follow along.
CREATE INDEX event_happened ON windlass.event (happened_at);
-- Lists of workers; heartbeats change no column of it, and sessions of bare callers are not in it.
CREATE INDEX session_worker ON windlass.session (tenant, worker, started_at) WHERE bare = 0;

-- A presence is the sign of life of a caller that keeps no session: it never holds a lease. A worker has one at most.
-- 1: how long it lasts follows from how the caller calls; 2: the caller has asked for it.
ALTER TABLE windlass.session ADD COLUMN completed integer NOT NULL DEFAULT 0, ADD COLUMN failed integer NOT NULL DEFAULT 0,
      ADD COLUMN presence smallint NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX session_presence ON windlass.session (tenant, worker) WHERE presence > 0 AND state = 0;

-- A worker is as busy as it told, or as it holds leases, also by the sessions of single jobs that have its name. A presence beside a live
-- session is the same worker. Dead is who was found dead: a view has no clock that a test could move.
DROP VIEW windlass.workers;
CREATE VIEW windlass.workers AS
SELECT w.worker, w.id AS session, w.tenant,
       CASE WHEN w.state = 2 THEN 'stopped' WHEN w.state = 1 THEN 'dead' WHEN w.draining = 1 THEN 'draining'
            WHEN w.busy_threads = 0 THEN CASE WHEN w.heartbeat_at = w.started_at THEN 'starting' ELSE 'idle' END
            WHEN w.busy_threads < w.capacity THEN 'active' ELSE 'busy' END AS status,
       w.heartbeat_at AS last_heartbeat_at, w.expires_at, w.lease_ms, w.capacity AS total_threads, w.busy_threads,
       greatest(w.capacity - w.busy_threads, 0) AS available_threads, w.completed AS jobs_completed, w.failed AS jobs_failed, w.started_at,
       w.host, w.pid, w.version, w.build, w.region, w.labels, w.tasks, w.queues, w.skew_ms, w.held_jobs, w.current_job_id
  FROM (
    SELECT h.*, greatest(h.busy, h.held_jobs) AS busy_threads FROM (
        SELECT s.*, (SELECT count(*) FROM windlass.queue q WHERE q.place = 1 AND q.session = s.id) + coalesce(a.held_jobs, 0) AS held_jobs,
               coalesce((SELECT q.id FROM windlass.queue q WHERE q.place = 1 AND q.session = s.id LIMIT 1), a.job_id) AS current_job_id
          FROM windlass.session s LEFT JOIN (
               SELECT b.tenant, b.worker, count(*) AS held_jobs, CAST(min(CAST(q.id AS text)) AS uuid) AS job_id
                 FROM windlass.queue q JOIN windlass.session b ON b.id = q.session WHERE q.place = 1 AND b.bare = 1 AND b.state = 0
                GROUP BY b.tenant, b.worker) a ON s.state = 0 AND a.tenant = s.tenant AND a.worker = s.worker
         WHERE s.bare = 0 AND (s.presence = 0 OR NOT EXISTS (
               SELECT 1 FROM windlass.session o
                WHERE o.tenant = s.tenant AND o.worker = s.worker AND o.bare = 0 AND o.presence = 0 AND o.state = 0))) h
  ) w;

CREATE VIEW windlass.leaders AS
SELECT name, CASE WHEN expires_at > windlass.clock() THEN server END AS held_by, holder, term, acquired_at, heartbeat_at, expires_at, metadata
  FROM windlass.duty;

-- sqlite

CREATE TABLE server (
    id TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, address TEXT, started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

CREATE TABLE duty (
    name TEXT NOT NULL, holder TEXT, server TEXT, term INTEGER NOT NULL, acquired_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, metadata TEXT NOT NULL, PRIMARY KEY (name)
) STRICT, WITHOUT ROWID;

CREATE TABLE key (
    id TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL, tenant TEXT, scopes TEXT NOT NULL, queues TEXT,
    created_at INTEGER NOT NULL, expires_at INTEGER, revoked_at INTEGER, PRIMARY KEY (id)
) STRICT;

CREATE TABLE audit (
    id TEXT NOT NULL, happened_at INTEGER NOT NULL, tenant TEXT NOT NULL, actor TEXT, address TEXT, request_id TEXT,
    action TEXT NOT NULL, subject TEXT NOT NULL, reason TEXT, was TEXT, became TEXT, PRIMARY KEY (id)
) STRICT;

CREATE TABLE stat (
    minute_at INTEGER NOT NULL, tenant TEXT NOT NULL, queue TEXT NOT NULL, succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL, lost INTEGER NOT NULL, dead INTEGER NOT NULL, cancelled INTEGER NOT NULL,
    expired INTEGER NOT NULL, claimed INTEGER NOT NULL, wait_ms INTEGER NOT NULL, run_ms INTEGER NOT NULL,
    PRIMARY KEY (minute_at, tenant, queue)
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_tenant ON audit (tenant, id);
CREATE INDEX attempt_finished ON attempt (lane, finished_at);
CREATE INDEX event_happened ON event (happened_at);
CREATE INDEX session_worker ON session (tenant, worker, started_at) WHERE bare = 0;

ALTER TABLE session ADD COLUMN completed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN presence INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX session_presence ON session (tenant, worker) WHERE presence > 0 AND state = 0;

DROP VIEW workers;
CREATE VIEW workers AS
SELECT w.worker, w.id AS session, w.tenant,
       CASE WHEN w.state = 2 THEN 'stopped' WHEN w.state = 1 THEN 'dead' WHEN w.draining = 1 THEN 'draining'
            WHEN w.busy_threads = 0 THEN CASE WHEN w.heartbeat_at = w.started_at THEN 'starting' ELSE 'idle' END
            WHEN w.busy_threads < w.capacity THEN 'active' ELSE 'busy' END AS status,
       w.heartbeat_at AS last_heartbeat_at, w.expires_at, w.lease_ms, w.capacity AS total_threads, w.busy_threads,
       max(w.capacity - w.busy_threads, 0) AS available_threads, w.completed AS jobs_completed, w.failed AS jobs_failed, w.started_at,
       w.host, w.pid, w.version, w.build, w.region, w.labels, w.tasks, w.queues, w.skew_ms, w.held_jobs, w.current_job_id
  FROM (
    SELECT h.*, max(h.busy, h.held_jobs) AS busy_threads FROM (
        SELECT s.*, (SELECT count(*) FROM queue q WHERE q.place = 1 AND q.session = s.id) + coalesce(a.held_jobs, 0) AS held_jobs,
               coalesce((SELECT q.id FROM queue q WHERE q.place = 1 AND q.session = s.id LIMIT 1), a.job_id) AS current_job_id
          FROM session s LEFT JOIN (
               SELECT b.tenant, b.worker, count(*) AS held_jobs, min(q.id) AS job_id
                 FROM queue q JOIN session b ON b.id = q.session WHERE q.place = 1 AND b.bare = 1 AND b.state = 0
                GROUP BY b.tenant, b.worker) a ON s.state = 0 AND a.tenant = s.tenant AND a.worker = s.worker
         WHERE s.bare = 0 AND (s.presence = 0 OR NOT EXISTS (
               SELECT 1 FROM session o
                WHERE o.tenant = s.tenant AND o.worker = s.worker AND o.bare = 0 AND o.presence = 0 AND o.state = 0))) h
  ) w;

CREATE VIEW leaders AS
SELECT name, CASE WHEN expires_at > unixepoch() * 1000000 THEN server END AS held_by, holder, term, acquired_at,
       heartbeat_at, expires_at, metadata
  FROM duty;
