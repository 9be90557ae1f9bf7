-- name: take
-- Take these duties for :holder where nobody has them: no row, or its lease is over; or where they were handed to it.
-- The term rises.
-- A heartbeat more than a lease ahead means that the clock went back: who lives renews in time all the same.
-- locks: duty rows by name.  returns: those taken, with what the last holder left.
-- postgres
INSERT INTO duty AS d (name, holder, server, term, acquired_at, heartbeat_at, expires_at, metadata)
SELECT i.name, CAST(:holder AS uuid), CAST(:server AS text), 1, :now, :now, :now + CAST(:lease_ms AS bigint) * interval '1 millisecond', '{}'
  FROM unnest(CAST(:names AS text[])) AS i (name) ORDER BY i.name
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, server = excluded.server, term = d.term + 1,
   acquired_at = excluded.acquired_at, heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at
 WHERE d.expires_at <= :now OR d.holder = excluded.holder OR d.heartbeat_at > :now + CAST(:lease_ms AS bigint) * interval '1 millisecond'
RETURNING d.name, d.term, d.acquired_at, d.metadata
-- sqlite
INSERT INTO duty AS d (name, holder, server, term, acquired_at, heartbeat_at, expires_at, metadata)
SELECT i.value, :holder, :server, 1, :now, :now, :now + :lease_ms * 1000, '{}' FROM json_each(:names) AS i WHERE true ORDER BY i.value
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, server = excluded.server, term = d.term + 1,
   acquired_at = excluded.acquired_at, heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at
 WHERE d.expires_at <= :now OR d.holder = excluded.holder OR d.heartbeat_at > :now + :lease_ms * 1000
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
-- Give up leases of :holder, each only in its own term: to a successor that lives, in the next term, which has :grace_ms to take it;
-- else to anybody.
-- locks: duty rows by name, as take does.
-- postgres
WITH l AS MATERIALIZED (
    SELECT d.name, d.term, i.metadata, s.id AS successor, s.name AS server
      FROM rows(:held, name text, term int, metadata text, successor uuid) AS i JOIN duty d ON d.name = i.name
      LEFT JOIN server s ON s.id = i.successor AND s.expires_at > :now
     WHERE d.holder = CAST(:holder AS uuid) AND d.term = i.term ORDER BY d.name FOR UPDATE OF d
)
UPDATE duty d SET holder = l.successor, server = l.server, heartbeat_at = :now, metadata = coalesce(l.metadata, d.metadata),
       term = CASE WHEN l.successor IS NULL THEN d.term ELSE d.term + 1 END,
       expires_at = CASE WHEN l.successor IS NULL THEN :now ELSE :now + CAST(:grace_ms AS bigint) * interval '1 millisecond' END
  FROM l WHERE d.name = l.name AND d.holder = CAST(:holder AS uuid) AND d.term = l.term
RETURNING d.name
-- sqlite
UPDATE duty SET holder = s.id, server = s.name, heartbeat_at = :now, metadata = coalesce(i.metadata, duty.metadata),
       term = CASE WHEN s.id IS NULL THEN duty.term ELSE duty.term + 1 END,
       expires_at = CASE WHEN s.id IS NULL THEN :now ELSE :now + :grace_ms * 1000 END
  FROM rows(:held) AS i LEFT JOIN server AS s ON s.id = i.successor AND s.expires_at > :now
 WHERE duty.name = i.name AND duty.holder = :holder AND duty.term = i.term
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
-- Say that a server lives, forget those that have been silent for a day; return the others that live, with every duty.
-- hot: leases are renewed beside it.
-- postgres
WITH gone AS (DELETE FROM server WHERE expires_at < :now - interval '1 day' AND id <> CAST(:id AS uuid)),
me AS (
    INSERT INTO server AS s (id, name, version, address, started_at, heartbeat_at, expires_at)
    VALUES (CAST(:id AS uuid), :name, :version, :address, :now, :now, :now + CAST(:lease_ms AS bigint) * interval '1 millisecond')
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at, address = excluded.address
)
SELECT o.others, d.name, d.holder AS holder_id, d.server, d.term, d.acquired_at, d.heartbeat_at, d.expires_at, d.metadata, :now AS now_at
  FROM (SELECT coalesce(string_agg(CAST(id AS text), ' ' ORDER BY id), '') AS others FROM server
         WHERE expires_at > :now AND id <> CAST(:id AS uuid)) o
  LEFT JOIN duty d ON true ORDER BY d.name
-- sqlite
DELETE FROM server WHERE expires_at < :now - 86400000000 AND id <> :id;
INSERT INTO server (id, name, version, address, started_at, heartbeat_at, expires_at)
VALUES (:id, :name, :version, :address, :now, :now, :now + :lease_ms * 1000)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at, address = excluded.address;
SELECT o.others, d.name, d.holder AS holder_id, d.server, d.term, d.acquired_at, d.heartbeat_at, d.expires_at, d.metadata, :now AS now_at
  FROM (SELECT coalesce(group_concat(id, ' '), '') AS others FROM server WHERE expires_at > :now AND id <> :id) AS o
  LEFT JOIN duty AS d ON true ORDER BY d.name

-- name: touch_server
-- Write that a server was heard, and change nothing by it: a write of the least cost.
-- It fails as submits and claims fail, where somebody holds a lock on the tables that these write.
-- locks: queue and job, as every write locks them.
-- postgres
WITH no_place AS (DELETE FROM queue WHERE false), no_job AS (DELETE FROM job WHERE false)
UPDATE server SET heartbeat_at = :now WHERE id = :id

-- sqlite   (a lock is on the whole file)
UPDATE server SET heartbeat_at = :now WHERE id = :id

-- name: close_server
-- Say that a server has ended.
-- both
UPDATE server SET expires_at = :now WHERE id = :id AND expires_at > :now

-- name: servers
-- The servers of the last day, the living first.
-- both
SELECT id, name, version, address, started_at, heartbeat_at, expires_at, :now AS now_at FROM server ORDER BY expires_at > :now DESC, name, id
