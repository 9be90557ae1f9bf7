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

-- A presence is the sign of life of a caller that keeps no session: it never holds a lease.
ALTER TABLE windlass.session ADD COLUMN completed integer NOT NULL DEFAULT 0, ADD COLUMN failed integer NOT NULL DEFAULT 0,
      ADD COLUMN presence smallint NOT NULL DEFAULT 0;

DROP VIEW windlass.workers;
CREATE VIEW windlass.workers AS
SELECT worker, id AS session, tenant,
       CASE WHEN state = 2 THEN 'stopped' WHEN state = 1 THEN 'dead' WHEN draining = 1 THEN 'draining'
            WHEN busy = 0 THEN 'idle' WHEN busy < capacity THEN 'active' ELSE 'busy' END AS status,
       heartbeat_at AS last_heartbeat_at, expires_at, lease_ms, capacity AS total_threads, busy AS busy_threads,
       capacity - busy AS available_threads, completed AS jobs_completed, failed AS jobs_failed, started_at, host, pid, version, build,
       region, labels, tasks, queues, skew_ms,
       (SELECT count(*) FROM windlass.queue q WHERE q.place = 1 AND q.session = windlass.session.id) AS held_jobs,
       (SELECT q.id FROM windlass.queue q WHERE q.place = 1 AND q.session = windlass.session.id LIMIT 1) AS current_job_id
  FROM windlass.session WHERE bare = 0;

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
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id TEXT NOT NULL, happened_at INTEGER NOT NULL, tenant TEXT NOT NULL, actor TEXT, address TEXT, request_id TEXT,
    action TEXT NOT NULL, subject TEXT NOT NULL, reason TEXT, was TEXT, became TEXT, PRIMARY KEY (id)
) STRICT, WITHOUT ROWID;

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

DROP VIEW workers;
CREATE VIEW workers AS
SELECT worker, id AS session, tenant,
       CASE WHEN state = 2 THEN 'stopped' WHEN state = 1 THEN 'dead' WHEN draining = 1 THEN 'draining'
            WHEN busy = 0 THEN 'idle' WHEN busy < capacity THEN 'active' ELSE 'busy' END AS status,
       heartbeat_at AS last_heartbeat_at, expires_at, lease_ms, capacity AS total_threads, busy AS busy_threads,
       capacity - busy AS available_threads, completed AS jobs_completed, failed AS jobs_failed, started_at, host, pid, version, build,
       region, labels, tasks, queues, skew_ms,
       (SELECT count(*) FROM queue AS q WHERE q.place = 1 AND q.session = session.id) AS held_jobs,
       (SELECT q.id FROM queue AS q WHERE q.place = 1 AND q.session = session.id LIMIT 1) AS current_job_id
  FROM session WHERE bare = 0;

CREATE VIEW leaders AS
SELECT name, CASE WHEN expires_at > unixepoch() * 1000000 THEN server END AS held_by, holder, term, acquired_at,
       heartbeat_at, expires_at, metadata
  FROM duty;
