-- What is written to find out whether the database can be written: one row.
CREATE TABLE write_probes (
    probe_id   BIGINT  NOT NULL PRIMARY KEY,
    written_at BIGINT  NOT NULL
);
