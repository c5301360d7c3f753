-- What an API token may do, until when, and when a session was last used.

ALTER TABLE api_tokens ADD COLUMN scope TEXT NOT NULL DEFAULT 'write' CHECK (scope IN ('read', 'write'));
-- Null: never. The checksum covers both.
ALTER TABLE api_tokens ADD COLUMN expires_at INTEGER;

-- To the minute. The sessions so far were used when they began, or later.
ALTER TABLE sessions ADD COLUMN last_used_at INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET last_used_at = created_at;
