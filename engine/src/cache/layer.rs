//! One layer's part of the hot cache.

use candle_core::{Device, Tensor};

use super::rows::Rows;
use crate::attention::cpu::Entries;
use crate::attention::{cpu, ops};
use crate::error::Result;
use crate::math::floats;
use crate::memory::{self, Site};
use crate::model::{Config, Rope};
use crate::protocol::KvType;

/// What is known of the entries of one KV head, by slot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slots {
    /// Ascending.
    pub positions: Vec<u32>,
    /// The positions that the keys are rotated for: their own, until the chat passes the trained context (see
    /// [`HotLayer::rotate_to`]).
    pub angles: Vec<u32>,
    /// Accumulated column sums.
    pub scores: Vec<f32>,
    /// Tokens that passed while the entry was only in the store.
    pub missed: Vec<u32>,
    /// The largest attention while the text was repeated (see [`super::policy::KvZip`]); not a number where it
    /// never was.
    pub repeated: Vec<f32>,
}

impl Slots {
    /// How many.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Slots of positions before `n`.
    pub fn before(&self, n: u32) -> usize {
        self.positions.partition_point(|&p| p < n)
    }

    /// Adds the fresh entries of `n` tokens at positions from `first`, rotated for `angle` and on.
    fn append(&mut self, first: u32, angle: u32, n: u32) {
        self.positions.extend(first..first + n);
        self.angles.extend(angle..angle + n);
        let len = self.positions.len();
        self.scores.resize(len, 0.0);
        self.missed.resize(len, 0);
        self.repeated.resize(len, f32::NAN);
    }

    /// Counts no tokens from position `n` on, all entries being before it: who missed more than there were would
    /// seem to have got its attention from none.
    pub fn go_back(&mut self, n: u32) {
        for (missed, position) in self.missed.iter_mut().zip(&self.positions) {
            *missed = (*missed).min(n - 1 - position);
        }
    }

    /// Adds slot `i` of `from`.
    pub fn push(&mut self, from: &Self, i: usize) {
        self.positions.push(from.positions[i]);
        self.angles.push(from.angles[i]);
        self.scores.push(from.scores[i]);
        self.missed.push(from.missed[i]);
        self.repeated.push(from.repeated[i]);
    }

    /// Leaves only `slots`, which ascend.
    fn retain(&mut self, slots: &[u32]) {
        fn pick<T: Copy>(values: &mut Vec<T>, slots: &[u32]) {
            for (to, &from) in slots.iter().enumerate() {
                values[to] = values[from as usize];
            }
            values.truncate(slots.len());
        }
        pick(&mut self.positions, slots);
        pick(&mut self.angles, slots);
        pick(&mut self.scores, slots);
        pick(&mut self.missed, slots);
        pick(&mut self.repeated, slots);
    }
}

/// K and V `[kv_heads, capacity, head_dim]`; the first `len` slots are in use, each KV head's in ascending
/// order of position. Keys are stored after RoPE at their own position.
pub struct HotLayer {
    /// Keys.
    pub k: Rows,
    /// Values.
    pub v: Rows,
    head_dim: usize,
    /// Of each KV head; all have as many.
    pub heads: Vec<Slots>,
    /// Column sums that still lie on the device, `[kv_heads, some len]`: fetched before an eviction only.
    pending: Option<Tensor>,
}

impl HotLayer {
    /// An empty layer, which holds no memory yet.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(config: &Config, kv: KvType, device: &Device) -> Result<Self> {
        let empty = || Rows::empty(kv, config.kv_heads, config.head_dim, device);
        let heads = vec![Slots::default(); config.kv_heads];
        Ok(Self { k: empty()?, v: empty()?, head_dim: config.head_dim, heads, pending: None })
    }

    /// A layer with these entries.
    pub fn from_parts(k: Rows, v: Rows, head_dim: usize, heads: Vec<Slots>) -> Self {
        Self { k, v, head_dim, heads, pending: None }
    }

    /// A copy that shares no memory.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn fork(&mut self) -> Result<Self> {
        self.fetch_scores()?;
        Ok(Self::from_parts(self.k.fork()?, self.v.fork()?, self.head_dim, self.heads.clone()))
    }

    /// Entries of each KV head.
    pub fn len(&self) -> usize {
        self.heads[0].len()
    }

    /// Slots of each KV head that hold memory.
    pub fn capacity(&self) -> usize {
        self.k.capacity().max(self.v.capacity())
    }

    /// Whether there is memory for `len` entries of each KV head. Keys and values have as much but where it ran out
    /// between the two.
    pub fn has_room(&self, len: usize) -> bool {
        self.k.capacity() == self.v.capacity() && len <= self.capacity()
    }

    /// Bytes of both buffers.
    pub fn bytes(&self) -> u64 {
        self.k.bytes() + self.v.bytes()
    }

    /// Makes room for just `len` entries of each KV head, where there is less.
    ///
    /// # Errors
    /// When the device has no memory for them.
    pub fn make_room(&mut self, len: usize) -> Result<()> {
        match self.has_room(len) {
            true => Ok(()),
            false => self.set_capacity(len),
        }
    }

    /// Makes the buffers hold exactly `capacity` slots, at least as many as are in use.
    ///
    /// # Errors
    /// When the device has no memory for them.
    pub fn set_capacity(&mut self, capacity: usize) -> Result<()> {
        let (len, capacity) = (self.len(), capacity.max(self.len()));
        // One buffer after the other, so that only one is there twice.
        for rows in [&mut self.k, &mut self.v] {
            if rows.capacity() != capacity {
                rows.set_capacity(capacity, len)?;
            }
        }
        Ok(())
    }

    /// Appends the entries of `n` tokens at positions from `first`, rotated for `angle` and on; there must be
    /// room for them.
    ///
    /// # Errors
    /// When the device fails.
    pub fn append(&mut self, k: &Rows, v: &Rows, first: u32, angle: u32) -> Result<()> {
        let (len, n) = (self.len(), k.capacity() as u32);
        self.k.set(k, len)?;
        self.v.set(v, len)?;
        self.heads.iter_mut().for_each(|slots| slots.append(first, angle, n));
        Ok(())
    }

    /// Asks for what [`HotLayer::rotate_to`] takes for `len` entries of each KV head.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::error::Error::OutOfMemory).
    pub fn claim_rotation(&self, len: usize) -> Result<()> {
        // As they are widened, turned, and held again.
        let bytes = 3 * len * self.heads.len() * self.head_dim * size_of::<f32>();
        memory::claim(self.k.device(), bytes as u64, Site::Turn)
    }

    /// Rotates every key on or back, so that the entries of each KV head stand at neighbouring angles and the
    /// last one just before `end`. Rotations compose, so nothing is computed anew.
    ///
    /// # Errors
    /// When the device fails.
    pub fn rotate_to(&mut self, end: u32, rope: &Rope) -> Result<()> {
        let first = end - self.len() as u32;
        let turns: Vec<i64> = self
            .heads
            .iter()
            .flat_map(|slots| (first..end).zip(&slots.angles))
            .map(|(to, &from)| i64::from(to) - i64::from(from))
            .collect();
        let turned = rope.turn(&self.k.decode(self.len())?, &turns)?;
        self.k.set(&Rows::encode(&turned, self.k.kv())?, 0)?;
        self.heads.iter_mut().for_each(|slots| slots.angles = (first..end).collect());
        Ok(())
    }

    /// Attends with `q` `[heads, n, head_dim]`, standing at `first`, …, to all entries up to each query's own
    /// position, and adds the column sums to the scores. Returns `[n, heads * head_dim]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn attend(&mut self, q: &Tensor, first: u32) -> Result<Tensor> {
        let (heads, n, d) = q.dims3()?;
        let len = self.len();
        let positions: Vec<&[u32]> = self.heads.iter().map(|slots| slots.positions.as_slice()).collect();
        if !q.device().is_cpu() {
            let (out, sums) = ops::attend(q, &self.k.decode(len)?, &self.v.decode(len)?, first, &positions)?;
            self.pending = Some(match self.pending.take() {
                Some(pending) => (pending.pad_with_zeros(1, 0, len - pending.dim(1)?)? + sums)?,
                None => sums,
            });
            return Ok(out);
        }
        let mut out = vec![0f32; heads * n * d];
        let mut sums = vec![vec![0f32; len]; positions.len()];
        self.k.slices(|k| {
            self.v.slices(|v| {
                let entries =
                    Entries { k, v, capacity: self.k.capacity(), len, head_dim: self.head_dim, positions: &positions };
                floats(q, |q| cpu::attend(q, n, first, &entries, &mut out, &mut sums))
            })
        })???;
        for (slots, sums) in self.heads.iter_mut().zip(sums) {
            slots.scores.iter_mut().zip(sums).for_each(|(score, sum)| *score += sum);
        }
        Ok(Tensor::from_vec(out, (n, heads * d), q.device())?)
    }

    /// Brings column sums that lie on the device into the slots' scores.
    ///
    /// # Errors
    /// When the device fails.
    pub fn fetch_scores(&mut self) -> Result<()> {
        if let Some(pending) = self.pending.take() {
            for (slots, sums) in self.heads.iter_mut().zip(pending.to_vec2::<f32>()?) {
                slots.scores.iter_mut().zip(sums).for_each(|(score, sum)| *score += sum);
            }
        }
        Ok(())
    }

    /// Keeps only `slots[kv_head]`, ascending and as many for each KV head; the rest is gone.
    ///
    /// # Errors
    /// When the device fails.
    pub fn retain(&mut self, slots: &[Vec<u32>]) -> Result<()> {
        self.fetch_scores()?;
        Rows::retain([&mut self.k, &mut self.v], slots)?;
        self.heads.iter_mut().zip(slots).for_each(|(head, slots)| head.retain(slots));
        Ok(())
    }

    /// Takes `picks[kv_head]`, as many for each, among its slots and the rows of `more` that count on from
    /// there; `heads` is what is known of them.
    ///
    /// # Errors
    /// When the device has no memory for them.
    pub fn assemble(&mut self, more: (&Rows, &Rows), picks: &[Vec<u32>], heads: Vec<Slots>) -> Result<()> {
        let (len, capacity) = (self.len(), self.capacity().max(picks[0].len()));
        Rows::assemble([&mut self.k, &mut self.v], len, [more.0, more.1], picks, capacity)?;
        self.heads = heads;
        Ok(())
    }
}
