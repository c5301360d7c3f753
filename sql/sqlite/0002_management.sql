-- What managing datasets needs: sessions with data, schedules, registrations of webhooks, files being written.

-- None was ever recorded in the table as it was.
DROP TABLE sessions;

CREATE TABLE sessions (
    -- SHA-256 of the session id, hexadecimal.
    session_hash TEXT    NOT NULL PRIMARY KEY,
    -- Null: nobody has logged in.
    user_id      INTEGER REFERENCES users (user_id),
    data         TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_by_user ON sessions (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

-- To the minute; null: never.
ALTER TABLE api_tokens ADD COLUMN last_used_at INTEGER;

-- When the schedule is due; 0: yet to be computed; null: no schedule, no source to fetch, or frozen.
ALTER TABLE datasets ADD COLUMN next_run_at INTEGER;
-- How often a webhook was registered, deleted ones too.
ALTER TABLE datasets ADD COLUMN webhook_registrations INTEGER NOT NULL DEFAULT 0;

UPDATE datasets SET next_run_at = 0 WHERE schedule IS NOT NULL AND source <> 'push' AND NOT frozen;

CREATE INDEX datasets_due ON datasets (next_run_at) WHERE next_run_at IS NOT NULL;

-- Which registration this is; a delivery of an earlier one leaves the webhook alone.
ALTER TABLE webhooks ADD COLUMN registration INTEGER NOT NULL DEFAULT 0;

-- No refresh held a lease so far, so an attempt without an end has none to come.
UPDATE refresh_attempts
SET finished_at = started_at, ok = 0, error = 'the process that ran it ended before it was over'
WHERE finished_at IS NULL;

-- A lease that points to an attempt and an attempt that is pruned are looked for by the attempt.
CREATE UNIQUE INDEX refresh_leases_by_attempt ON refresh_leases (attempt_id);

-- Paths in the store that are being written. Recording a file removes its row, and needs it.
CREATE TABLE file_reservations (
    path       TEXT    NOT NULL PRIMARY KEY,
    -- The attempt that writes the file and renews this with its lease; null: whoever else.
    attempt_id INTEGER REFERENCES refresh_attempts (attempt_id),
    expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX file_reservations_by_attempt ON file_reservations (attempt_id) WHERE attempt_id IS NOT NULL;

-- While there is one that has not expired, no file is removed.
CREATE TABLE file_holds (
    hold_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    expires_at INTEGER NOT NULL
) STRICT;

-- Holds nothing; its lock keeps new holds and removals of files apart.
INSERT INTO file_holds (hold_id, expires_at) VALUES (0, 0);
