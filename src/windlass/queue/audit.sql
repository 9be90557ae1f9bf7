-- name: record
-- Add an entry; nothing here changes or removes one.
-- both
INSERT INTO audit (id, happened_at, tenant, actor, address, request_id, action, subject, reason, was, became)
VALUES (:id, :now, :tenant, :actor, :address, :request, :action, :subject, :reason, :was, :became)

-- name: list_of_tenant list_of_all
-- A page of {a tenant's|all} entries, newest first; an action or a subject that is not named is any.
-- What was done before a tenant was made is of another that had its name, and is read by those above tenants only.
-- found: how many there were to show, up to :limit; as many are read as fit into :most bytes, the first always.
-- index: {audit_tenant|the primary key}.
-- both
WITH sized AS MATERIALIZED (
    SELECT id, octets(actor, address, request_id, subject, reason, was, became) AS bytes FROM audit
     WHERE id < :cursor
       {AND tenant = :tenant AND happened_at >= coalesce((SELECT t.created_at FROM tenant t WHERE t.name = :tenant AND t.erasing IS NULL), happened_at)|}
       AND (CAST(:action AS text) IS NULL OR action = CAST(:action AS text)) AND (CAST(:subject AS text) IS NULL OR subject = CAST(:subject AS text))
     ORDER BY id DESC LIMIT :limit
),
cut AS MATERIALIZED (
    SELECT id, found FROM (SELECT s.id, count(*) OVER () AS found, s.bytes, sum(s.bytes) OVER (ORDER BY s.id DESC) AS upto FROM sized AS s) AS c
     WHERE c.upto <= :most OR c.upto = c.bytes
)
SELECT a.id, a.happened_at, a.tenant, a.actor, a.address, a.request_id AS request, a.action, a.subject, a.reason, a.was, a.became, c.found
  FROM cut AS c JOIN audit AS a ON a.id = ANY(ARRAY[c.id]) ORDER BY a.id DESC
