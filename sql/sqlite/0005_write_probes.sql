-- What is written to find out whether the database can be written: one row.
CREATE TABLE write_probes (
    probe_id   INTEGER NOT NULL PRIMARY KEY,
    written_at INTEGER NOT NULL
) STRICT;
