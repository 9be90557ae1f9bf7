-- What the servers keep for workers: how far an attempt is, what it wrote, and which arguments tasks take.

-- postgres

-- One row for a job whose attempts told something; a later attempt goes on from `value`. It stays while the job lives or is dead.
CREATE TABLE windlass.checkpoint (
    job_id uuid NOT NULL, fence integer NOT NULL, progress text, value text, updated_at timestamptz NOT NULL,
    PRIMARY KEY (job_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, vacuum_truncate = off);

-- Lines are compressed; `total` is the size of an attempt's log up to and with this chunk, before that.
CREATE TABLE windlass.log (
    job_id uuid NOT NULL, fence integer NOT NULL, seq integer NOT NULL, attempt smallint NOT NULL, written_at timestamptz NOT NULL,
    lines bytea NOT NULL, bytes integer NOT NULL, total bigint NOT NULL, dropped integer NOT NULL
) PARTITION BY RANGE (written_at);

CREATE INDEX log_job ON windlass.log (job_id, fence, seq);

-- The arguments of a task as its workers told them; two builds of a worker may tell different ones.
CREATE TABLE windlass.task (
    tenant text NOT NULL, name text NOT NULL, fingerprint text NOT NULL, signature text NOT NULL, seen_at timestamptz NOT NULL,
    registered_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, name, fingerprint)
);

DO $$
DECLARE day date;
BEGIN
    FOR day IN SELECT CAST(windlass.clock() AT TIME ZONE 'UTC' AS date) + n FROM generate_series(-1, 7) AS n LOOP
        EXECUTE format('CREATE TABLE windlass.%I PARTITION OF windlass.log FOR VALUES FROM (%L) TO (%L)',
                       'log_' || to_char(day, 'YYYYMMDD'),
                       to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
    END LOOP;
END $$;

-- sqlite

CREATE TABLE checkpoint (
    job_id TEXT NOT NULL, fence INTEGER NOT NULL, progress TEXT, value TEXT, updated_at INTEGER NOT NULL,
    PRIMARY KEY (job_id)
) STRICT;

CREATE TABLE log (
    job_id TEXT NOT NULL, fence INTEGER NOT NULL, seq INTEGER NOT NULL, attempt INTEGER NOT NULL, written_at INTEGER NOT NULL,
    lines BLOB NOT NULL, bytes INTEGER NOT NULL, total INTEGER NOT NULL, dropped INTEGER NOT NULL
) STRICT;

CREATE INDEX log_job ON log (job_id, fence, seq);

CREATE TABLE task (
    tenant TEXT NOT NULL, name TEXT NOT NULL, fingerprint TEXT NOT NULL, signature TEXT NOT NULL, seen_at INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, fingerprint)
) STRICT;
