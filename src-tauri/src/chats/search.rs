//! Full-text search over titles, messages and the names of documents.

use std::collections::HashMap;
use std::ops::Range;

use rusqlite::{Connection, ToSql, params_from_iter};

use super::names::role_from;
use crate::api::{Found, FoundMessage, SnippetPart};
use crate::error::Problem;

/// The tokenizer of the index knows no shorter words: those are looked for in the texts themselves.
const INDEXED_LEN: usize = 3;
/// Messages that are looked at, the newest first.
const MOST_MESSAGES: usize = 300;
/// Of one chat.
const MOST_SHOWN: usize = 3;
/// Characters of a snippet before the first word that was looked for, and after its beginning.
const BEFORE: usize = 24;
const AFTER: usize = 96;

const ROWS: &str = "INSERT INTO message_search (rowid, text, documents)
    SELECT m.id, m.text, coalesce(
        (SELECT group_concat(d.name, char(10)) FROM documents d WHERE d.message_id = coalesce(m.documents_of, m.id)), '')
    FROM messages m WHERE m.role <> 'system'";

/// Makes a message findable as it is now.
pub fn index(db: &Connection, message: i64) -> Result<(), Problem> {
    forget(db, message)?;
    db.prepare_cached(&format!("{ROWS} AND m.id = ?1"))?.execute([message])?;
    Ok(())
}

/// Makes a message that is about to change unfindable.
pub fn forget(db: &Connection, message: i64) -> Result<(), Problem> {
    db.prepare_cached("DELETE FROM message_search WHERE rowid = ?1")?.execute([message])?;
    Ok(())
}

/// Takes in what was cut off before it could be indexed.
pub fn catch_up(db: &Connection) -> Result<(), Problem> {
    db.execute(&format!("{ROWS} AND m.id NOT IN (SELECT rowid FROM message_search)"), [])?;
    Ok(())
}

/// The chats that have every word of `wanted` in the title, in one message or in the names of its documents.
pub fn search(db: &Connection, wanted: &str) -> Result<Vec<Found>, Problem> {
    let words: Vec<String> = wanted.split_whitespace().map(str::to_lowercase).collect();
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let mut messages = messages(db, &words)?;
    let found = super::chats(db)?.into_iter().filter_map(|chat| {
        let messages = messages.remove(&chat.id).unwrap_or_default();
        let in_title = words.iter().all(|word| find(&chat.title, word).is_some());
        let more = u32::try_from(messages.len().saturating_sub(MOST_SHOWN)).unwrap_or(u32::MAX);
        (in_title || !messages.is_empty()).then(|| {
            let title = parts(&chat.title, &words);
            (in_title, Found { chat, title, messages: messages.into_iter().take(MOST_SHOWN).collect(), more })
        })
    });
    let (by_title, others): (Vec<_>, Vec<_>) = found.partition(|(in_title, _)| *in_title);
    Ok(by_title.into_iter().chain(others).map(|(_, found)| found).collect())
}

fn messages(db: &Connection, words: &[String]) -> Result<HashMap<String, Vec<FoundMessage>>, Problem> {
    let (indexed, short): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.chars().count() >= INDEXED_LEN);
    let quoted: Vec<_> = indexed.iter().map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect();
    let mut conditions = vec!["c.deleted_ms IS NULL".to_owned()];
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    if !quoted.is_empty() {
        values.push(Box::new(quoted.join(" AND ")));
        conditions.push("message_search MATCH ?1".to_owned());
    }
    for word in short {
        let escaped = word.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        values.push(Box::new(format!("%{escaped}%")));
        let n = values.len();
        conditions.push(format!("(s.text LIKE ?{n} ESCAPE '\\' OR s.documents LIKE ?{n} ESCAPE '\\')"));
    }
    let mut query = db.prepare_cached(&format!(
        "SELECT m.chat_id, m.id, m.role, s.text, s.documents FROM message_search s
         JOIN messages m ON m.id = s.rowid JOIN chats c ON c.id = m.chat_id
         WHERE {} ORDER BY s.rowid DESC LIMIT {MOST_MESSAGES}",
        conditions.join(" AND "),
    ))?;
    let mut rows = query.query(params_from_iter(values))?;
    let mut messages: HashMap<String, Vec<FoundMessage>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let (text, documents): (String, String) = (row.get(3)?, row.get(4)?);
        let in_text = words.iter().any(|word| find(&text, word).is_some());
        let snippet = snippet(if in_text { &text } else { &documents }, words);
        let role = role_from(&row.get::<_, String>(2)?);
        messages.entry(row.get(0)?).or_default().push(FoundMessage { id: row.get(1)?, role, snippet });
    }
    Ok(messages)
}

/// A line of `text` around the first of the words.
fn snippet(text: &str, words: &[String]) -> Vec<SnippetPart> {
    let at = words.iter().filter_map(|word| find(text, word)).map(|range| range.start).min().unwrap_or(0);
    let before = text[..at].char_indices().rev().nth(BEFORE - 1).map_or(0, |(i, _)| i);
    let after = text[at..].char_indices().nth(AFTER).map_or(text.len(), |(i, _)| at + i);
    let (left, right) = (if before > 0 { "…" } else { "" }, if after < text.len() { "…" } else { "" });
    let line = text[before..after].split_whitespace().collect::<Vec<_>>().join(" ");
    parts(&format!("{left}{line}{right}"), words)
}

/// `text`, cut where the words stand in it.
fn parts(text: &str, words: &[String]) -> Vec<SnippetPart> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let next = words.iter().filter_map(|word| find(rest, word)).min_by_key(|hit| (hit.start, usize::MAX - hit.end));
        let Some(Range { start, end }) = next.filter(|hit| !hit.is_empty()) else { break };
        if start > 0 {
            parts.push(SnippetPart { text: rest[..start].to_owned(), hit: false });
        }
        parts.push(SnippetPart { text: rest[start..end].to_owned(), hit: true });
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        parts.push(SnippetPart { text: rest.to_owned(), hit: false });
    }
    parts
}

/// The first place where `text` spells a word that is in lower case, whatever its own case.
fn find(text: &str, word: &str) -> Option<Range<usize>> {
    let first = word.chars().next()?;
    text.char_indices()
        .filter(|(_, c)| c.to_lowercase().next() == Some(first))
        .find_map(|(start, _)| Some(start..start + spelt(&text[start..], word)?))
}

/// Bytes of `text` that spell the word.
fn spelt(text: &str, word: &str) -> Option<usize> {
    let mut wanted = word.chars().peekable();
    for (at, c) in text.char_indices() {
        if wanted.peek().is_none() {
            return Some(at);
        }
        if !c.to_lowercase().all(|lower| wanted.next() == Some(lower)) {
            return None;
        }
    }
    wanted.next().is_none().then_some(text.len())
}
