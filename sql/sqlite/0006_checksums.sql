-- What tells a damaged record from a sound one, and how far the scrub of the files has come.

-- Over the columns that decide what is served and from where; null in rows from before there were checksums, until they
-- change. `src/catalog/checksums.rs` says which columns.
ALTER TABLE datasets ADD COLUMN record_checksum TEXT;
-- Over the version, its file and its alternate's.
ALTER TABLE versions ADD COLUMN record_checksum TEXT;

CREATE TABLE scrub_progress (
    scrub_id     INTEGER PRIMARY KEY CHECK (scrub_id = 0),
    -- Files with ids up to this one are done; 0: no scrub has been begun that is not finished.
    file_id      INTEGER NOT NULL,
    -- When the last scrub that reached the end did; 0: none did.
    finished_at  INTEGER NOT NULL,
    -- Until when a process scrubs; it renews this.
    leased_until INTEGER NOT NULL
) STRICT;

INSERT INTO scrub_progress (scrub_id, file_id, finished_at, leased_until) VALUES (0, 0, 0, 0);
