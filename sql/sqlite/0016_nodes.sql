-- The servers of the service, and which process holds a dataset. Only additions: a former version goes on with them.

-- Servers that have registered, each under its name.
CREATE TABLE nodes (
    node_id          TEXT   NOT NULL PRIMARY KEY,
    -- Which process has the name: a random text, another one at each start.
    process          TEXT   NOT NULL,
    version          TEXT   NOT NULL,
    -- Names, with commas between them.
    roles            TEXT   NOT NULL,
    -- host:port; null: none is configured.
    internal_address TEXT,
    started_at       INTEGER NOT NULL,
    -- The last sign of life.
    seen_at          INTEGER NOT NULL
) STRICT;

-- The node of the process that holds the dataset; null: it has no name.
ALTER TABLE refresh_leases ADD COLUMN holder_node TEXT;
-- The process; null: a former version holds it, which did not say.
ALTER TABLE refresh_leases ADD COLUMN holder_process TEXT;
