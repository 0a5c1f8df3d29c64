ALTER TABLE chats ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;

-- Deleted, but not for good yet.
ALTER TABLE chats ADD COLUMN deleted_ms INTEGER;

-- By the ids of messages. Three characters at a time, so that words inside others are found, and those of languages
-- that put no spaces between them. An answer is not here while it is being written.
CREATE VIRTUAL TABLE message_search USING fts5 (text, documents, tokenize = 'trigram');
CREATE TRIGGER message_search_forgets AFTER DELETE ON messages BEGIN
    DELETE FROM message_search WHERE rowid = old.id;
END;
