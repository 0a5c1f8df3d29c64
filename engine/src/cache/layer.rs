//! One layer's part of the hot cache.

use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Storage, Tensor};
use half::f16;

use crate::attention::cpu::{Entries, Rows};
use crate::attention::{cpu, floats, ops};
use crate::error::Result;
use crate::model::{Config, Rope};
use crate::protocol::KvType;

/// K and V `[kv_heads, capacity, head_dim]`; the first `len` slots are in use, each KV head's in ascending
/// order of position. Keys are stored after RoPE at their own position.
pub struct HotLayer {
    k: Tensor,
    v: Tensor,
    capacity: usize,
    head_dim: usize,
    /// `[kv_heads][len]`.
    pub positions: Vec<Vec<u32>>,
    /// Accumulated column sums, `[kv_heads][len]`.
    pub scores: Vec<Vec<f32>>,
    /// The positions that the keys are rotated for, `[kv_heads][len]`: their own, until the chat passes the
    /// trained context (see [`HotLayer::rotate_to`]).
    pub angles: Vec<Vec<u32>>,
    /// Column sums that still lie on the device, `[kv_heads, some len]`: fetched before an eviction only.
    pending: Option<Tensor>,
}

impl HotLayer {
    /// An empty layer, which holds no memory yet.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(config: &Config, kv: KvType, device: &Device) -> Result<Self> {
        let dtype = match kv {
            KvType::F16 => DType::F16,
            KvType::F32 => DType::F32,
        };
        let empty = Tensor::zeros((config.kv_heads, 0, config.head_dim), dtype, device)?;
        Ok(Self {
            k: empty.clone(),
            v: empty,
            capacity: 0,
            head_dim: config.head_dim,
            positions: vec![Vec::new(); config.kv_heads],
            scores: vec![Vec::new(); config.kv_heads],
            angles: vec![Vec::new(); config.kv_heads],
            pending: None,
        })
    }

    /// Entries of each KV head.
    pub fn len(&self) -> usize {
        self.positions[0].len()
    }

    /// Slots of each KV head that hold memory.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of both buffers.
    pub fn bytes(&self) -> u64 {
        let bytes = |x: &Tensor| (x.elem_count() * x.dtype().size_in_bytes()) as u64;
        bytes(&self.k) + bytes(&self.v)
    }

    /// Makes the buffers hold exactly `capacity` slots, at least as many as are in use.
    ///
    /// # Errors
    /// When the device has no memory for them.
    pub fn set_capacity(&mut self, capacity: usize) -> Result<()> {
        let (len, capacity) = (self.len(), capacity.max(self.len()));
        if capacity == self.capacity {
            return Ok(());
        }
        // One buffer after the other, so that only one is there twice.
        for x in [&mut self.k, &mut self.v] {
            let (heads, _, d) = x.dims3()?;
            let new = Tensor::zeros((heads, capacity, d), x.dtype(), x.device())?;
            if len > 0 {
                new.slice_set(&x.narrow(1, 0, len)?.contiguous()?, 1, 0)?;
            }
            *x = new;
        }
        self.capacity = capacity;
        Ok(())
    }

    /// Appends the entries of `n` tokens at positions from `first`, rotated for `angle` and on; there must be
    /// room for them.
    ///
    /// # Errors
    /// When the device fails.
    pub fn append(&mut self, k: &Tensor, v: &Tensor, first: u32, angle: u32) -> Result<()> {
        let (len, n) = (self.len(), k.dim(1)?);
        self.k.slice_set(&k.to_dtype(self.k.dtype())?, 1, len)?;
        self.v.slice_set(&v.to_dtype(self.v.dtype())?, 1, len)?;
        for head in 0..self.positions.len() {
            self.positions[head].extend(first..first + n as u32);
            self.angles[head].extend(angle..angle + n as u32);
            self.scores[head].resize(len + n, 0.0);
        }
        Ok(())
    }

    /// Rotates every key on or back, so that the entries of each KV head stand at neighbouring angles and the
    /// last one just before `end`. Rotations compose, so nothing is computed anew.
    ///
    /// # Errors
    /// When the device fails.
    pub fn rotate_to(&mut self, end: u32, rope: &Rope) -> Result<()> {
        let len = self.len() as u32;
        let first = end - len;
        let turns: Vec<i64> = self
            .angles
            .iter()
            .flat_map(|of_head| (first..end).zip(of_head))
            .map(|(to, &from)| i64::from(to) - i64::from(from))
            .collect();
        let keys = self.k.narrow(1, 0, len as usize)?.contiguous()?.to_dtype(DType::F32)?;
        let turned = rope.turn(&keys, &turns)?.to_dtype(self.k.dtype())?;
        self.k.slice_set(&turned, 1, 0)?;
        self.angles.iter_mut().for_each(|of_head| *of_head = (first..end).collect());
        Ok(())
    }

    /// Attends with `q` `[heads, n, head_dim]`, standing at `first`, …, to all entries up to each query's own
    /// position, and adds the column sums to the scores. Returns `[n, heads * head_dim]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn attend(&mut self, q: &Tensor, first: u32) -> Result<Tensor> {
        let (heads, n, d) = q.dims3()?;
        if !q.device().is_cpu() {
            let (out, sums) = ops::attend(q, &self.k, &self.v, self.len(), first, &self.positions)?;
            self.pending = Some(match self.pending.take() {
                Some(pending) => (pending.pad_with_zeros(1, 0, self.len() - pending.dim(1)?)? + sums)?,
                None => sums,
            });
            return Ok(out);
        }
        let mut out = vec![0f32; heads * n * d];
        let (k, v) = (self.k.storage_and_layout().0, self.v.storage_and_layout().0);
        let (k, v) = match (&*k, &*v) {
            (Storage::Cpu(CpuStorage::F16(k)), Storage::Cpu(CpuStorage::F16(v))) => (Rows::F16(k), Rows::F16(v)),
            (Storage::Cpu(CpuStorage::F32(k)), Storage::Cpu(CpuStorage::F32(v))) => (Rows::F32(k), Rows::F32(v)),
            _ => return Err(candle_core::Error::msg("the hot cache is neither f16 nor f32").into()),
        };
        let entries = Entries {
            k,
            v,
            capacity: self.capacity,
            len: self.positions[0].len(),
            head_dim: self.head_dim,
            positions: &self.positions,
        };
        floats(q, |q| cpu::attend(q, n, first, &entries, &mut out, &mut self.scores))?;
        Ok(Tensor::from_vec(out, (n, heads * d), q.device())?)
    }

    /// Brings column sums that lie on the device into [`HotLayer::scores`].
    ///
    /// # Errors
    /// When the device fails.
    pub fn fetch_scores(&mut self) -> Result<()> {
        if let Some(pending) = self.pending.take() {
            for (scores, sums) in self.scores.iter_mut().zip(pending.to_vec2::<f32>()?) {
                for (score, sum) in scores.iter_mut().zip(sums) {
                    *score += sum;
                }
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
        for x in [&self.k, &self.v] {
            if x.device().is_cpu() {
                x.inplace_op1(&MoveRows { slots, capacity: self.capacity, head_dim: self.head_dim })?;
            } else {
                let (heads, kept, d) = (slots.len(), slots[0].len(), self.head_dim);
                let index = Tensor::from_vec(slots.concat(), (heads, kept, 1), x.device())?;
                let index = index.broadcast_as((heads, kept, d))?.contiguous()?;
                x.slice_set(&x.gather(&index, 1)?, 1, 0)?;
            }
        }
        for (head, slots) in slots.iter().enumerate() {
            pick(&mut self.positions[head], slots);
            pick(&mut self.angles[head], slots);
            pick(&mut self.scores[head], slots);
        }
        Ok(())
    }
}

/// Leaves only the values of `slots`, which ascend.
fn pick<T: Copy>(values: &mut Vec<T>, slots: &[u32]) {
    for (to, &from) in slots.iter().enumerate() {
        values[to] = values[from as usize];
    }
    values.truncate(slots.len());
}

/// Moves the kept rows of every KV head to its front, in place.
struct MoveRows<'a> {
    slots: &'a [Vec<u32>],
    capacity: usize,
    head_dim: usize,
}

impl MoveRows<'_> {
    fn run<T: Copy>(&self, rows: &mut [T]) {
        let d = self.head_dim;
        for (head, rows) in rows.chunks_exact_mut(self.capacity * d).enumerate() {
            for (to, &from) in self.slots[head].iter().enumerate() {
                // Slots ascend, so a row only ever moves forward, over rows that are no longer needed.
                rows.copy_within(from as usize * d..(from as usize + 1) * d, to * d);
            }
        }
    }
}

impl InplaceOp1 for MoveRows<'_> {
    fn name(&self) -> &'static str {
        "move-rows"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _layout: &Layout) -> candle_core::Result<()> {
        match storage {
            CpuStorage::F16(rows) => self.run::<f16>(rows),
            CpuStorage::F32(rows) => self.run::<f32>(rows),
            _ => candle_core::bail!("the hot cache is neither f16 nor f32"),
        }
        Ok(())
    }
}
