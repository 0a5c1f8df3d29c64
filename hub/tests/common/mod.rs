//! A server on the loopback interface that speaks as much of the hub's protocol as a download needs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What the server does wrong.
#[derive(Clone, Default)]
pub struct Faults {
    /// Breaks each answer off after this many bytes of the file, the first so many times.
    pub cut: Option<(usize, usize)>,
    /// Does not know ranges.
    pub whole_only: bool,
    /// Sends these bytes instead of those it promised.
    pub other_bytes: bool,
    /// Does not have the file, or answers everything with this status.
    pub status: Option<u16>,
    /// Holds the connection open after this many bytes and sends nothing more.
    pub hang_after: Option<usize>,
    /// Takes a second for the whole file.
    pub slow: bool,
}

/// A running server.
pub struct Server {
    pub endpoint: String,
    /// The `Range` header of each GET, in order.
    pub ranges: Arc<Mutex<Vec<Option<String>>>>,
}

impl Server {
    /// Serves `content` as the file of every repository.
    pub fn start(content: Vec<u8>, faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let (content, cuts) = (Arc::new(content), Arc::new(Mutex::new(faults.cut)));
        let seen = ranges.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (content, faults, cuts, seen) = (content.clone(), faults.clone(), cuts.clone(), seen.clone());
                // A client that goes away in the middle is part of the tests.
                thread::spawn(move || answer(stream, &content, &faults, &cuts, &seen));
            }
        });
        Self { endpoint, ranges }
    }
}

fn answer(
    mut stream: TcpStream,
    content: &[u8],
    faults: &Faults,
    cuts: &Mutex<Option<(usize, usize)>>,
    seen: &Mutex<Vec<Option<String>>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        lines.iter().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    };
    let mut body = vec![0; header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;

    let request = lines.first()?.clone();
    let mut words = request.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    if let Some(status) = faults.status {
        return write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
    }
    if path.contains("/paths-info/") {
        let asked: serde_json::Value = serde_json::from_slice(&body).ok()?;
        let info = serde_json::json!([{
            "type": "file", "oid": "0", "size": content.len(), "path": asked["paths"][0],
        }])
        .to_string();
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{info}",
            info.len()
        )
        .ok();
    }

    let range = header("range").filter(|_| !faults.whole_only);
    let start: usize = match &range {
        Some(range) => range.trim_start_matches("bytes=").split('-').next()?.parse().ok()?,
        None => 0,
    };
    let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nETag: \"e\"\r\nX-Repo-Commit: c\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len() - start
    )
    .ok()?;
    if method == "HEAD" {
        return Some(());
    }
    seen.lock().unwrap().push(header("range"));
    let mut bytes = content[start..].to_vec();
    if faults.other_bytes {
        bytes.iter_mut().for_each(|b| *b ^= 1);
    }
    if let Some((after, times)) = cuts.lock().unwrap().as_mut()
        && *times > 0
    {
        *times -= 1;
        bytes.truncate(*after);
    }
    if let Some(after) = faults.hang_after {
        stream.write_all(&bytes[..after]).ok()?;
        stream.flush().ok()?;
        // Until the client closes its side.
        let _ = stream.read(&mut [0]);
        return Some(());
    }
    if faults.slow {
        for bytes in bytes.chunks(content.len() / 20) {
            stream.write_all(bytes).ok()?;
            thread::sleep(Duration::from_millis(50));
        }
        return Some(());
    }
    stream.write_all(&bytes).ok()
}
