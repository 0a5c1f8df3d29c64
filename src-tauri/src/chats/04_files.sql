-- The SHA-256 of the file that a document came from, where a copy of it is kept.
ALTER TABLE documents ADD COLUMN file TEXT;
CREATE INDEX documents_of_file ON documents (file) WHERE file IS NOT NULL;

-- Copies that may belong to no chat: attached and not sent yet, or (since 0) left behind by a chat.
CREATE TABLE loose_files (
    hash TEXT PRIMARY KEY,
    since_ms INTEGER NOT NULL
) STRICT;

-- However a document goes: with its chat, or with the branch that it stood in.
CREATE TRIGGER document_leaves_file AFTER DELETE ON documents WHEN old.file IS NOT NULL BEGIN
    INSERT INTO loose_files (hash, since_ms) VALUES (old.file, 0) ON CONFLICT DO UPDATE SET since_ms = 0;
END;
