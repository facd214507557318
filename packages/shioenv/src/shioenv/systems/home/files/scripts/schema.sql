CREATE TABLE users (
    id      INTEGER PRIMARY KEY,
    name    TEXT NOT NULL,
    email   TEXT UNIQUE,
    created DATE
);

INSERT INTO users VALUES (1, 'alice', 'alice@example.internal', '2025-05-02');
INSERT INTO users VALUES (2, 'bob', 'bob@example.internal', '2025-05-09');
SELECT name FROM users WHERE created > '2025-05-05';
