-- The messages of a chat are a tree: an edited question, or an answer written anew, stands beside the first one.
ALTER TABLE messages ADD COLUMN parent_id INTEGER REFERENCES messages (id);
CREATE INDEX messages_of_parent ON messages (parent_id);

-- The question whose documents an edited one goes on with.
ALTER TABLE messages ADD COLUMN documents_of INTEGER REFERENCES messages (id);
CREATE INDEX messages_with_documents_of ON messages (documents_of);

-- The end of the branch that is shown.
ALTER TABLE chats ADD COLUMN leaf_id INTEGER REFERENCES messages (id);
CREATE INDEX chats_by_leaf ON chats (leaf_id);

UPDATE messages SET parent_id =
    (SELECT max(before.id) FROM messages before WHERE before.chat_id = messages.chat_id AND before.id < messages.id);
UPDATE chats SET leaf_id = (SELECT max(id) FROM messages WHERE chat_id = chats.id);
