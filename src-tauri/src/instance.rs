//! One window on one data folder: a second start hands its files to the first, which comes forward, and ends.
//!
//! The lock is the system's, on a file in the data folder, so that it never outlives a program that crashed. D-Bus,
//! which Tauri's own plugin uses, is not there in every session, and knows programs and not folders.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::Problem;

/// What a start finds.
pub enum Claim {
    /// Nobody else is on this folder.
    First(Instance),
    /// The other window has come forward, and taken the files.
    Second,
}

/// Our hold on a data folder.
pub struct Instance {
    /// `None` on a file system without locks: two windows then share the database, which stands it.
    _lock: Option<File>,
    #[cfg(unix)]
    door: Option<std::os::unix::net::UnixListener>,
}

impl Instance {
    /// Takes hold of the folder, or hands `files` to the one who has.
    ///
    /// # Errors
    /// [`Problem::AlreadyOpen`] where there is another one that does not answer.
    pub fn claim(data: &Path, files: &[PathBuf]) -> Result<Claim, Problem> {
        fs::create_dir_all(data).map_err(|error| Problem::Folder { path: data.to_owned(), error })?;
        let lock = File::options().create(true).append(true).open(data.join("window.lock")).ok();
        match lock.as_ref().map(File::try_lock) {
            Some(Err(TryLockError::WouldBlock)) => {
                hand_over(data, files).map_err(|_| Problem::AlreadyOpen(data.to_owned()))?;
                Ok(Claim::Second)
            }
            locked => Ok(Claim::First(Self {
                _lock: lock.filter(|_| matches!(locked, Some(Ok(())))),
                #[cfg(unix)]
                door: open_door(data),
            })),
        }
    }

    /// Calls `show` with the files of every later start, for as long as the program runs.
    pub fn answer(self, show: impl Fn(Vec<PathBuf>) + Send + 'static) {
        std::thread::spawn(move || {
            // All of it, with the lock.
            let own = &self;
            #[cfg(unix)]
            for visitor in own.door.iter().flat_map(std::os::unix::net::UnixListener::incoming).flatten() {
                if let Ok(files) = receive(&visitor) {
                    show(files);
                }
            }
            // Without visitors, the lock is still held.
            loop {
                std::thread::park();
            }
        });
    }
}

/// The files that the program was started with.
pub fn arguments() -> Vec<PathBuf> {
    std::env::args_os()
        .skip(1)
        .filter(|argument| !argument.to_string_lossy().starts_with('-'))
        .filter_map(|argument| std::path::absolute(argument).ok())
        .collect()
}

#[cfg(unix)]
use unix::{hand_over, open_door, receive};

#[cfg(not(unix))]
fn hand_over(_: &Path, _: &[PathBuf]) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
mod unix {
    use std::fs;
    use std::io::{self, Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    const SOCKET: &str = "window.sock";
    /// A window that is just being made answers once it is there.
    const PATIENCE: Duration = Duration::from_secs(10);
    const LONGEST: u64 = 1 << 20;

    /// Must only be called with the lock held: what lies there is then left over.
    pub fn open_door(data: &Path) -> Option<UnixListener> {
        let socket = data.join(SOCKET);
        let _ = fs::remove_file(&socket);
        UnixListener::bind(socket).ok()
    }

    pub fn hand_over(data: &Path, files: &[PathBuf]) -> io::Result<()> {
        let mut door = UnixStream::connect(data.join(SOCKET))?;
        door.set_read_timeout(Some(PATIENCE))?;
        serde_json::to_writer(&door, files)?;
        door.shutdown(Shutdown::Write)?;
        door.read_exact(&mut [0])
    }

    pub fn receive(mut visitor: &UnixStream) -> io::Result<Vec<PathBuf>> {
        visitor.set_read_timeout(Some(PATIENCE))?;
        let mut said = Vec::new();
        visitor.take(LONGEST).read_to_end(&mut said)?;
        let files = serde_json::from_slice(&said)?;
        visitor.write_all(&[1])?;
        Ok(files)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_start_hands_its_files_to_the_first_and_a_third_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let files = vec![PathBuf::from("/tmp/a paper.pdf"), PathBuf::from("/tmp/ü.gguf")];
        let Claim::First(first) = Instance::claim(&data, &[]).unwrap() else { panic!("nobody else is there") };
        let (shown, seen) = mpsc::channel();
        first.answer(move |files| drop(shown.send(files)));
        assert!(matches!(Instance::claim(&data, &files).unwrap(), Claim::Second));
        assert_eq!(seen.recv_timeout(Duration::from_secs(5)).unwrap(), files);
        // Another folder has a window of its own.
        assert!(matches!(Instance::claim(&folder.path().join("other"), &[]).unwrap(), Claim::First(_)));
    }

    #[test]
    fn what_a_crashed_program_left_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        drop(Instance::claim(folder.path(), &[]).unwrap());
        assert!(folder.path().join("window.sock").exists());
        assert!(matches!(Instance::claim(folder.path(), &[]).unwrap(), Claim::First(_)));
    }

    #[test]
    fn one_that_does_not_answer_is_named_in_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let lock = File::create(folder.path().join("window.lock")).unwrap();
        lock.lock().unwrap();
        let Err(problem) = Instance::claim(folder.path(), &[]) else { panic!("the folder is taken") };
        assert_eq!(problem.code(), "already_open");
        assert!(problem.to_string().contains("is open already"), "{problem}");
    }
}
