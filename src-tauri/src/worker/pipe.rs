//! Frames over the pipes of a child process, without blocking. Their form is `engine::protocol`'s.

use std::io;

use engine::protocol::{Command, MAX_FRAME, Report, read_frame, write_frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The other side would take a longer frame for nonsense, and end.
const LONGEST: usize = if cfg!(test) { 1 << 20 } else { MAX_FRAME };

/// Sends one command; `false` where it is too long to be sent.
///
/// # Errors
/// When the other side is gone.
pub async fn send(to: &mut (impl AsyncWrite + Unpin), command: &Command) -> io::Result<bool> {
    let mut frame = Vec::new();
    write_frame(&mut frame, command)?;
    if frame.len() > LONGEST {
        return Ok(false);
    }
    to.write_all(&frame).await?;
    to.flush().await?;
    Ok(true)
}

/// Waits for the next report; `None` when the other side closed the pipe between two of them.
///
/// # Errors
/// When the pipe breaks inside a frame, or what comes is not a frame.
pub async fn receive(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Report>> {
    let mut frame = vec![0; 4];
    if from.read(&mut frame[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut frame[1..]).await?;
    let len = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
    // A longer one is refused below, before any of it is read.
    if len <= MAX_FRAME {
        from.take(len as u64).read_to_end(&mut frame).await?;
    }
    read_frame(&mut frame.as_slice())
}
