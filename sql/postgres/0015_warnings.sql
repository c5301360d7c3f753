-- What its owner should know of the version that an attempt made: a JSON array of texts; null: nothing.
ALTER TABLE refresh_attempts ADD COLUMN warnings TEXT;
