-- name: take
-- Take these duties for :holder where nobody has them: no row, or its lease is over; the term rises.
-- A heartbeat more than a lease ahead means that the clock went back: who lives renews in time all the same.
-- locks: duty rows by name.  returns: those taken, with what the last holder left.
-- postgres
INSERT INTO duty AS d (name, holder, server, term, acquired_at, heartbeat_at, expires_at, metadata)
SELECT i.name, CAST(:holder AS uuid), CAST(:server AS text), 1, :now, :now, :now + CAST(:lease_ms AS bigint) * interval '1 millisecond', '{}'
  FROM unnest(CAST(:names AS text[])) AS i (name) ORDER BY i.name
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, server = excluded.server, term = d.term + 1,
   acquired_at = excluded.acquired_at, heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at
 WHERE d.expires_at <= :now OR d.heartbeat_at > :now + CAST(:lease_ms AS bigint) * interval '1 millisecond'
RETURNING d.name, d.term, d.acquired_at, d.metadata
-- sqlite
INSERT INTO duty AS d (name, holder, server, term, acquired_at, heartbeat_at, expires_at, metadata)
SELECT i.value, :holder, :server, 1, :now, :now, :now + :lease_ms * 1000, '{}' FROM json_each(:names) AS i WHERE true ORDER BY i.value
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, server = excluded.server, term = d.term + 1,
   acquired_at = excluded.acquired_at, heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at
 WHERE d.expires_at <= :now OR d.heartbeat_at > :now + :lease_ms * 1000
RETURNING name, term, acquired_at, metadata

-- name: renew
-- Prolong the leases of :holder, each only in its own term, and leave what was done in them.
-- locks: duty rows by name, as take does.
-- postgres
WITH l AS MATERIALIZED (
    SELECT d.name, d.term, i.metadata FROM rows(:held, name text, term int, metadata text) AS i JOIN duty d ON d.name = i.name
     WHERE d.holder = CAST(:holder AS uuid) AND d.term = i.term ORDER BY d.name FOR UPDATE OF d
)
UPDATE duty d SET heartbeat_at = :now, expires_at = :now + CAST(:lease_ms AS bigint) * interval '1 millisecond', metadata = l.metadata
  FROM l WHERE d.name = l.name AND d.holder = CAST(:holder AS uuid) AND d.term = l.term
RETURNING d.name, d.heartbeat_at
-- sqlite
UPDATE duty SET heartbeat_at = :now, expires_at = :now + :lease_ms * 1000, metadata = i.metadata
  FROM rows(:held) AS i WHERE duty.name = i.name AND duty.holder = :holder AND duty.term = i.term
RETURNING name, heartbeat_at

-- name: resign
-- Give up leases of :holder, each only in its own term: anybody may take them from now on.
-- locks: duty rows by name, as take does.
-- postgres
WITH l AS MATERIALIZED (
    SELECT d.name, d.term, i.metadata FROM rows(:held, name text, term int, metadata text) AS i JOIN duty d ON d.name = i.name
     WHERE d.holder = CAST(:holder AS uuid) AND d.term = i.term ORDER BY d.name FOR UPDATE OF d
)
UPDATE duty d SET holder = NULL, server = NULL, heartbeat_at = :now, expires_at = :now, metadata = coalesce(l.metadata, d.metadata)
  FROM l WHERE d.name = l.name AND d.holder = CAST(:holder AS uuid) AND d.term = l.term
RETURNING d.name
-- sqlite
UPDATE duty SET holder = NULL, server = NULL, heartbeat_at = :now, expires_at = :now, metadata = coalesce(i.metadata, duty.metadata)
  FROM rows(:held) AS i WHERE duty.name = i.name AND duty.holder = :holder AND duty.term = i.term
RETURNING name

-- name: release
-- Take a duty from whoever has it: nobody's next renewal finds its holder any more.
-- both
UPDATE duty SET holder = NULL, server = NULL, heartbeat_at = :now, expires_at = :now WHERE name = :name
RETURNING name, holder AS holder_id, server, term, acquired_at, heartbeat_at, expires_at, metadata, :now AS now_at

-- name: duties
-- Every duty that anybody ever had, and the instant at which that is so.
-- hot: leases are renewed beside it.
-- both
SELECT name, holder AS holder_id, server, term, acquired_at, heartbeat_at, expires_at, metadata, :now AS now_at FROM duty ORDER BY name

-- name: beat_server
-- Say that a server lives, forget those that have been silent for a day, and count the living.
-- postgres
WITH gone AS (DELETE FROM server WHERE expires_at < :now - interval '1 day' AND id <> CAST(:id AS uuid)),
me AS (
    INSERT INTO server AS s (id, name, version, address, started_at, heartbeat_at, expires_at)
    VALUES (CAST(:id AS uuid), :name, :version, :address, :now, :now, :now + CAST(:lease_ms AS bigint) * interval '1 millisecond')
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at, address = excluded.address
)
SELECT 1 + count(*) AS live FROM server WHERE expires_at > :now AND id <> CAST(:id AS uuid)
-- sqlite
DELETE FROM server WHERE expires_at < :now - 86400000000 AND id <> :id;
INSERT INTO server (id, name, version, address, started_at, heartbeat_at, expires_at)
VALUES (:id, :name, :version, :address, :now, :now, :now + :lease_ms * 1000)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at, address = excluded.address;
SELECT count(*) AS live FROM server WHERE expires_at > :now

-- name: close_server
-- Say that a server has ended.
-- both
UPDATE server SET expires_at = :now WHERE id = :id AND expires_at > :now

-- name: servers
-- The servers of the last day, the living first.
-- both
SELECT id, name, version, address, started_at, heartbeat_at, expires_at, :now AS now_at FROM server ORDER BY expires_at > :now DESC, name, id
