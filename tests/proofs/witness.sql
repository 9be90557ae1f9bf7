-- A witness inside the database: every write to a duty's row, and every act of a duty, with the server that did it.
-- Servers are told apart by their role, because all of them call themselves windlass.
CREATE SCHEMA proof;

CREATE TABLE proof.lease (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    role text NOT NULL DEFAULT session_user, duty text NOT NULL, holder uuid, term integer NOT NULL, expires_at timestamptz NOT NULL
);

CREATE TABLE proof.act (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    role text NOT NULL DEFAULT session_user, duty text NOT NULL, count integer NOT NULL
);

CREATE INDEX ON proof.lease (duty, at);

CREATE FUNCTION proof.lease_written() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO proof.lease (duty, holder, term, expires_at) VALUES (NEW.name, NEW.holder, NEW.term, NEW.expires_at);
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER INSERT OR UPDATE ON windlass.duty FOR EACH ROW EXECUTE FUNCTION proof.lease_written();

-- Nothing in the proofs cancels or changes a waiting job, so whoever takes a timer away promotes it.
CREATE FUNCTION proof.promoted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO proof.act (duty, count) SELECT 'promote', count(*) FROM gone HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER DELETE ON windlass.timer REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION proof.promoted();

-- Outcomes: 2 timed out, 3 lost, 7 expired. No worker of the proofs reports one of these itself.
CREATE FUNCTION proof.ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO proof.act (duty, count)
    SELECT CASE outcome WHEN 3 THEN 'rescue' ELSE 'deadlines' END, count(*) FROM come WHERE outcome IN (2, 3, 7) GROUP BY 1;
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER INSERT ON windlass.attempt REFERENCING NEW TABLE AS come
FOR EACH STATEMENT EXECUTE FUNCTION proof.ended();
CREATE TRIGGER witness AFTER INSERT ON windlass.done REFERENCING NEW TABLE AS come
FOR EACH STATEMENT EXECUTE FUNCTION proof.ended();
CREATE TRIGGER witness AFTER INSERT ON windlass.dead REFERENCING NEW TABLE AS come
FOR EACH STATEMENT EXECUTE FUNCTION proof.ended();

-- Rescue says that it is awake each time it works, also when there is nobody to rescue.
CREATE FUNCTION proof.awake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO proof.act (duty, count) VALUES ('rescue', 0);
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER INSERT OR UPDATE ON windlass.pulse FOR EACH ROW WHEN (NEW.name = 'rescue')
EXECUTE FUNCTION proof.awake();
