//! A conversation's cache as a file: a safetensors file whose metadata names version, model and digest.
//!
//! Continuing from it gives the same tokens as not having stopped. A file that is damaged, of another version or
//! of another model is refused; the chat's text is still there to be read again.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use candle_core::Device;
use half::f16;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::budget::checked_budget;
use super::layer::{HotLayer, Slots};
use super::policy::expected::Moments;
use super::queries::Queries;
use super::rows::{HostRows, Rows};
use super::store::{Mark, PAGE, Page, Store};
use super::{Cache, Phase};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::gguf::hex;
use crate::memory::{self, Site};
use crate::model::Model;
use crate::protocol::{CacheOptions, KvType};

/// Raised whenever the content changes meaning.
const VERSION: &str = "1";

const NO_SNAPSHOT: &str = "it is no snapshot, or a damaged one";

/// What a session adds to its cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Extra {
    /// Answers as they were generated, by the index of their message.
    pub replies: HashMap<usize, (String, Vec<u32>)>,
    /// What the person pinned.
    pub user_pins: Vec<Range<u32>>,
}

/// Everything that is not a long row of numbers.
#[derive(Serialize, Deserialize)]
struct State {
    options: CacheOptions,
    budget: u32,
    n_seen: u32,
    angle: u32,
    phase: Phase,
    pins: Vec<Range<u32>>,
    wishes: Vec<Range<u32>>,
    recalled: Vec<Vec<Vec<u32>>>,
    tails: Vec<u32>,
    store_limit: Option<u64>,
    extra: Extra,
}

/// Writes `context` to `path`; what the file held before is replaced once the new one is complete.
///
/// # Errors
/// [`Error::Snapshot`] where it cannot be written, [`Error::OutOfMemory`].
pub fn write(path: &Path, context: &mut Context, extra: &Extra) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| refusal(path, format!("it could not be written: {error}"));
    let held = context.cache().state();
    memory::claim(&Device::Cpu, held.hot_bytes + held.store_bytes, Site::Snapshot)?;
    let ids = context.ids().to_vec();
    let fingerprint = context.model().fingerprint.clone();
    let (state, arrays) = take_down(context.cache_mut(), &ids, extra)?;
    let state = serde_json::to_string(&state).map_err(|error| failed(&error))?;
    let views: Vec<(&String, TensorView)> = arrays
        .iter()
        .map(|(name, array)| Ok((name, TensorView::new(array.dtype, array.shape.clone(), &array.bytes)?)))
        .collect::<std::result::Result<_, safetensors::SafeTensorError>>()
        .map_err(|error| failed(&error))?;
    let digest = digest(&state, views.iter().map(|(name, view)| (name.as_str(), view)));
    let metadata = HashMap::from([
        ("cistern".to_owned(), VERSION.to_owned()),
        ("model".to_owned(), fingerprint),
        ("digest".to_owned(), digest),
        ("state".to_owned(), state),
    ]);
    let partial = path.with_extension("partial");
    let written = safetensors::serialize_to_file(views, Some(metadata), &partial)
        .map_err(|error| failed(&error))
        .and_then(|()| File::open(&partial).and_then(|file| file.sync_all()).map_err(|error| failed(&error)))
        .and_then(|()| fs::rename(&partial, path).map_err(|error| failed(&error)));
    if written.is_err() {
        // On a disk that is full, the half of it is in the way of everything else.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Reads what [`write`] wrote with the same model.
///
/// # Errors
/// [`Error::Snapshot`] for a file that is damaged, of another version or of another model; [`Error::OutOfMemory`].
pub fn read(path: &Path, model: Arc<Model>) -> Result<(Context, Extra)> {
    let take_in = || {
        let mut file = File::open(path)?;
        let mut bytes = head(&mut file, &model)?;
        // Everything is there twice while it is set up.
        memory::claim(&Device::Cpu, 2 * file.metadata()?.len(), Site::Snapshot)?;
        file.read_to_end(&mut bytes)?;
        set_up(&bytes, model.clone())
    };
    take_in().map_err(|error| match error {
        Trouble::Refused(reason) => refusal(path, reason),
        Trouble::Device(error) => error,
    })
}

/// The beginning of a file, which says whose it is: one of another model need not be read to its end.
fn head(file: &mut File, model: &Model) -> Checked<Vec<u8>> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(rename = "__metadata__")]
        metadata: HashMap<String, String>,
    }
    let mut len = [0; 8];
    file.read_exact(&mut len)?;
    let mut bytes = len.to_vec();
    file.take(u64::from_le_bytes(len)).read_to_end(&mut bytes)?;
    let Head { metadata } = serde_json::from_slice(&bytes[8..]).map_err(|_| NO_SNAPSHOT)?;
    owned_by(&metadata, model)?;
    Ok(bytes)
}

fn owned_by(metadata: &HashMap<String, String>, model: &Model) -> Checked<()> {
    let says = |name: &str, value: &str| metadata.get(name).is_some_and(|said| said == value);
    if !says("cistern", VERSION) {
        return Err("another version of Cistern wrote it".into());
    }
    if !says("model", &model.fingerprint) {
        return Err("it belongs to another model".into());
    }
    Ok(())
}

fn refusal(path: &Path, reason: String) -> Error {
    Error::Snapshot { path: path.to_owned(), reason }
}

/// Numbers of one kind.
struct Array {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

type Arrays = BTreeMap<String, Array>;

fn put_u32(arrays: &mut Arrays, name: String, shape: Vec<usize>, values: impl IntoIterator<Item = u32>) {
    let bytes = values.into_iter().flat_map(u32::to_le_bytes).collect();
    arrays.insert(name, Array { dtype: Dtype::U32, shape, bytes });
}

fn put_f32(arrays: &mut Arrays, name: String, shape: Vec<usize>, values: impl IntoIterator<Item = f32>) {
    let bytes = values.into_iter().flat_map(f32::to_le_bytes).collect();
    arrays.insert(name, Array { dtype: Dtype::F32, shape, bytes });
}

fn put_rows(arrays: &mut Arrays, name: &str, rows: &HostRows) {
    let half = |x: &[f16]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    match rows {
        HostRows::F16(x) => {
            arrays.insert(name.into(), Array { dtype: Dtype::F16, shape: vec![x.len()], bytes: half(x) });
        }
        HostRows::F32(x) => put_f32(arrays, name.into(), vec![x.len()], x.iter().copied()),
        HostRows::Q8(q, scales) => {
            arrays.insert(name.into(), Array { dtype: Dtype::U8, shape: vec![q.len()], bytes: q.clone() });
            let bytes = half(scales);
            arrays.insert(format!("{name}.scales"), Array { dtype: Dtype::F16, shape: vec![scales.len()], bytes });
        }
    }
}

fn take_down(cache: &mut Cache, ids: &[u32], extra: &Extra) -> Result<(State, Arrays)> {
    let mut arrays = Arrays::new();
    put_u32(&mut arrays, "ids".into(), vec![ids.len()], ids.iter().copied());
    for (i, layer) in cache.layers.iter_mut().enumerate() {
        layer.fetch_scores()?;
        let len = layer.len();
        put_rows(&mut arrays, &format!("hot.{i}.k"), &layer.k.to_host(len)?);
        put_rows(&mut arrays, &format!("hot.{i}.v"), &layer.v.to_host(len)?);
        let heads = layer.heads.len();
        let integers = layer.heads.iter().flat_map(|s| [&s.positions, &s.angles, &s.missed]).flatten().copied();
        put_u32(&mut arrays, format!("hot.{i}.integers"), vec![heads, 3, len], integers);
        let reals = layer.heads.iter().flat_map(|s| [&s.scores, &s.repeated]).flatten().copied();
        put_f32(&mut arrays, format!("hot.{i}.reals"), vec![heads, 2, len], reals);
    }
    for (i, tail) in cache.tails.iter().enumerate().filter(|(_, tail)| tail.n > 0) {
        put_f32(&mut arrays, format!("tail.{i}"), tail.shape(), tail.data().iter().copied());
    }
    for (i, moments) in cache.moments.iter().enumerate() {
        let numbers: Vec<f32> =
            moments.iter().flat_map(|m| std::iter::once(&m.count).chain(&m.sum).chain(&m.outer)).copied().collect();
        if numbers.len() > moments.len() {
            put_f32(&mut arrays, format!("moments.{i}"), vec![numbers.len()], numbers);
        }
    }
    if let Some(store) = &cache.store {
        put_u32(&mut arrays, "store.angles".into(), vec![store.angles.len()], store.angles.iter().copied());
        for (i, layer) in store.layers.iter().enumerate() {
            let n = layer.len() as usize;
            let held: Vec<u32> = (0..layer.pages.len() as u32).filter(|&p| layer.pages[p as usize].is_some()).collect();
            let mut k = HostRows::with_capacity(store.kv(), 0, 1);
            let mut v = k.clone();
            for page in layer.pages.iter().flatten() {
                page.k.iter().for_each(|rows| k.extend(rows, 0, rows.numbers()));
                page.v.iter().for_each(|rows| v.extend(rows, 0, rows.numbers()));
            }
            put_u32(&mut arrays, format!("store.{i}.pages"), vec![held.len()], held);
            put_rows(&mut arrays, &format!("store.{i}.k"), &k);
            put_rows(&mut arrays, &format!("store.{i}.v"), &v);
            let marks = || layer.marks.iter().flatten();
            let shape = vec![layer.marks.len(), n, 2];
            let integers = marks().flat_map(|mark| [mark.missed, mark.left]);
            put_u32(&mut arrays, format!("store.{i}.integers"), shape.clone(), integers);
            put_f32(
                &mut arrays,
                format!("store.{i}.reals"),
                shape,
                marks().flat_map(|mark| [mark.score, mark.repeated]),
            );
        }
    }
    let state = State {
        options: cache.options.clone(),
        budget: cache.budget,
        n_seen: cache.n_seen,
        angle: cache.angle,
        phase: cache.phase,
        pins: cache.pins.clone(),
        wishes: cache.wishes.clone(),
        recalled: cache.recalled.clone(),
        tails: cache.tails.iter().map(|tail| tail.first).collect(),
        store_limit: cache.store.as_ref().map(Store::limit),
        extra: extra.clone(),
    };
    Ok((state, arrays))
}

fn digest<'a, 'b: 'a>(state: &str, views: impl Iterator<Item = (&'a str, &'a TensorView<'b>)>) -> String {
    let mut hash = Sha256::new();
    hash.update(state.as_bytes());
    for (name, view) in views {
        hash.update(name.as_bytes());
        hash.update(view.data());
    }
    hex(hash)
}

/// Why a file is not taken.
enum Trouble {
    Refused(String),
    Device(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

impl From<&str> for Trouble {
    fn from(reason: &str) -> Self {
        Self::Refused(reason.into())
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Refused(format!("it could not be read: {error}"))
    }
}

type Checked<T> = std::result::Result<T, Trouble>;

/// The arrays of a file, by name.
struct Source<'a> {
    views: BTreeMap<String, TensorView<'a>>,
}

impl Source<'_> {
    fn bytes(&self, name: &str, dtype: Dtype) -> Checked<&[u8]> {
        match self.views.get(name) {
            Some(view) if view.dtype() == dtype => Ok(view.data()),
            _ => Err(Trouble::Refused(format!("{name} is missing"))),
        }
    }

    fn u32(&self, name: &str, len: usize) -> Checked<Vec<u32>> {
        let values: Vec<u32> =
            self.bytes(name, Dtype::U32)?.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        sized(name, values, len)
    }

    fn f32(&self, name: &str, len: usize) -> Checked<Vec<f32>> {
        let values: Vec<f32> =
            self.bytes(name, Dtype::F32)?.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        sized(name, values, len)
    }

    fn f16(&self, name: &str, len: usize) -> Checked<Vec<f16>> {
        let values: Vec<f16> =
            self.bytes(name, Dtype::F16)?.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b)).collect();
        sized(name, values, len)
    }

    fn rows(&self, name: &str, kv: KvType, numbers: usize) -> Checked<HostRows> {
        Ok(match kv {
            KvType::F16 => HostRows::F16(self.f16(name, numbers)?),
            KvType::F32 => HostRows::F32(self.f32(name, numbers)?),
            KvType::Q8_0 => {
                let q = sized(name, self.bytes(name, Dtype::U8)?.to_vec(), numbers)?;
                HostRows::Q8(q, self.f16(&format!("{name}.scales"), numbers / 32)?)
            }
        })
    }
}

fn sized<T>(name: &str, values: Vec<T>, len: usize) -> Checked<Vec<T>> {
    match values.len() == len {
        true => Ok(values),
        false => Err(Trouble::Refused(format!("{name} has {} numbers where {len} are right", values.len()))),
    }
}

fn set_up(bytes: &[u8], model: Arc<Model>) -> Checked<(Context, Extra)> {
    let no_snapshot = |_| Trouble::from(NO_SNAPSHOT);
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(no_snapshot)?;
    let file = SafeTensors::deserialize(bytes).map_err(no_snapshot)?;
    let metadata = metadata.metadata().clone().unwrap_or_default();
    let text = |name: &str| metadata.get(name).map(String::as_str).unwrap_or_default();
    owned_by(&metadata, &model)?;
    let source = Source { views: file.tensors().into_iter().collect() };
    if digest(text("state"), source.views.iter().map(|(name, view)| (name.as_str(), view))) != text("digest") {
        return Err("it is damaged".into());
    }
    let state: State = serde_json::from_str(text("state")).map_err(|_| Trouble::from("its state cannot be read"))?;
    let n = state.n_seen as usize;
    let ids = source.u32("ids", n)?;
    if ids.iter().any(|&id| id as usize >= model.config.vocab) || state.angle > state.n_seen {
        return Err("it names tokens that the model does not have".into());
    }
    sound(&state, &model)?;
    let options = CacheOptions { store_limit: Some(state.store_limit.unwrap_or(0)), ..state.options.clone() };
    let mut cache = Cache::new(&model.config, model.rope(), &options, state.budget, 0, model.device())?;
    cache.options = state.options;
    (cache.budget, cache.n_seen, cache.angle) = (state.budget, state.n_seen, state.angle);
    cache.phase = state.phase;
    cache.set_pins(state.pins, state.wishes)?;
    let shaped = state.recalled.len() == cache.layers.len()
        && state.tails.len() == cache.layers.len()
        && state.recalled.iter().all(|heads| heads.len() == cache.shape.kv_heads);
    if !shaped {
        return Err("it is of a model with other layers".into());
    }
    cache.recalled = state.recalled;
    for i in 0..cache.layers.len() {
        cache.layers[i] = hot_layer(&source, i, &cache, model.device())?;
        for slots in &cache.layers[i].heads {
            cache.ledger.restore(slots.positions.iter().copied());
        }
        if let Some(view) = source.views.get(&format!("tail.{i}")) {
            let (heads, d) = (cache.shape.heads, cache.shape.head_dim);
            let tokens = view.shape().get(1).copied().unwrap_or(0);
            if tokens > view.data().len() {
                return Err("it remembers more queries than it holds".into());
            }
            let data = source.f32(&format!("tail.{i}"), heads * tokens * d)?;
            cache.tails[i] = Queries::from_parts(state.tails[i], tokens, d, data);
        }
        if source.views.contains_key(&format!("moments.{i}")) {
            let d = cache.shape.head_dim;
            let one = 1 + d + d * d;
            let numbers = source.f32(&format!("moments.{i}"), cache.shape.heads * one)?;
            cache.moments[i] = numbers
                .chunks_exact(one)
                .map(|m| Moments { count: m[0], sum: m[1..=d].to_vec(), outer: m[1 + d..].to_vec() })
                .collect();
        }
    }
    cache.ledger.cover(state.n_seen);
    if let Some(store) = &mut cache.store {
        fill_store(&source, store, n, cache.shape.kv_heads, cache.shape.head_dim)?;
    }
    Ok((Context::from_parts(model, cache, ids), state.extra))
}

/// What the numbers that everything else is measured by must be for the rest to make sense of them.
fn sound(state: &State, model: &Model) -> Checked<()> {
    let n = state.n_seen;
    let mut ranges = state.pins.iter().chain(&state.wishes).chain(&state.extra.user_pins);
    if !ranges.all(|range| range.start <= range.end && range.end <= n) {
        return Err("it pins what is not there".into());
    }
    let ascend = |positions: &Vec<u32>| {
        positions.windows(2).all(|pair| pair[0] < pair[1]) && positions.last().is_none_or(|&p| p < n)
    };
    if !state.recalled.iter().flatten().all(ascend) {
        return Err("it recalled what is not there".into());
    }
    let vocab = model.config.vocab;
    if state.extra.replies.values().any(|(_, ids)| ids.iter().any(|&id| id as usize >= vocab)) {
        return Err("it names tokens that the model does not have".into());
    }
    checked_budget(state.budget)?;
    Ok(())
}

fn hot_layer(source: &Source, i: usize, cache: &Cache, device: &Device) -> Checked<HotLayer> {
    let (heads, d, kv) = (cache.shape.kv_heads, cache.shape.head_dim, cache.options.kv);
    let name = format!("hot.{i}.integers");
    let len = source.views.get(&name).and_then(|view| view.shape().last().copied()).unwrap_or(0);
    if len > cache.n_seen as usize {
        return Err("it holds more entries than tokens".into());
    }
    let integers = source.u32(&name, heads * 3 * len)?;
    let reals = source.f32(&format!("hot.{i}.reals"), heads * 2 * len)?;
    let slots: Vec<Slots> = (0..heads)
        .map(|head| {
            let integer = |part: usize| integers[(head * 3 + part) * len..][..len].to_vec();
            let real = |part: usize| reals[(head * 2 + part) * len..][..len].to_vec();
            Slots { positions: integer(0), angles: integer(1), missed: integer(2), scores: real(0), repeated: real(1) }
        })
        .collect();
    let ascend = |positions: &[u32]| {
        positions.windows(2).all(|pair| pair[0] < pair[1]) && positions.last().is_none_or(|&p| p < cache.n_seen)
    };
    if !slots.iter().all(|slots| ascend(&slots.positions)) {
        return Err("its positions are out of order".into());
    }
    let missed =
        |slots: &Slots| slots.positions.iter().zip(&slots.missed).all(|(&p, &missed)| missed <= cache.n_seen - p);
    if !slots.iter().all(missed) {
        return Err("its counts make no sense".into());
    }
    let rows = |part: &str| -> Checked<Rows> {
        let rows = source.rows(&format!("hot.{i}.{part}"), kv, heads * len * d)?;
        Ok(Rows::from_host(rows, heads, d, device)?)
    };
    Ok(HotLayer::from_parts(rows("k")?, rows("v")?, d, slots))
}

fn fill_store(source: &Source, store: &mut Store, n: usize, heads: usize, d: usize) -> Checked<()> {
    store.angles = source.u32("store.angles", n)?;
    let kv = store.kv();
    for (i, layer) in store.layers.iter_mut().enumerate() {
        let integers = source.u32(&format!("store.{i}.integers"), heads * n * 2)?;
        let reals = source.f32(&format!("store.{i}.reals"), heads * n * 2)?;
        let mark = |at: usize| Mark {
            missed: integers[2 * at],
            left: integers[2 * at + 1],
            score: reals[2 * at],
            repeated: reals[2 * at + 1],
        };
        // An entry cannot have been away for longer than it was there.
        let makes_sense = |at: usize| {
            let Mark { missed, left, .. } = mark(at);
            left as usize <= n && missed <= left.saturating_sub((at % n) as u32)
        };
        if !(0..heads * n).all(makes_sense) {
            return Err("its counts make no sense".into());
        }
        layer.marks = (0..heads).map(|head| (head * n..(head + 1) * n).map(mark).collect()).collect();
        let name = format!("store.{i}.pages");
        let count = source.views.get(&name).and_then(|view| view.shape().first().copied()).unwrap_or(0);
        let held = source.u32(&name, count)?;
        let pages = n.div_ceil(PAGE);
        if held.windows(2).any(|pair| pair[0] >= pair[1]) || held.last().is_some_and(|&p| p as usize >= pages) {
            return Err("its pages are out of order".into());
        }
        let rows_of = |p: u32| PAGE.min(n - p as usize * PAGE);
        let numbers: usize = held.iter().map(|&p| rows_of(p) * heads * d).sum();
        let k = source.rows(&format!("store.{i}.k"), kv, numbers)?;
        let v = source.rows(&format!("store.{i}.v"), kv, numbers)?;
        layer.pages = vec![None; pages];
        layer.dropped = pages - held.len();
        let mut at = 0;
        for p in held {
            let numbers = rows_of(p) * d;
            let part = |all: &HostRows| -> Vec<HostRows> {
                (0..heads)
                    .map(|head| {
                        let mut rows = HostRows::with_capacity(kv, PAGE, d);
                        rows.extend(all, at + head * numbers, numbers);
                        rows
                    })
                    .collect()
            };
            layer.pages[p as usize] = Some(Arc::new(Page { k: part(&k), v: part(&v) }));
            at += heads * numbers;
        }
    }
    Ok(())
}
