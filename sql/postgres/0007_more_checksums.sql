-- Checksums of what says who somebody is, and of what a source is asked by; see `src/catalog/checksums.rs`. Null in rows
-- from before, until the catalog is opened.
ALTER TABLE api_tokens ADD COLUMN record_checksum TEXT;
ALTER TABLE sessions ADD COLUMN record_checksum TEXT;
-- Over validated_url, source_etag and source_last_modified.
ALTER TABLE datasets ADD COLUMN validators_checksum TEXT;

-- Rows without a checksum, which get theirs when the catalog is opened: mostly none.
CREATE INDEX datasets_unsealed ON datasets (dataset_id) WHERE record_checksum IS NULL;
CREATE INDEX versions_unsealed ON versions (dataset_id, version_number) WHERE record_checksum IS NULL;
CREATE INDEX api_tokens_unsealed ON api_tokens (token_hash) WHERE record_checksum IS NULL;
CREATE INDEX sessions_unsealed ON sessions (session_hash) WHERE record_checksum IS NULL;
CREATE INDEX validators_unsealed ON datasets (dataset_id) WHERE validated_url IS NOT NULL AND validators_checksum IS NULL;
