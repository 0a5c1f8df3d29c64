//! The host-memory copy of every entry, from which the hot cache can be refilled.
//!
//! Entries lie in pages of [`PAGE`] neighbouring positions, per layer. Each layer may take an equal part of the
//! store's limit; over it, whole pages go, those with the least mean attention first and of equals the older.
//! The newest page and pages with pinned positions stay.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};

use super::layer::Slots;
use super::rows::{HostRows, Rows, row_bytes};
use crate::attention::probe::Keys;
use crate::error::Result;
use crate::memory::{self, Site};
use crate::protocol::KvType;

/// Positions of a page.
pub const PAGE: usize = 32;

/// Over the limit, so much of it is freed at once, that not every token drops a page.
const FREED_SHARE: u64 = 32;

/// The entries of neighbouring positions in one layer, by KV head.
#[derive(Debug, Clone)]
pub struct Page {
    /// Keys, rotated for [`Store::angles`].
    pub k: Vec<HostRows>,
    /// Values.
    pub v: Vec<HostRows>,
}

/// What was known of an entry when it last left the hot cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark {
    /// Accumulated column sums.
    pub score: f32,
    /// Tokens that had passed while it was not hot.
    pub missed: u32,
    /// Tokens that had been seen when it left.
    pub left: u32,
    /// See [`Slots::repeated`].
    pub repeated: f32,
}

impl Mark {
    const FRESH: Self = Self { score: 0.0, missed: 0, left: 0, repeated: f32::NAN };

    /// Mean attention while it was hot.
    fn mean(&self, position: u32) -> f32 {
        self.score / (self.left.saturating_sub(position + self.missed)).max(1) as f32
    }
}

/// One layer's entries.
#[derive(Debug, Clone, Default)]
pub struct StoreLayer {
    /// `None` where the page was dropped.
    pub pages: Vec<Option<Arc<Page>>>,
    /// Of each KV head, by position.
    pub marks: Vec<Vec<Mark>>,
    /// Pages that were dropped.
    pub dropped: usize,
}

impl StoreLayer {
    /// Positions that it has seen.
    pub fn len(&self) -> u32 {
        self.marks[0].len() as u32
    }

    /// Whether it still holds `position`.
    pub fn holds(&self, position: u32) -> bool {
        self.pages.get(position as usize / PAGE).is_some_and(Option::is_some)
    }

    /// Every position that it holds, ascending.
    pub fn positions(&self) -> Vec<u32> {
        (0..self.len()).filter(|&position| self.holds(position)).collect()
    }
}

/// The store of one conversation.
#[derive(Debug, Clone)]
pub struct Store {
    kv: KvType,
    head_dim: usize,
    /// By layer.
    pub layers: Vec<StoreLayer>,
    /// The position that each position's key is rotated for.
    pub angles: Vec<u32>,
    limit: u64,
}

impl Store {
    /// An empty store that may take `limit` bytes.
    pub fn new(kv: KvType, layers: usize, kv_heads: usize, head_dim: usize, limit: u64) -> Self {
        let layer = StoreLayer { pages: Vec::new(), marks: vec![Vec::new(); kv_heads], dropped: 0 };
        Self { kv, head_dim, layers: vec![layer; layers], angles: Vec::new(), limit }
    }

    /// How entries are held: f16, or q8_0 where the hot cache is.
    pub fn kind(kv: KvType) -> KvType {
        if kv == KvType::Q8_0 { kv } else { KvType::F16 }
    }

    /// How its entries are held.
    pub fn kv(&self) -> KvType {
        self.kv
    }

    /// Bytes that it may take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Changes the limit; it holds from the next [`Store::enforce`] on.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Bytes of entries and marks.
    pub fn bytes(&self) -> u64 {
        (0..self.layers.len()).map(|i| self.layer_bytes(i)).sum()
    }

    /// Bytes of the entries of `n` tokens in one layer.
    pub fn bytes_of(&self, n: usize) -> u64 {
        (n * (self.row_bytes() + self.layers[0].marks.len() * size_of::<Mark>())) as u64
    }

    /// Bytes of one token's keys and values in one layer.
    fn row_bytes(&self) -> usize {
        2 * self.layers[0].marks.len() * row_bytes(self.kv, self.head_dim)
    }

    fn layer_bytes(&self, i: usize) -> u64 {
        let layer = &self.layers[i];
        let heads = layer.marks.len();
        // Only whole pages are dropped.
        let rows = (layer.len() as usize).saturating_sub(layer.dropped * PAGE);
        (rows * self.row_bytes() + heads * layer.len() as usize * size_of::<Mark>()) as u64
    }

    /// Adds the entries of the tokens that follow on what the layer holds, rotated for `angle` and on.
    pub fn append(&mut self, i: usize, k: &HostRows, v: &HostRows, angle: u32) {
        let (kv, d) = (self.kv, self.head_dim);
        let layer = &mut self.layers[i];
        let heads = layer.marks.len();
        let n = k.numbers() / (heads * d);
        let first = layer.marks[0].len();
        for t in 0..n {
            if self.angles.len() <= first + t {
                self.angles.push(angle + t as u32);
            }
        }
        let mut done = 0;
        while done < n {
            let at = first + done;
            let some = (PAGE - at % PAGE).min(n - done);
            if at.is_multiple_of(PAGE) {
                let rows = || vec![HostRows::with_capacity(kv, PAGE, d); heads];
                layer.pages.push(Some(Arc::new(Page { k: rows(), v: rows() })));
            }
            if let Some(Some(page)) = layer.pages.last_mut() {
                // A fork may share the page.
                let page = Arc::make_mut(page);
                for (head, rows) in page.k.iter_mut().enumerate() {
                    rows.extend(k, (head * n + done) * d, some * d);
                }
                for (head, rows) in page.v.iter_mut().enumerate() {
                    rows.extend(v, (head * n + done) * d, some * d);
                }
            }
            done += some;
        }
        layer.marks.iter_mut().for_each(|marks| marks.resize(first + n, Mark::FRESH));
    }

    /// Forgets positions from `n` on.
    pub fn truncate(&mut self, n: u32) {
        let n = n as usize;
        for layer in &mut self.layers {
            for marks in &mut layer.marks {
                marks.truncate(n);
                for (position, mark) in (0..).zip(marks) {
                    mark.left = mark.left.min(n as u32);
                    mark.missed = mark.missed.min(mark.left.saturating_sub(position + 1));
                }
            }
            layer.pages.truncate(n.div_ceil(PAGE));
            layer.dropped = layer.pages.iter().filter(|page| page.is_none()).count();
            // A dropped page stays dropped, also where the conversation goes on inside it.
            if let (false, Some(Some(page))) = (n.is_multiple_of(PAGE), layer.pages.last_mut()) {
                let page = Arc::make_mut(page);
                let numbers = n % PAGE * self.head_dim;
                page.k.iter_mut().chain(&mut page.v).for_each(|rows| rows.truncate(numbers));
            }
        }
        self.angles.truncate(n);
    }

    /// Remembers what is known of hot entries, when `n_seen` tokens have been seen.
    pub fn note(&mut self, i: usize, head: usize, slots: &Slots, which: impl Iterator<Item = usize>, n_seen: u32) {
        let marks = &mut self.layers[i].marks[head];
        for slot in which {
            if let Some(mark) = marks.get_mut(slots.positions[slot] as usize) {
                *mark = Mark {
                    score: slots.scores[slot],
                    missed: slots.missed[slot],
                    left: n_seen,
                    repeated: slots.repeated[slot],
                };
            }
        }
    }

    /// What is known of `positions`, as entries that become hot when `n_seen` tokens have been seen.
    pub fn recall(&self, i: usize, head: usize, positions: &[u32], n_seen: u32) -> Slots {
        let marks = &self.layers[i].marks[head];
        let mark = |position: u32| marks[position as usize];
        Slots {
            positions: positions.to_vec(),
            angles: positions.iter().map(|&p| self.angles[p as usize]).collect(),
            scores: positions.iter().map(|&p| mark(p).score).collect(),
            missed: positions
                .iter()
                .map(|&p| mark(p).missed + n_seen.saturating_sub(mark(p).left.max(p + 1)))
                .collect(),
            repeated: positions.iter().map(|&p| mark(p).repeated).collect(),
        }
    }

    /// Keys and values of `positions[kv_head]` on a device, `[kv_heads, most positions, head_dim]`; heads with
    /// fewer end in zeros.
    ///
    /// # Errors
    /// When the device has no memory for them.
    pub fn rows(&self, i: usize, positions: &[Vec<u32>], kv: KvType, device: &Device) -> Result<(Rows, Rows)> {
        let d = self.head_dim;
        let most = positions.iter().map(Vec::len).max().unwrap_or(0);
        // Twice: as the store holds them, and as the device does.
        memory::claim(&Device::Cpu, 4 * self.bytes_of(most), Site::Recall)?;
        let zeros = Rows::encode(&Tensor::zeros((1, 1, d), DType::F32, &Device::Cpu)?, self.kv)?.to_host(1)?;
        let gather = |part: fn(&Page) -> &Vec<HostRows>| -> Result<Rows> {
            let mut rows = HostRows::with_capacity(self.kv, most * positions.len(), d);
            for (head, positions) in positions.iter().enumerate() {
                for &position in positions {
                    match &self.layers[i].pages[position as usize / PAGE] {
                        Some(page) => rows.extend(&part(page)[head], position as usize % PAGE * d, d),
                        None => rows.extend(&zeros, 0, d),
                    }
                }
                (positions.len()..most).for_each(|_| rows.extend(&zeros, 0, d));
            }
            let rows = Rows::from_host(rows, positions.len(), d, device)?;
            if kv == self.kv { Ok(rows) } else { Rows::encode(&rows.decode(most)?, kv) }
        };
        Ok((gather(|page| &page.k)?, gather(|page| &page.v)?))
    }

    /// The keys of one KV head at `positions`, ascending, to be attended to.
    pub fn keys<'a>(&'a self, i: usize, head: usize, positions: &'a [u32]) -> impl Keys + 'a {
        StoreKeys { layer: &self.layers[i], head, head_dim: self.head_dim, positions }
    }

    /// Whether a layer is over its part of the limit.
    pub fn over(&self, i: usize) -> bool {
        self.layer_bytes(i) > self.limit / self.layers.len() as u64
    }

    /// Brings one layer inside its part of the limit. The marks must be up to date.
    pub fn enforce(&mut self, i: usize, pinned: &dyn Fn(u32) -> bool) {
        let limit = self.limit / self.layers.len() as u64;
        let page_bytes = (PAGE * self.row_bytes()) as u64;
        let layer = &self.layers[i];
        let mut worth: Vec<(f32, usize)> = (0..layer.pages.len().saturating_sub(1))
            .filter(|&p| layer.pages[p].is_some())
            .filter(|&p| !(p * PAGE..(p + 1) * PAGE).any(|position| pinned(position as u32)))
            .map(|p| {
                let of_head = |marks: &Vec<Mark>| -> f32 {
                    marks[p * PAGE..(p + 1) * PAGE].iter().enumerate().map(|(t, m)| m.mean((p * PAGE + t) as u32)).sum()
                };
                (layer.marks.iter().map(of_head).sum(), p)
            })
            .collect();
        worth.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let goal = limit - limit / FREED_SHARE;
        let over = self.layer_bytes(i).saturating_sub(goal);
        for &(_, p) in worth.iter().take(over.div_ceil(page_bytes) as usize) {
            self.layers[i].pages[p] = None;
            self.layers[i].dropped += 1;
        }
    }

    /// Positions that no layer holds any more: `[start, end)`, ascending.
    pub fn dropped(&self) -> Vec<(u32, u32)> {
        let pages = self.layers.iter().map(|layer| layer.pages.len()).max().unwrap_or(0);
        let len = self.angles.len() as u32;
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for p in 0..pages {
            if self.layers.iter().any(|layer| layer.pages.get(p).is_none_or(Option::is_some)) {
                continue;
            }
            let (start, end) = ((p * PAGE) as u32, (((p + 1) * PAGE) as u32).min(len));
            match ranges.last_mut() {
                Some((_, last)) if *last == start => *last = end,
                _ => ranges.push((start, end)),
            }
        }
        ranges
    }
}

/// Keys of a head, read where they lie.
struct StoreKeys<'a> {
    layer: &'a StoreLayer,
    head: usize,
    head_dim: usize,
    positions: &'a [u32],
}

impl Keys for StoreKeys<'_> {
    fn count(&self) -> usize {
        self.positions.len()
    }

    fn widen(&self, start: usize, out: &mut [f32]) {
        let d = self.head_dim;
        let mut at = 0;
        let positions = &self.positions[start..];
        while at * d < out.len() {
            // Neighbours of one page lie one after another.
            let first = positions[at] as usize;
            let most = (PAGE - first % PAGE).min(out.len() / d - at);
            let run = (1..most).take_while(|&i| positions[at + i] as usize == first + i).count() + 1;
            if let Some(page) = &self.layer.pages[first / PAGE] {
                page.k[self.head].slices().widen(first % PAGE * d, &mut out[at * d..(at + run) * d]);
            }
            at += run;
        }
    }
}
