//! The last comparison of each chat.

use engine::protocol::{Message, Role};
use rusqlite::{Connection, OptionalExtension, params};

use crate::api::{CompareRequest, Comparison};
use crate::error::Problem;

/// What the model reads for a comparison, its question last.
pub fn conversation(db: &Connection, request: &CompareRequest) -> Result<Vec<Message>, Problem> {
    let mut messages = match &request.chat {
        Some(chat) => {
            super::find(db, chat)?;
            super::leaf(db, chat)?.map_or_else(|| Ok(Vec::new()), |leaf| super::conversation(db, leaf))?
        }
        None => {
            let system = request.system.trim();
            let message = |text: &str| Message { role: Role::System, text: text.to_owned(), documents: Vec::new() };
            Some(system).filter(|system| !system.is_empty()).map(message).into_iter().collect()
        }
    };
    let documents = request.documents.iter().map(|attachment| attachment.document.clone());
    if request.again {
        let question = messages.iter().rposition(|message| message.role == Role::User);
        messages.truncate(question.map_or(0, |at| at + 1));
        messages.last_mut().ok_or(Problem::EmptyQuestion)?.documents.extend(documents);
    } else {
        messages.push(Message { role: Role::User, text: request.text.clone(), documents: documents.collect() });
    }
    Ok(messages)
}

/// Keeps a chat's comparison in place of the one before it. A chat that was deleted meanwhile keeps none.
pub fn keep_comparison(db: &Connection, chat: &str, comparison: &Comparison) -> Result<(), Problem> {
    let result =
        serde_json::to_string(comparison).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    db.execute(
        "INSERT INTO comparisons (chat_id, result) SELECT id, ?2 FROM chats WHERE id = ?1
         ON CONFLICT DO UPDATE SET result = excluded.result",
        params![chat, result],
    )?;
    Ok(())
}

/// The last comparison of a chat; one that this version cannot read is none.
pub fn comparison(db: &Connection, chat: &str) -> Result<Option<Comparison>, Problem> {
    let result: Option<String> =
        db.query_row("SELECT result FROM comparisons WHERE chat_id = ?1", [chat], |row| row.get(0)).optional()?;
    Ok(result.and_then(|json| serde_json::from_str(&json).ok()))
}
