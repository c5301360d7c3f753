-- The catalog. The file of the same name for the other engine makes the same tables and columns.
--
-- Times are microseconds since 1970-01-01T00:00:00Z.

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
    session_hash TEXT    NOT NULL PRIMARY KEY,
    user_id      BIGINT  NOT NULL REFERENCES users (user_id),
    created_at   BIGINT  NOT NULL,
    expires_at   BIGINT  NOT NULL
);

CREATE INDEX sessions_by_user ON sessions (user_id);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

CREATE TABLE api_tokens (
    user_id    BIGINT  NOT NULL REFERENCES users (user_id),
    name       TEXT    NOT NULL,
    -- SHA-256 of the token, hexadecimal.
    token_hash TEXT    NOT NULL UNIQUE,
    created_at BIGINT  NOT NULL,
    PRIMARY KEY (user_id, name)
);

CREATE TABLE datasets (
    dataset_id     BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_id       BIGINT  NOT NULL REFERENCES users (user_id),
    name           TEXT    NOT NULL,
    name_slug      TEXT    NOT NULL CHECK (name_slug <> ''),
    -- Null: the dataset is public.
    private_key    TEXT,
    -- 'push' or a URL.
    source         TEXT    NOT NULL,
    -- Null: detected.
    format         TEXT    CHECK (format IN ('json', 'jsonl', 'csv', 'tsv', 'parquet')),
    records_path   TEXT,
    -- A cron expression in UTC; null: no schedule.
    schedule       TEXT,
    ping_token     TEXT    NOT NULL UNIQUE,
    -- The highest version number; null before the first version.
    latest_version BIGINT  CHECK (latest_version >= 1),
    -- Set by a rollback; null: the newest version is the active one.
    pinned_version BIGINT,
    frozen         BOOLEAN NOT NULL DEFAULT FALSE,
    created_at     BIGINT  NOT NULL,
    UNIQUE (owner_id, name)
);

-- One immutable file of entities each. Versions and alternates may share one.
CREATE TABLE files (
    file_id            BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Within the store; never used twice.
    path               TEXT    NOT NULL UNIQUE,
    size_bytes         BIGINT  NOT NULL CHECK (size_bytes >= 0),
    entity_count       BIGINT  NOT NULL CHECK (entity_count >= 0),
    -- Hexadecimal; equal for equal entity lists.
    content_hash       TEXT    NOT NULL,
    created_at         BIGINT  NOT NULL,
    -- Since when no version and no alternate names it; null while one does.
    unreferenced_since BIGINT
);

CREATE INDEX files_unreferenced ON files (unreferenced_since) WHERE unreferenced_since IS NOT NULL;

CREATE TABLE versions (
    dataset_id     BIGINT  NOT NULL REFERENCES datasets (dataset_id),
    version_number BIGINT  NOT NULL CHECK (version_number >= 1),
    file_id        BIGINT  NOT NULL REFERENCES files (file_id),
    -- The alternate; null where there is none.
    alt_file_id    BIGINT  REFERENCES files (file_id),
    created_at     BIGINT  NOT NULL,
    PRIMARY KEY (dataset_id, version_number)
);

ALTER TABLE datasets ADD CONSTRAINT pinned_version_exists
    FOREIGN KEY (dataset_id, pinned_version) REFERENCES versions (dataset_id, version_number);

CREATE INDEX versions_by_file ON versions (file_id);
CREATE INDEX versions_by_alt_file ON versions (alt_file_id) WHERE alt_file_id IS NOT NULL;

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
    created_at    BIGINT  NOT NULL
);

-- One per version made while a webhook was registered: due, then claimed, then done.
CREATE TABLE webhook_deliveries (
    dataset_id     BIGINT  NOT NULL,
    version_number BIGINT  NOT NULL,
    due_at         BIGINT  NOT NULL,
    -- Set before the request is sent, and never again: what was claimed is not sent twice.
    claimed_at     BIGINT,
    done_at        BIGINT,
    PRIMARY KEY (dataset_id, version_number),
    FOREIGN KEY (dataset_id, version_number) REFERENCES versions (dataset_id, version_number)
);

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at) WHERE claimed_at IS NULL;

CREATE TABLE refresh_attempts (
    attempt_id     BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset_id     BIGINT  NOT NULL REFERENCES datasets (dataset_id),
    trigger_name   TEXT    NOT NULL CHECK (trigger_name IN ('schedule', 'ping', 'manual', 'import')),
    started_at     BIGINT  NOT NULL,
    -- Null while it runs, and for ever if the process died.
    finished_at    BIGINT,
    ok             BOOLEAN,
    version_number BIGINT,
    error          TEXT,
    FOREIGN KEY (dataset_id, version_number) REFERENCES versions (dataset_id, version_number),
    CHECK ((finished_at IS NULL) = (ok IS NULL))
);

CREATE INDEX refresh_attempts_by_dataset ON refresh_attempts (dataset_id, attempt_id);

-- Who may refresh a dataset at the moment.
CREATE TABLE refresh_leases (
    dataset_id BIGINT  NOT NULL PRIMARY KEY REFERENCES datasets (dataset_id),
    attempt_id BIGINT  NOT NULL REFERENCES refresh_attempts (attempt_id),
    expires_at BIGINT  NOT NULL
);
