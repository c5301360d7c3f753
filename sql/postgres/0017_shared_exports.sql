-- Parquet exports in the store, made by one server for all. Only an addition: a former version makes its own.

-- What is lost here is made again.
CREATE TABLE shared_exports (
    -- Hexadecimal: the file, the dataset and version it is served as, the request and the encoder.
    export_key    TEXT    NOT NULL PRIMARY KEY,
    -- The version file that it is made from.
    file_id       BIGINT  NOT NULL REFERENCES files (file_id) ON DELETE CASCADE,
    -- Who makes it, a random text; null: it is made.
    maker         TEXT,
    -- Until when nobody else need make it; null: it is made.
    claimed_until BIGINT,
    -- Within the store, never used twice; null: it is being made.
    path          TEXT    UNIQUE,
    -- Of the export, without what lies behind it in its object.
    size_bytes    BIGINT  NOT NULL CHECK (size_bytes >= 0),
    -- Entities in it, and those that match, where the request asks for them.
    entity_count  BIGINT  NOT NULL CHECK (entity_count >= 0),
    match_count   BIGINT,
    -- The checksum of the checksums of its blocks.
    checksum      BIGINT  NOT NULL,
    -- When a server last fetched it, about; at first when it was made.
    used_at       BIGINT  NOT NULL
);

CREATE INDEX shared_exports_file ON shared_exports (file_id);
CREATE INDEX shared_exports_used ON shared_exports (used_at);
