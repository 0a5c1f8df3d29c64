//! Chats out of the program and into it, through files that the person names.

use std::path::{Path, PathBuf};

use tauri::{AppHandle, State};
use tauri_plugin_dialog::DialogExt;
use tokio::sync::oneshot;

use crate::api::{ApiError, AppEvent, ChatSummary, ExportFormat};
use crate::chats;
use crate::error::Problem;
use crate::files;
use crate::shell::Shell;

type Result<T> = std::result::Result<T, ApiError>;

/// Writes a chat to a file that the person names in the system's dialog, and says where; `None` when they think
/// better of it.
#[tauri::command]
pub async fn export_chat(
    app: AppHandle,
    shell: State<'_, Shell>,
    id: String,
    format: ExportFormat,
) -> Result<Option<String>> {
    let (title, text) = shell
        .store
        .run(move |db| {
            let title = chats::find(db, &id)?.title;
            let text = match format {
                ExportFormat::Markdown => chats::to_markdown(db, &id)?,
                ExportFormat::Json => chats::to_json(db, &id)?,
            };
            Ok((title, text))
        })
        .await?;
    let (name, extension) = match format {
        ExportFormat::Markdown => ("Markdown", "md"),
        ExportFormat::Json => ("JSON", "json"),
    };
    let (chosen, choice) = oneshot::channel();
    app.dialog()
        .file()
        .set_title("Export the chat")
        .set_file_name(format!("{}.{extension}", files::name_from(&title)))
        .add_filter(name, &[extension])
        .save_file(move |path| drop(chosen.send(path)));
    let Some(path) = choice.await.ok().flatten().and_then(|path| path.into_path().ok()) else { return Ok(None) };
    files::write(&path, text.as_bytes()).await?;
    Ok(Some(path.to_string_lossy().into_owned()))
}

/// Takes in a chat from a file that was dropped, or that the person chooses in the system's dialog; `None` when
/// they think better of it.
#[tauri::command]
pub async fn import_chat(
    app: AppHandle,
    shell: State<'_, Shell>,
    path: Option<PathBuf>,
) -> Result<Option<ChatSummary>> {
    let path = match path {
        Some(path) => path,
        None => match choose(&app).await {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    let summary = import(&shell, &path).await?;
    shell.outbox.push(AppEvent::ChatsChanged);
    Ok(Some(summary))
}

async fn choose(app: &AppHandle) -> Option<PathBuf> {
    let (chosen, choice) = oneshot::channel();
    app.dialog()
        .file()
        .set_title("Import a chat")
        .add_filter("Chats", &["json"])
        .pick_file(move |path| drop(chosen.send(path)));
    choice.await.ok().flatten()?.into_path().ok()
}

async fn import(shell: &Shell, path: &Path) -> std::result::Result<ChatSummary, Problem> {
    let json = files::read_chat(path).await?;
    shell.store.run(move |db| chats::from_json(db, &json)).await
}
