//! What is done with input that someone meant ill by: the tests of this folder and the fuzz targets share it.
//! Whatever it is, it ends in an error or in an answer, never in a panic.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use candle_core::Device;
use candle_core::quantized::gguf_file::Value;
use engine::gguf::Gguf;
use engine::model::Model;
use engine::prompt::Prompt;
use engine::protocol::{CacheOptions, Command, Document, Message, Report, Role, Sampling, read_frame};
use engine::session::{Control, Session};
use engine::tokenizer::{Special, Tokenizer};
use sha2::{Digest, Sha256};

use super::seeds;

const TEXT: &str = "hello  a lo<|im_end|>\u{0}\u{2003}預算 é\r\n";

/// A file of this process alone, in memory where there is such a place.
fn scratch(name: &str) -> PathBuf {
    let shared = Path::new("/dev/shm");
    let folder = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    folder.join(format!("cistern-hostile-{}-{name}", std::process::id()))
}

fn options() -> CacheOptions {
    CacheOptions { budget: Some(64), chunk: 16, store_limit: Some(1 << 20), ..CacheOptions::default() }
}

fn sampling() -> Sampling {
    Sampling { temperature: 0.0, ..Sampling::default() }
}

fn messages(text: &str) -> Vec<Message> {
    let document = Document { name: "a\"b".into(), pages: vec![TEXT.repeat(4), String::new(), text.into()] };
    vec![
        Message { role: Role::System, text: "hello".into(), documents: Vec::new() },
        Message { role: Role::User, text: TEXT.into(), documents: vec![document] },
    ]
}

/// A model file: opened, and asked a question if it opens.
pub fn gguf(bytes: &[u8]) {
    let path = scratch("model.gguf");
    if fs::write(&path, bytes).is_err() {
        return;
    }
    if let Ok(model) = Model::open(&path, &Device::Cpu, &mut |_| {}) {
        let _ = model.info(&path);
        answer(Arc::new(model));
    }
}

fn answer(model: Arc<Model>) {
    let Ok(mut session) = Session::new("a".into(), model, &options(), Arc::new(Control::default())) else { return };
    let _ = session.send(&messages("lo"), &options(), &sampling(), 3, &mut |_| {});
}

/// The metadata of a model file, whatever its weights.
pub fn tokenizer(bytes: &[u8]) {
    let path = scratch("tokenizer.gguf");
    if fs::write(&path, bytes).is_err() {
        return;
    }
    let Ok(gguf) = Gguf::open(&path) else { return };
    let Ok(tokenizer) = Tokenizer::from_gguf(gguf.metadata()) else { return };
    for special in [Special::AsText, Special::Parse] {
        let ids = tokenizer.encode(TEXT, special);
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
        let _ = tokenizer.decode(&ids);
        let _ = tokenizer.spell(&ids);
    }
    if let Ok(prompt) = Prompt::from_gguf(gguf.metadata(), &tokenizer) {
        let _ = prompt.build(&tokenizer, &messages("lo"), &|_| None);
    }
}

/// A chat template of a model that is sound otherwise.
pub fn template(source: &str) {
    let tokenizer = &tiny().tokenizer;
    let key = "tokenizer.chat_template".to_owned();
    let metadata = [(key, Value::String(source.to_owned()))].into();
    let Ok(prompt) = Prompt::from_gguf(&metadata, tokenizer) else { return };
    let messages = messages("lo");
    if let Ok(built) = prompt.build(tokenizer, &messages, &|_| None) {
        let end = built.spans.iter().fold(0, |end, span| {
            assert!(span.start == end && span.end > end);
            span.end
        });
        assert_eq!(end as usize, built.ids.len());
    }
}

/// A snapshot whose digest is right: whoever means ill can compute it too.
pub fn snapshot(bytes: &[u8]) {
    let path = scratch("chat.snapshot");
    let signed = signed(bytes);
    if fs::write(&path, signed.as_deref().unwrap_or(bytes)).is_err() {
        return;
    }
    let Ok(mut session) = Session::restore("a".into(), tiny(), &path, Arc::new(Control::default())) else { return };
    let _ = session.cache_event();
    let _ = session.send(&messages("lo"), &options(), &sampling(), 3, &mut |_| {});
    let _ = session.send(&messages("b"), &options(), &sampling(), 3, &mut |_| {});
}

/// What stands on the pipe between window and worker.
pub fn frame(mut bytes: &[u8]) {
    let mut same = bytes;
    let _ = read_frame::<Command>(&mut bytes);
    let _ = read_frame::<Report>(&mut same);
}

/// The model that snapshots and templates belong to.
pub fn tiny() -> Arc<Model> {
    static TINY: OnceLock<Arc<Model>> = OnceLock::new();
    TINY.get_or_init(|| {
        let path = scratch("tiny.gguf");
        fs::write(&path, seeds::model(false)).expect("a file can be written");
        let model = Model::open(&path, &Device::Cpu, &mut |_| {}).expect("the seed is a model");
        Arc::new(model)
    })
    .clone()
}

/// An honest snapshot of a chat with the tiny model.
pub fn snapshot_seed() -> Vec<u8> {
    let path = scratch("seed.snapshot");
    let mut session =
        Session::new("a".into(), tiny(), &options(), Arc::new(Control::default())).expect("sound options");
    session.send(&messages("lo"), &options(), &sampling(), 3, &mut |_| {}).expect("an answer");
    session.save(&path).expect("a file can be written");
    fs::read(&path).expect("it was written")
}

/// The file with the digest that fits what it holds; `None` for what is no such file.
fn signed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (header_len, _) = safetensors::SafeTensors::read_metadata(bytes).ok()?;
    let file = safetensors::SafeTensors::deserialize(bytes).ok()?;
    let mut header: serde_json::Value = serde_json::from_slice(bytes.get(8..8 + header_len)?).ok()?;
    let metadata = header.get_mut("__metadata__")?;
    let mut hash = Sha256::new();
    hash.update(metadata.get("state")?.as_str()?.as_bytes());
    let views: std::collections::BTreeMap<_, _> = file.tensors().into_iter().collect();
    for (name, view) in &views {
        hash.update(name.as_bytes());
        hash.update(view.data());
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    metadata["digest"] = digest.into();
    metadata["cistern"] = "1".into();
    metadata["model"] = tiny().fingerprint.clone().into();
    let mut text = serde_json::to_vec(&header).ok()?;
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text);
    out.extend(bytes.get(8 + header_len..)?);
    Some(out)
}
