-- Erasure: what is left of tenants that were deleted, how far the erasure of one is, and which jobs were emptied.

-- postgres

-- How far the erasure of the tenant is, as JSON. Null: it is not being erased. Empty: it was, and nobody brings the name back by using it.
ALTER TABLE windlass.tenant ADD COLUMN erasing text;

-- 1: the tenant of the lane was deleted. The lane's number stays, for a submit may be on its way with it; first use makes this 0 again.
-- Greater: the number of the delete that is under way.
ALTER TABLE windlass.lane ADD COLUMN retired bigint NOT NULL DEFAULT 0;

-- Jobs whose content was removed. They never run again.
CREATE TABLE windlass.erased (
    job_id uuid NOT NULL, erased_at timestamptz NOT NULL, PRIMARY KEY (job_id)
);

-- sqlite

ALTER TABLE tenant ADD COLUMN erasing TEXT;

ALTER TABLE lane ADD COLUMN retired INTEGER NOT NULL DEFAULT 0;

CREATE TABLE erased (
    job_id TEXT NOT NULL, erased_at INTEGER NOT NULL, PRIMARY KEY (job_id)
) STRICT, WITHOUT ROWID;
