CREATE TABLE settings (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- Model files from outside the catalogue.
CREATE TABLE own_models (
    path TEXT PRIMARY KEY,
    opened_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE chats (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;

-- An answer with neither `finish` nor `problem` was cut off, unless it is being written right now.
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
    text TEXT NOT NULL,
    finish TEXT CHECK (finish IN ('eos', 'length', 'stopped')),
    problem TEXT,
    stats TEXT,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_of_chat ON messages (chat_id, id);

CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    tokens INTEGER NOT NULL
) STRICT;
CREATE INDEX documents_of_message ON documents (message_id);

CREATE TABLE pages (
    document_id INTEGER NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (document_id, number)
) STRICT;
