-- What the publisher said of the document that the newest version was made of, to ask whether it has changed.
-- Null together: nothing to ask by.

-- The URL that answered, without credentials.
ALTER TABLE datasets ADD COLUMN validated_url TEXT;
ALTER TABLE datasets ADD COLUMN source_etag TEXT;
ALTER TABLE datasets ADD COLUMN source_last_modified TEXT;
