-- name: record
-- Add an entry; nothing here changes or removes one.
-- both
INSERT INTO audit (id, happened_at, tenant, actor, address, request_id, action, subject, reason, was, became)
VALUES (:id, :now, :tenant, :actor, :address, :request, :action, :subject, :reason, :was, :became)

-- name: list_of_tenant
-- A page of a tenant's entries, newest first; an action or a subject that is not named is any.
-- What was done before the tenant was made is of another that had its name, and is read by those above tenants only.
-- index: audit_tenant.
-- postgres
SELECT id, happened_at, tenant, actor, address, request_id AS request, action, subject, reason, was, became FROM audit
 WHERE tenant = :tenant AND id < :cursor AND happened_at >= coalesce((SELECT t.created_at FROM tenant t WHERE t.name = :tenant AND t.erasing IS NULL), happened_at)
   AND (CAST(:action AS text) IS NULL OR action = CAST(:action AS text)) AND (CAST(:subject AS text) IS NULL OR subject = CAST(:subject AS text))
 ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT id, happened_at, tenant, actor, address, request_id AS request, action, subject, reason, was, became FROM audit
 WHERE tenant = :tenant AND id < :cursor AND happened_at >= coalesce((SELECT t.created_at FROM tenant t WHERE t.name = :tenant AND t.erasing IS NULL), happened_at)
   AND (:action IS NULL OR action = :action) AND (:subject IS NULL OR subject = :subject)
 ORDER BY id DESC LIMIT :limit

-- name: list_of_all
-- The same over all tenants.
-- postgres
SELECT id, happened_at, tenant, actor, address, request_id AS request, action, subject, reason, was, became FROM audit
 WHERE id < :cursor
   AND (CAST(:action AS text) IS NULL OR action = CAST(:action AS text)) AND (CAST(:subject AS text) IS NULL OR subject = CAST(:subject AS text))
 ORDER BY id DESC LIMIT :limit
-- sqlite
SELECT id, happened_at, tenant, actor, address, request_id AS request, action, subject, reason, was, became FROM audit
 WHERE id < :cursor
   AND (:action IS NULL OR action = :action) AND (:subject IS NULL OR subject = :subject)
 ORDER BY id DESC LIMIT :limit
