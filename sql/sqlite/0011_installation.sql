-- Which catalog this is: the store that belongs to it holds the same text as its object `strata.id`. One row, made when
-- the service first opens the catalog.
CREATE TABLE installation (
    installation_id INTEGER NOT NULL PRIMARY KEY CHECK (installation_id = 0),
    identity        TEXT    NOT NULL,
    -- Whether a store has been given it.
    store_marked    INTEGER NOT NULL CHECK (store_marked IN (0, 1))
) STRICT;
