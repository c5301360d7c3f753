-- Whether the _source of a dataset's entities keeps the query of the source's URL, where keys often stand.
ALTER TABLE datasets ADD COLUMN publish_query INTEGER NOT NULL DEFAULT 0 CHECK (publish_query IN (0, 1));

-- Versions so far kept it: a source that has not changed must be read once more, not share their files.
UPDATE datasets SET validated_url = NULL, source_etag = NULL, source_last_modified = NULL;
