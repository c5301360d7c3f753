-- The catalog. The file of the same name for the other engine creates the same tables and columns.
--
-- Times are microseconds since 1970-01-01T00:00:00Z. `src/catalog/checksums.rs` lists the columns that a
-- `record_checksum` covers. It is null if an operator changed the row by hand; the next opening of the catalog computes
-- it again.

CREATE TABLE users (
    user_id       BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email         TEXT    NOT NULL,
    -- The address in the form in which it is compared: trimmed, lower case.
    email_key     TEXT    NOT NULL UNIQUE,
    -- Argon2id, PHC string form.
    password_hash TEXT    NOT NULL,
    plan          TEXT    NOT NULL CHECK (plan IN ('free', 'pro', 'scale')),
    created_at    BIGINT  NOT NULL
);

CREATE TABLE sessions (
    -- SHA-256 of the session id, hexadecimal.
    session_hash    TEXT    NOT NULL PRIMARY KEY,
    -- Null: no user has logged in.
    user_id         BIGINT  REFERENCES users (user_id),
    data            TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    expires_at      BIGINT  NOT NULL,
    -- To the minute.
    last_used_at    BIGINT  NOT NULL DEFAULT 0,
    record_checksum TEXT
);

CREATE INDEX sessions_by_user ON sessions (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX sessions_unsealed ON sessions (session_hash) WHERE record_checksum IS NULL;

CREATE TABLE api_tokens (
    user_id         BIGINT  NOT NULL REFERENCES users (user_id),
    name            TEXT    NOT NULL,
    -- SHA-256 of the token, hexadecimal.
    token_hash      TEXT    NOT NULL UNIQUE,
    scope           TEXT    NOT NULL DEFAULT 'write' CHECK (scope IN ('read', 'write')),
    created_at      BIGINT  NOT NULL,
    -- Null: never.
    expires_at      BIGINT,
    -- To the minute; null: never.
    last_used_at    BIGINT,
    record_checksum TEXT,
    PRIMARY KEY (user_id, name)
);

CREATE INDEX api_tokens_unsealed ON api_tokens (token_hash) WHERE record_checksum IS NULL;

CREATE TABLE datasets (
    dataset_id            BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_id              BIGINT  NOT NULL REFERENCES users (user_id),
    name                  TEXT    NOT NULL,
    name_slug             TEXT    NOT NULL CHECK (name_slug <> ''),
    description           TEXT,
    licence               TEXT,
    -- Whether it is among the public datasets that the service lists.
    listed                BOOLEAN NOT NULL DEFAULT FALSE,
    -- Name and description, folded: what a search of the listed datasets scans.
    folded_name           TEXT    NOT NULL DEFAULT '',
    folded_description    TEXT,
    -- Null: the dataset is public.
    private_key           TEXT,
    -- 'push' or a URL.
    source                TEXT    NOT NULL,
    -- Null: detected.
    format                TEXT    CHECK (format IN ('json', 'jsonl', 'csv', 'tsv', 'parquet')),
    records_path          TEXT,
    -- Whether cells of csv and tsv become numbers, booleans and nulls.
    infer_types           BOOLEAN NOT NULL DEFAULT FALSE,
    -- Whether the _source of entities keeps the query of the source's URL, which often contains keys.
    publish_query         BOOLEAN NOT NULL DEFAULT FALSE,
    -- What the publisher said of the document that the newest version was made of, to ask whether it has changed. Null
    -- together: nothing to ask by.
    --
    -- The URL that answered, without credentials.
    validated_url         TEXT,
    source_etag           TEXT,
    source_last_modified  TEXT,
    -- Over these three.
    validators_checksum   TEXT,
    -- A cron expression in UTC; null: no schedule.
    schedule              TEXT,
    -- When the schedule is due; 0: not computed yet; null: no schedule, no source to fetch, or frozen.
    next_run_at           BIGINT,
    -- Which paths get a shredded column whatever the versions contain, and which get none, as JSON:
    -- {"always":["a.b"],"never":["c"]}. Null: the profile of each version decides.
    index_paths           TEXT,
    -- The checks that new versions must pass, as JSON: {"required":["name"]}. Null: none.
    checks                TEXT,
    checks_checksum       TEXT,
    ping_token            TEXT    NOT NULL UNIQUE,
    -- How often a webhook was registered, including deleted ones.
    webhook_registrations BIGINT  NOT NULL DEFAULT 0,
    -- The highest version number; null before the first version.
    latest_version        BIGINT  CHECK (latest_version >= 1),
    -- Set by a rollback; null: the newest version is the active one.
    pinned_version        BIGINT,
    frozen                BOOLEAN NOT NULL DEFAULT FALSE,
    created_at            BIGINT  NOT NULL,
    record_checksum       TEXT,
    UNIQUE (owner_id, name)
);

CREATE INDEX datasets_due ON datasets (next_run_at) WHERE next_run_at IS NOT NULL;
-- The listed datasets: public, served, and with a version.
CREATE INDEX datasets_listed ON datasets (dataset_id)
    WHERE listed AND private_key IS NULL AND NOT frozen AND latest_version IS NOT NULL;
CREATE INDEX datasets_unsealed ON datasets (dataset_id) WHERE record_checksum IS NULL;
CREATE INDEX validators_unsealed ON datasets (dataset_id)
    WHERE validated_url IS NOT NULL AND validators_checksum IS NULL;

-- One immutable file of entities each. Versions and alternates can share one.
CREATE TABLE files (
    file_id            BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Within the store; never used twice.
    path               TEXT    NOT NULL UNIQUE,
    size_bytes         BIGINT  NOT NULL CHECK (size_bytes >= 0),
    entity_count       BIGINT  NOT NULL CHECK (entity_count >= 0),
    -- Hexadecimal; equal for equal entity lists.
    content_hash       TEXT    NOT NULL,
    created_at         BIGINT  NOT NULL,
    -- Since when no version, no alternate, and no other recorded file refers to it; null while one does.
    unreferenced_since BIGINT,
    -- The sum of base_file_id of the file's rows in file_bases. If it differs, a row was lost or changed, and sweeps
    -- remove no recorded file.
    base_id_sum        BIGINT  NOT NULL DEFAULT 0 CHECK (base_id_sum >= 0)
);

CREATE INDEX files_unreferenced ON files (unreferenced_since) WHERE unreferenced_since IS NOT NULL;

-- The base files of each delta file: all files whose rows it uses, including the bases of its bases. A base is recorded
-- before the files that use it, so its id is lower.
CREATE TABLE file_bases (
    file_id       BIGINT  NOT NULL REFERENCES files (file_id) ON DELETE CASCADE,
    base_file_id  BIGINT  NOT NULL REFERENCES files (file_id),
    -- The position in the list of bases, from 0. No index contains this column, so a statement that reads it scans the
    -- table instead of an index, which might be damaged.
    base_position BIGINT  NOT NULL CHECK (base_position >= 0),
    PRIMARY KEY (file_id, base_file_id),
    CHECK (base_file_id < file_id)
);

CREATE INDEX file_bases_by_base ON file_bases (base_file_id);

CREATE TABLE versions (
    dataset_id      BIGINT  NOT NULL REFERENCES datasets (dataset_id),
    version_number  BIGINT  NOT NULL CHECK (version_number >= 1),
    file_id         BIGINT  NOT NULL REFERENCES files (file_id),
    -- The alternate; null if there is none.
    alt_file_id     BIGINT  REFERENCES files (file_id),
    created_at      BIGINT  NOT NULL,
    -- Over the version, its file and its alternate's.
    record_checksum TEXT,
    PRIMARY KEY (dataset_id, version_number)
);

ALTER TABLE datasets ADD CONSTRAINT pinned_version_exists
    FOREIGN KEY (dataset_id, pinned_version) REFERENCES versions (dataset_id, version_number);

CREATE INDEX versions_by_file ON versions (file_id);
CREATE INDEX versions_by_alt_file ON versions (alt_file_id) WHERE alt_file_id IS NOT NULL;
CREATE INDEX versions_unsealed ON versions (dataset_id, version_number) WHERE record_checksum IS NULL;

-- At most one per dataset; registering again replaces it.
CREATE TABLE webhooks (
    dataset_id    BIGINT  NOT NULL PRIMARY KEY REFERENCES datasets (dataset_id),
    url           TEXT    NOT NULL,
    -- What signs the payload; null: not signed.
    secret        TEXT,
    is_active     BOOLEAN NOT NULL DEFAULT TRUE,
    last_fired_at BIGINT,
    -- The receiver's HTTP status; null as long as none came.
    last_status   BIGINT,
    created_at    BIGINT  NOT NULL,
    -- Which registration this is; a delivery of a replaced one does not change the webhook.
    registration  BIGINT  NOT NULL DEFAULT 0
);

-- One per version made while a webhook was registered: due, then claimed, then done.
CREATE TABLE webhook_deliveries (
    dataset_id     BIGINT  NOT NULL,
    version_number BIGINT  NOT NULL,
    due_at         BIGINT  NOT NULL,
    -- Set before the request is sent, and never again: what was claimed is not sent twice.
    claimed_at     BIGINT,
    done_at        BIGINT,
    -- Where the POST went; null: none was sent.
    url            TEXT,
    -- The receiver's HTTP status; null: none came.
    status         BIGINT,
    duration_ms    BIGINT,
    -- Why no response came.
    error          TEXT,
    PRIMARY KEY (dataset_id, version_number),
    FOREIGN KEY (dataset_id, version_number) REFERENCES versions (dataset_id, version_number)
);

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at) WHERE claimed_at IS NULL;

CREATE TABLE refresh_attempts (
    attempt_id     BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset_id     BIGINT  NOT NULL REFERENCES datasets (dataset_id),
    trigger_name   TEXT    NOT NULL CHECK (trigger_name IN ('schedule', 'ping', 'manual', 'import')),
    started_at     BIGINT  NOT NULL,
    -- Null while it runs.
    finished_at    BIGINT,
    ok             BOOLEAN,
    version_number BIGINT,
    error          TEXT,
    -- How many checks ran on the new list; null: none.
    check_count    BIGINT,
    -- The results of the checks, as JSON, with the first failing entities; null if all passed.
    check_report   TEXT,
    -- What the owner should know of the version that it made: a JSON array of texts; null: nothing.
    warnings       TEXT,
    FOREIGN KEY (dataset_id, version_number) REFERENCES versions (dataset_id, version_number),
    CHECK ((finished_at IS NULL) = (ok IS NULL))
);

CREATE INDEX refresh_attempts_by_dataset ON refresh_attempts (dataset_id, attempt_id);

-- Who may refresh a dataset at the moment.
CREATE TABLE refresh_leases (
    dataset_id     BIGINT  NOT NULL PRIMARY KEY REFERENCES datasets (dataset_id),
    attempt_id     BIGINT  NOT NULL REFERENCES refresh_attempts (attempt_id),
    expires_at     BIGINT  NOT NULL,
    -- The node of the process that holds the dataset; null: it has no name.
    holder_node    TEXT,
    -- The process; null: it has no name.
    holder_process TEXT
);

-- A lease is looked up by its attempt when it is renewed, and when the attempt is pruned.
CREATE UNIQUE INDEX refresh_leases_by_attempt ON refresh_leases (attempt_id);

-- Paths in the store that are being written. Recording a file removes its row, and needs it.
CREATE TABLE file_reservations (
    path       TEXT    NOT NULL PRIMARY KEY,
    -- The attempt that writes the file and renews this with its lease; null: no refresh writes it.
    attempt_id BIGINT  REFERENCES refresh_attempts (attempt_id),
    expires_at BIGINT  NOT NULL
);

CREATE INDEX file_reservations_by_attempt ON file_reservations (attempt_id) WHERE attempt_id IS NOT NULL;

-- While there is one that has not expired, no file is removed.
CREATE TABLE file_holds (
    hold_id    BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    expires_at BIGINT  NOT NULL
);

-- Never prevents a removal; its lock separates new holds and removals of files.
INSERT INTO file_holds (hold_id, expires_at) OVERRIDING SYSTEM VALUE VALUES (0, 0);

-- Written to find out whether the database can be written: one row.
CREATE TABLE write_probes (
    probe_id   BIGINT  NOT NULL PRIMARY KEY,
    written_at BIGINT  NOT NULL
);

-- How far the scrub of the files is: one row.
CREATE TABLE scrub_progress (
    scrub_id     BIGINT  PRIMARY KEY CHECK (scrub_id = 0),
    -- Files with ids up to this one are done; 0: no unfinished scrub.
    file_id      BIGINT  NOT NULL,
    -- When a scrub last reached the end; 0: none did.
    finished_at  BIGINT  NOT NULL,
    -- Until when a process scrubs; the process renews this.
    leased_until BIGINT  NOT NULL
);

INSERT INTO scrub_progress (scrub_id, file_id, finished_at, leased_until) VALUES (0, 0, 0, 0);

-- Which catalog this is: the store that belongs to it has the same text as its object `strata.id`. One row, created
-- when the service first opens the catalog.
CREATE TABLE installation (
    installation_id BIGINT  NOT NULL PRIMARY KEY CHECK (installation_id = 0),
    identity        TEXT    NOT NULL,
    -- Whether it was written to a store.
    store_marked    BOOLEAN NOT NULL
);

-- Reads of a dataset on a day in UTC, by all processes together.
CREATE TABLE dataset_usage (
    dataset_id   BIGINT  NOT NULL REFERENCES datasets (dataset_id) ON DELETE CASCADE,
    -- Days since 1970-01-01.
    day          BIGINT  NOT NULL CHECK (day >= 0),
    requests     BIGINT  NOT NULL CHECK (requests >= 0),
    -- Of the requests, those with a response of 304, and of 429.
    not_modified BIGINT  NOT NULL CHECK (not_modified >= 0),
    rate_limited BIGINT  NOT NULL CHECK (rate_limited >= 0),
    -- Of the bodies as they were sent.
    bytes        BIGINT  NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (dataset_id, day)
);

CREATE INDEX dataset_usage_by_day ON dataset_usage (day);

-- The last batch of counts that each process has added: if its commit was not confirmed, it is not added twice.
CREATE TABLE usage_writers (
    writer     TEXT    NOT NULL PRIMARY KEY,
    batch      BIGINT  NOT NULL,
    written_at BIGINT  NOT NULL
);

CREATE INDEX usage_writers_by_time ON usage_writers (written_at);

-- Servers that have registered, each under its name.
CREATE TABLE nodes (
    node_id          TEXT    NOT NULL PRIMARY KEY,
    -- Which process has the name: a random text, another one at each start.
    process          TEXT    NOT NULL,
    version          TEXT    NOT NULL,
    -- Names, with commas between them.
    roles            TEXT    NOT NULL,
    -- host:port; null: none is configured.
    internal_address TEXT,
    started_at       BIGINT  NOT NULL,
    -- The last heartbeat.
    seen_at          BIGINT  NOT NULL
);
