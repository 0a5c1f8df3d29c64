-- The last comparison of each chat, as JSON.
CREATE TABLE comparisons (
    chat_id TEXT PRIMARY KEY REFERENCES chats (id) ON DELETE CASCADE,
    result TEXT NOT NULL
) STRICT;
