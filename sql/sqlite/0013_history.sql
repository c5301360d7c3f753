-- What became of each webhook that was sent, and how much each dataset is read.

-- Where the POST went; null: none was sent.
ALTER TABLE webhook_deliveries ADD COLUMN url TEXT;
-- The receiver's HTTP status; null: none came.
ALTER TABLE webhook_deliveries ADD COLUMN status INTEGER;
ALTER TABLE webhook_deliveries ADD COLUMN duration_ms INTEGER;
-- Why no answer came.
ALTER TABLE webhook_deliveries ADD COLUMN error TEXT;

-- Reads of a dataset on a day in UTC, by all processes together.
CREATE TABLE dataset_usage (
    dataset_id   INTEGER NOT NULL REFERENCES datasets (dataset_id) ON DELETE CASCADE,
    -- Days since 1970-01-01.
    day          INTEGER NOT NULL CHECK (day >= 0),
    requests     INTEGER NOT NULL CHECK (requests >= 0),
    -- Of the requests, those that were answered with 304, and with 429.
    not_modified INTEGER NOT NULL CHECK (not_modified >= 0),
    rate_limited INTEGER NOT NULL CHECK (rate_limited >= 0),
    -- Of the bodies as they were sent.
    bytes        INTEGER NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (dataset_id, day)
) STRICT, WITHOUT ROWID;

CREATE INDEX dataset_usage_by_day ON dataset_usage (day);

-- The last batch of counts that each process has added: one whose commit was not heard of is not added twice.
CREATE TABLE usage_writers (
    writer     TEXT    NOT NULL PRIMARY KEY,
    batch      INTEGER NOT NULL,
    written_at INTEGER NOT NULL
) STRICT;

CREATE INDEX usage_writers_by_time ON usage_writers (written_at);
