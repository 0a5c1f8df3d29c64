//! What the window can ask for. Thin: each command hands over to the part of the shell that does it.

use std::path::PathBuf;

use engine::protocol::{Event, Passage, Request};
use tauri::ipc::{Channel, Response};
use tauri::{AppHandle, State};
use tauri_plugin_dialog::DialogExt;
use tokio::sync::oneshot;

use crate::api::{
    Again, ApiError, AppEvent, AppInfo, Chat, ChatSummary, CompareRequest, CompareStarted, Comparison, Found,
    ModelEntry, PickedFile, Pieces, Question, Sent, ShellSettings, SnapshotUse,
};
use crate::chats;
use crate::error::Problem;
use crate::shell::Shell;
use crate::{files, links};

pub mod transfer;

type Result<T> = std::result::Result<T, ApiError>;

/// Sends the window's events through `channel` from now on.
#[tauri::command]
pub async fn subscribe(shell: State<'_, Shell>, channel: Channel<Vec<AppEvent>>) -> Result<()> {
    shell.outbox.subscribe(Box::new(move |batch| channel.send(batch).is_ok()));
    Ok(())
}

/// The program itself.
#[tauri::command]
pub async fn app_info(shell: State<'_, Shell>) -> Result<AppInfo> {
    Ok(AppInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data_folder: shell.places.data.to_string_lossy().into_owned(),
        worker_log: shell.places.worker_log().to_string_lossy().into_owned(),
    })
}

/// Shows the data folder in the file manager.
#[tauri::command]
pub async fn open_data_folder(shell: State<'_, Shell>) -> Result<()> {
    let folder = &shell.places.data;
    let opened = tauri_plugin_opener::open_path(folder, None::<&str>);
    Ok(opened.map_err(|error| Problem::FileManager { path: folder.clone(), error: error.to_string() })?)
}

/// Models of the catalogue and of the person's own.
#[tauri::command]
pub async fn models(shell: State<'_, Shell>) -> Result<Vec<ModelEntry>> {
    Ok(shell.models.list(shell.worker.seen().is_on_gpu()).await?)
}

/// Opens a model file in place of the open one; answers are stopped.
#[tauri::command]
pub async fn load_model(shell: State<'_, Shell>, path: PathBuf) -> Result<()> {
    Ok(shell.load_model(path).await?)
}

/// Gives the model's memory back; answers are stopped.
#[tauri::command]
pub async fn eject_model(shell: State<'_, Shell>) -> Result<()> {
    Ok(shell.eject_model().await?)
}

/// Starts to download a model of the catalogue; how it goes arrives as events.
#[tauri::command]
pub async fn fetch_model(shell: State<'_, Shell>, id: String) -> Result<()> {
    Ok(shell.models.fetch(&id)?)
}

/// Stops a download; what has arrived is kept.
#[tauri::command]
pub async fn pause_fetch(shell: State<'_, Shell>, id: String) -> Result<()> {
    shell.models.pause(&id);
    Ok(())
}

/// Gives a download up, also one that was paused; nothing of it is kept.
#[tauri::command]
pub async fn cancel_fetch(shell: State<'_, Shell>, id: String) -> Result<()> {
    Ok(shell.models.cancel(&id)?)
}

/// Takes a model off this machine, or off the list where its file is the person's; an open one is closed first.
#[tauri::command]
pub async fn remove_model(shell: State<'_, Shell>, path: PathBuf) -> Result<()> {
    Ok(shell.remove_model(path).await?)
}

/// The settings that the shell obeys.
#[tauri::command]
pub async fn shell_settings(shell: State<'_, Shell>) -> Result<ShellSettings> {
    Ok(shell.settings.now())
}

/// Changes them.
#[tauri::command]
pub async fn change_settings(shell: State<'_, Shell>, settings: ShellSettings) -> Result<()> {
    Ok(shell.change_settings(settings).await?)
}

/// Tokens of each text, by the open model's tokenizer.
#[tauri::command]
pub async fn count_tokens(shell: State<'_, Shell>, texts: Vec<String>) -> Result<Vec<u32>> {
    shell.worker.settled().await;
    match shell.worker.ask(Request::Count { texts }).await? {
        Event::Counted { counts } => Ok(counts),
        _ => Err(Problem::WorkerAnswer.into()),
    }
}

/// The chat list, the last used first.
#[tauri::command]
pub async fn chats(shell: State<'_, Shell>) -> Result<Vec<ChatSummary>> {
    Ok(shell.store.run(|db| chats::chats(db)).await?)
}

/// A whole chat.
#[tauri::command]
pub async fn open_chat(shell: State<'_, Shell>, id: String) -> Result<Chat> {
    Ok(shell.answers.open(id).await?)
}

/// Gives a chat another title.
#[tauri::command]
pub async fn rename_chat(shell: State<'_, Shell>, id: String, title: String) -> Result<()> {
    shell.store.run(move |db| chats::rename(db, &id, &title)).await?;
    shell.outbox.push(AppEvent::ChatsChanged);
    Ok(())
}

/// Holds a chat at the top of the list, or no longer.
#[tauri::command]
pub async fn pin_chat(shell: State<'_, Shell>, id: String, pinned: bool) -> Result<()> {
    shell.store.run(move |db| chats::pin(db, &id, pinned)).await?;
    shell.outbox.push(AppEvent::ChatsChanged);
    Ok(())
}

/// Puts a deleted chat back.
#[tauri::command]
pub async fn restore_chat(shell: State<'_, Shell>, id: String) -> Result<()> {
    shell.store.run(move |db| chats::restore(db, &id)).await?;
    shell.outbox.push(AppEvent::ChatsChanged);
    Ok(())
}

/// The chats that have every one of these words.
#[tauri::command]
pub async fn search_chats(shell: State<'_, Shell>, words: String) -> Result<Vec<Found>> {
    Ok(shell.store.run(move |db| chats::search(db, &words)).await?)
}

/// Deletes a chat; for a minute it can be put back.
#[tauri::command]
pub async fn delete_chat(shell: State<'_, Shell>, id: String) -> Result<()> {
    Ok(shell.answers.delete(id).await?)
}

/// Stores a question and has it answered; the answer arrives as events.
#[tauri::command]
pub async fn send(shell: State<'_, Shell>, mut question: Question) -> Result<Sent> {
    let files = shell.documents.claim(&mut question.documents);
    let sent = shell.answers.send(question).await?;
    shell.documents.sent(&files);
    Ok(sent)
}

/// Has an answer written anew, or its rest; it arrives as events.
#[tauri::command]
pub async fn answer_again(shell: State<'_, Shell>, again: Again) -> Result<Sent> {
    Ok(shell.answers.again(again).await?)
}

/// Shows the branch of a chat that a message stands in.
#[tauri::command]
pub async fn show_branch(shell: State<'_, Shell>, chat: String, message: i64) -> Result<Chat> {
    Ok(shell.answers.show_branch(chat, message).await?)
}

/// Ends a chat's answer.
#[tauri::command]
pub async fn stop(shell: State<'_, Shell>, chat: String) -> Result<()> {
    shell.answers.stop(&chat).await;
    Ok(())
}

/// Begins to answer one question under several caches; how it goes arrives as events.
#[tauri::command]
pub async fn compare(shell: State<'_, Shell>, request: CompareRequest) -> Result<CompareStarted> {
    Ok(shell.comparisons.begin(request).await?)
}

/// Ends the comparison that is being answered.
#[tauri::command]
pub async fn stop_comparison(shell: State<'_, Shell>) -> Result<()> {
    shell.comparisons.stop();
    Ok(())
}

/// The last comparison of a chat.
#[tauri::command]
pub async fn last_comparison(shell: State<'_, Shell>, chat: String) -> Result<Option<Comparison>> {
    Ok(shell.store.run(move |db| chats::comparisons::comparison(db, &chat)).await?)
}

/// Changes a chat's budget, also while it is being answered; `None` follows the free memory.
#[tauri::command]
pub async fn set_budget(shell: State<'_, Shell>, chat: String, budget: Option<u32>) -> Result<()> {
    shell.worker.ask(Request::SetBudget { session: chat, budget }).await?;
    Ok(())
}

/// Keeps a passage of a chat from eviction, or no longer.
#[tauri::command]
pub async fn pin(shell: State<'_, Shell>, chat: String, passage: Passage, pinned: bool) -> Result<()> {
    shell.worker.ask(Request::Pin { session: chat.clone(), passage, pinned }).await?;
    shell.snapshots.changed(&chat);
    Ok(())
}

/// The text of some positions of a chat.
#[tauri::command]
pub async fn text_at(shell: State<'_, Shell>, chat: String, start: u32, end: u32) -> Result<String> {
    match shell.worker.ask(Request::TextAt { session: chat, start, end }).await? {
        Event::Text { text } => Ok(text),
        _ => Err(Problem::WorkerAnswer.into()),
    }
}

/// The same, with the place of each token in it.
#[tauri::command]
pub async fn pieces(shell: State<'_, Shell>, chat: String, start: u32, end: u32) -> Result<Pieces> {
    match shell.worker.ask(Request::Pieces { session: chat, start, end }).await? {
        Event::Pieces { text, lengths } => Ok(Pieces { text, lengths }),
        _ => Err(Problem::WorkerAnswer.into()),
    }
}

/// Asks what each layer holds of a chat; it arrives as an event, also while it is being answered.
#[tauri::command]
pub async fn show_layers(shell: State<'_, Shell>, chat: String, bins: u32) -> Result<()> {
    shell.worker.ask(Request::Layers { session: chat, bins }).await?;
    Ok(())
}

/// Lets the person choose documents and models in the system's dialog; none when they think better of it.
#[tauri::command]
pub async fn pick_files(app: AppHandle) -> Result<Vec<PickedFile>> {
    let (chosen, choice) = oneshot::channel();
    let mut dialog = app.dialog().file().set_title("Attach documents or open a model");
    for (name, extensions) in files::KINDS {
        dialog = dialog.add_filter(name, extensions);
    }
    dialog.pick_files(move |paths| drop(chosen.send(paths)));
    let mut picked = Vec::new();
    for path in choice.await.ok().flatten().unwrap_or_default() {
        if let Ok(path) = path.into_path() {
            picked.push(files::stat(&path).await?);
        }
    }
    Ok(picked)
}

/// Name and size of a dropped file.
#[tauri::command]
pub async fn stat_file(path: PathBuf) -> Result<PickedFile> {
    Ok(files::stat(&path).await?)
}

/// The bytes of a file that is being attached. Of a PDF, a copy is kept.
#[tauri::command]
pub async fn read_file(shell: State<'_, Shell>, path: PathBuf) -> Result<Response> {
    Ok(Response::new(shell.documents.attach(&path).await?))
}

/// The bytes of a document of a chat, as they were when it was attached.
#[tauri::command]
pub async fn read_document(shell: State<'_, Shell>, id: i64) -> Result<Response> {
    Ok(Response::new(shell.documents.read(id).await?))
}

/// The text of a document of a chat, page by page.
#[tauri::command]
pub async fn document_pages(shell: State<'_, Shell>, id: i64) -> Result<Vec<String>> {
    Ok(shell.store.run(move |db| chats::pages_of(db, id)).await?)
}

/// What the caches of chats take on the disk.
#[tauri::command]
pub async fn snapshot_use(shell: State<'_, Shell>) -> Result<SnapshotUse> {
    Ok(shell.snapshots.usage().await?)
}

/// Sets how many bytes the caches of chats may take on the disk; 0 keeps none.
#[tauri::command]
pub async fn set_snapshot_limit(shell: State<'_, Shell>, bytes: u64) -> Result<SnapshotUse> {
    shell.snapshots.set_limit(bytes).await?;
    Ok(shell.snapshots.usage().await?)
}

/// Opens a web page in the person's browser.
#[tauri::command]
pub async fn open_link(url: String) -> Result<()> {
    let url = links::web_address(&url)?;
    tauri_plugin_opener::open_url(url, None::<&str>).map_err(|error| Problem::Browser(error.to_string()))?;
    Ok(())
}
