//! The Tauri application and its one window.

use std::path::PathBuf;

use tauri::webview::{NewWindowResponse, WebviewWindowBuilder};
use tauri::{App, AppHandle, Manager, RunEvent, Url};
use tauri_plugin_dialog::{DialogExt, MessageDialogKind};

use crate::api::AppEvent;
use crate::commands;
use crate::error::Problem;
use crate::instance::{Claim, Instance, arguments};
use crate::shell::{Places, Shell, own_folder};

/// Holds chats, settings and logs in place of the system's folders.
const DATA_VARIABLE: &str = "CISTERN_DATA";

/// Shows the window until it is closed.
///
/// # Errors
/// When the system offers no window.
pub fn run() -> tauri::Result<()> {
    let app = tauri::Builder::default()
        .plugin(tauri_plugin_dialog::init())
        .invoke_handler(tauri::generate_handler![
            commands::subscribe,
            commands::app_info,
            commands::open_data_folder,
            commands::models,
            commands::load_model,
            commands::eject_model,
            commands::fetch_model,
            commands::pause_fetch,
            commands::cancel_fetch,
            commands::remove_model,
            commands::shell_settings,
            commands::change_settings,
            commands::count_tokens,
            commands::chats,
            commands::open_chat,
            commands::rename_chat,
            commands::pin_chat,
            commands::delete_chat,
            commands::restore_chat,
            commands::search_chats,
            commands::transfer::export_chat,
            commands::transfer::import_chat,
            commands::send,
            commands::answer_again,
            commands::show_branch,
            commands::stop,
            commands::compare,
            commands::stop_comparison,
            commands::last_comparison,
            commands::set_budget,
            commands::pin,
            commands::text_at,
            commands::pieces,
            commands::show_layers,
            commands::pick_files,
            commands::stat_file,
            commands::read_file,
            commands::snapshot_use,
            commands::set_snapshot_limit,
            commands::read_document,
            commands::document_pages,
            commands::open_link,
        ])
        .setup(|app| Ok(set_up(app)?))
        .build(tauri::generate_context!())?;
    app.run(|app, event| {
        // The process ends without running destructors: the worker must be told.
        if let RunEvent::Exit = event
            && let Some(shell) = app.try_state::<Shell>()
        {
            tauri::async_runtime::block_on(shell.close());
        }
    });
    Ok(())
}

fn set_up(app: &mut App) -> tauri::Result<()> {
    let places = places(app)?;
    let files = arguments();
    let instance = match Instance::claim(&places.data, &files) {
        Ok(Claim::First(instance)) => instance,
        Ok(Claim::Second) => std::process::exit(0),
        Err(problem) => {
            refuse(app, &problem);
            return Ok(());
        }
    };
    match tauri::async_runtime::block_on(Shell::start(places)) {
        Ok(shell) => {
            app.manage(shell);
            open_window(app)?;
            #[cfg(unix)]
            end_when_told(app.handle().clone());
            tell_opened(app.handle(), files);
            let handle = app.handle().clone();
            instance.answer(move |files| {
                come_forward(&handle);
                tell_opened(&handle, files);
            });
            Ok(())
        }
        Err(problem) => {
            refuse(app, &problem);
            Ok(())
        }
    }
}

/// A session that ends, or a machine that shuts down, closes the program as a person does: what is held is saved.
#[cfg(unix)]
fn end_when_told(app: AppHandle) {
    use tokio::signal::unix::{SignalKind, signal};

    tauri::async_runtime::spawn(async move {
        let listen = |kind| signal(kind).ok();
        let (Some(mut term), Some(mut int), Some(mut hangup)) =
            (listen(SignalKind::terminate()), listen(SignalKind::interrupt()), listen(SignalKind::hangup()))
        else {
            return;
        };
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            _ = hangup.recv() => {}
        }
        app.exit(0);
    });
}

/// Hands files to the window, as if they were dropped on it.
fn tell_opened(app: &AppHandle, files: Vec<PathBuf>) {
    let paths: Vec<_> = files.into_iter().map(|path| path.to_string_lossy().into_owned()).collect();
    if let Some(shell) = app.try_state::<Shell>().filter(|_| !paths.is_empty()) {
        shell.outbox.push(AppEvent::Opened { paths });
    }
}

/// A desktop that lets no program take the focus marks the window instead.
fn come_forward(app: &AppHandle) {
    for window in app.webview_windows().values() {
        let _ = window.unminimize();
        let _ = window.show();
        let _ = window.set_focus();
    }
}

fn places(app: &App) -> tauri::Result<Places> {
    let programs = own_folder();
    Ok(match std::env::var_os(DATA_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from) {
        Some(data) => Places { logs: data.join("logs"), data, programs },
        None => Places { data: app.path().app_data_dir()?, logs: app.path().app_log_dir()?, programs },
    })
}

fn open_window(app: &App) -> tauri::Result<()> {
    let Some(config) = app.config().app.windows.first() else { return Ok(()) };
    let dev = app.config().build.dev_url.clone().filter(|_| tauri::is_dev());
    WebviewWindowBuilder::from_config(app, config)?
        // Model output is shown in this page: whatever it contains, the window never leaves our own page.
        .on_navigation(move |url| is_ours(url, dev.as_ref()))
        .on_new_window(|_, _| NewWindowResponse::Deny)
        .build()?;
    Ok(())
}

fn is_ours(url: &Url, dev: Option<&Url>) -> bool {
    // Windows and Android serve the page from a host name in place of the scheme.
    url.scheme() == "tauri"
        || url.as_str() == "about:blank"
        || url.host_str() == Some("tauri.localhost")
        || dev.is_some_and(|dev| dev.origin() == url.origin())
}

/// Without a place for chats there is nothing to show but the reason.
fn refuse(app: &App, problem: &Problem) {
    eprintln!("{problem}");
    let handle = app.handle().clone();
    app.dialog()
        .message(problem.to_string())
        .title("Cistern could not start")
        .kind(MessageDialogKind::Error)
        .show(move |_| handle.exit(1));
}
