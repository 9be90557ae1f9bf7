-- name: enqueue
-- Say that a job is wanted, by the function of a shared PostgreSQL; returns the job's id.
SELECT windlass.enqueue(CAST(:task AS text), CAST(CAST(:payload AS text) AS json), CAST(CAST(:options AS text) AS jsonb)) AS id

-- name: finish
-- Say that the task of a lease is done, by the function of a shared PostgreSQL.
SELECT windlass.finish(CAST(CAST(:id AS text) AS uuid), CAST(:fence AS integer), CAST(CAST(:result AS text) AS json)) AS id

-- name: insert
-- Say that a job is wanted, by a row; in any database.
INSERT INTO {table} (id, task, payload, options) VALUES (:id, :task, :payload, :options)

-- name: waiting
-- What is to be relayed, first written first, as much as a batch.
SELECT id, task, payload, options FROM {table} WHERE error IS NULL ORDER BY id LIMIT :limit

-- name: remove
-- Forget a row whose job is stored.
DELETE FROM {table} WHERE id = :id

-- name: set_aside
-- Keep a row that can never be a job, with the reason.
UPDATE {table} SET error = :error WHERE id = :id

-- name: table
-- The table of an application's own database.
CREATE TABLE {table} (
    id varchar(36) NOT NULL PRIMARY KEY,
    task varchar(200) NOT NULL,
    payload text,
    options text NOT NULL,
    error text,
    created_at timestamp DEFAULT CURRENT_TIMESTAMP NOT NULL
)
