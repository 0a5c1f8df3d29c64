//! Questions and answers as they come in.

use engine::protocol::Role;
use rusqlite::{Connection, OptionalExtension, params};

use super::list::{self, title_of};
use super::names::{finish_name, role_from, role_name};
use super::{Ending, branches, documents, find, now_ms, search};
use crate::api::{Attachment, Sent, StoredMessage};
use crate::error::Problem;

/// A question on its way into a chat.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The chat; `None` makes a new one.
    pub chat: Option<String>,
    /// The question that it stands beside; `None` asks at the end of the branch that is shown.
    pub edits: Option<i64>,
    /// Goes before the first question of a new chat, unless it is blank.
    pub system: String,
    /// What is asked.
    pub text: String,
    /// New documents.
    pub attachments: Vec<Attachment>,
}

/// Stores a question and an empty answer to it.
pub fn ask(db: &mut Connection, asked: &Asked) -> Result<Sent, Problem> {
    let Asked { chat, edits, system, text, attachments } = asked;
    let now = now_ms();
    let tx = db.transaction()?;
    let id = match chat {
        Some(id) => {
            find(&tx, id)?;
            id.clone()
        }
        None => {
            let id = uuid::Uuid::now_v7().to_string();
            tx.execute(
                "INSERT INTO chats (id, title, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?3)",
                params![id, title_of(text), now],
            )?;
            if !system.trim().is_empty() {
                insert(&tx, &id, None, Role::System, system.trim(), now)?;
            }
            id
        }
    };
    let parent = match edits {
        Some(edited) => {
            of_role(&tx, &id, *edited, Role::User)?;
            branches::parent_of(&tx, &id, *edited)?
        }
        None => branches::leaf(&tx, &id)?,
    };
    let question = insert(&tx, &id, parent, Role::User, text, now)?;
    if let Some(edited) = edits {
        tx.execute(
            "UPDATE messages SET documents_of = (SELECT coalesce(documents_of, id) FROM messages WHERE id = ?2)
             WHERE id = ?1",
            [question, *edited],
        )?;
    }
    for attachment in attachments {
        documents::insert(&tx, question, attachment)?;
    }
    search::index(&tx, question)?;
    insert(&tx, &id, Some(question), Role::Assistant, "", now)?;
    let sent = sent(&tx, &id)?;
    tx.commit()?;
    Ok(sent)
}

/// Stores an empty answer beside `answer`, to the same question.
pub fn answer_anew(db: &mut Connection, chat: &str, answer: i64) -> Result<Sent, Problem> {
    let tx = db.transaction()?;
    of_role(&tx, chat, answer, Role::Assistant)?;
    let question = branches::parent_of(&tx, chat, answer)?;
    insert(&tx, chat, question, Role::Assistant, "", now_ms())?;
    let sent = sent(&tx, chat)?;
    tx.commit()?;
    Ok(sent)
}

/// Makes an answer that ended early one that is being written.
pub fn take_up(db: &mut Connection, chat: &str, answer: i64) -> Result<Sent, Problem> {
    let tx = db.transaction()?;
    of_role(&tx, chat, answer, Role::Assistant)?;
    let changed = tx.execute(
        "UPDATE messages SET finish = NULL, problem = NULL WHERE id = ?1 AND text <> '' AND finish IS NOT 'eos'
         AND NOT EXISTS (SELECT 1 FROM messages after WHERE after.parent_id = ?1)",
        [answer],
    )?;
    if changed == 0 {
        return Err(Problem::Complete);
    }
    search::forget(&tx, answer)?;
    branches::set_leaf(&tx, chat, answer)?;
    let sent = sent(&tx, chat)?;
    tx.commit()?;
    Ok(sent)
}

/// The question and the answer that the branch shown ends with.
fn sent(db: &Connection, chat: &str) -> Result<Sent, Problem> {
    let mut chat = branches::chat(db, chat)?;
    let answer = chat.messages.pop().ok_or(Problem::NoSuchMessage)?;
    let question = chat.messages.pop().ok_or(Problem::NoSuchMessage)?;
    let system = chat.messages.pop().filter(|before| before.role == Role::System);
    Ok(Sent { chat: chat.summary, system, question, answer: StoredMessage { writing: true, ..answer } })
}

/// Refuses a message that is not of this chat, or not said by `role`.
fn of_role(db: &Connection, chat: &str, message: i64, role: Role) -> Result<(), Problem> {
    let said_by: Option<String> = db
        .query_row("SELECT role FROM messages WHERE id = ?2 AND chat_id = ?1", params![chat, message], |row| row.get(0))
        .optional()?;
    match said_by {
        Some(name) if role_from(&name) == role => Ok(()),
        _ => Err(Problem::NoSuchMessage),
    }
}

/// Adds a message, which then is the end of the branch that is shown.
fn insert(db: &Connection, chat: &str, parent: Option<i64>, role: Role, text: &str, now: i64) -> Result<i64, Problem> {
    db.execute(
        "INSERT INTO messages (chat_id, parent_id, role, text, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![chat, parent, role_name(role), text, now],
    )?;
    let id = db.last_insert_rowid();
    branches::set_leaf(db, chat, id)?;
    list::used(db, chat)?;
    Ok(id)
}

/// Appends to an answer.
pub fn append(db: &Connection, answer: i64, text: &str) -> Result<(), Problem> {
    db.prepare_cached("UPDATE messages SET text = text || ?2 WHERE id = ?1")?.execute(params![answer, text])?;
    Ok(())
}

/// Appends the rest of an answer and stores how it ended.
pub fn end(db: &mut Connection, answer: i64, rest: &str, ending: &Ending) -> Result<(), Problem> {
    let tx = db.transaction()?;
    append(&tx, answer, rest)?;
    match ending {
        Ending::Finished(reason, stats) => tx.execute(
            "UPDATE messages SET finish = ?2, stats = ?3 WHERE id = ?1",
            params![answer, finish_name(*reason), serde_json::to_string(stats).ok()],
        )?,
        Ending::Broken(problem) => {
            tx.execute("UPDATE messages SET problem = ?2 WHERE id = ?1", params![answer, problem])?
        }
    };
    search::index(&tx, answer)?;
    let chat: Option<String> =
        tx.query_row("SELECT chat_id FROM messages WHERE id = ?1", [answer], |row| row.get(0)).optional()?;
    if let Some(chat) = chat {
        list::used(&tx, &chat)?;
    }
    tx.commit()?;
    Ok(())
}
