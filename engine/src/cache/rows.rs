//! How keys and values are held: f16, f32, or 8 bits a number with a scale for every 32.

use candle_core::{CpuStorage, D, DType, Device, InplaceOp1, InplaceOp2, Layout, Storage, Tensor};
use half::f16;

use crate::attention::Slices;
use crate::error::Result;
use crate::memory::{self, Site};
use crate::protocol::KvType;

/// Numbers that share a scale in q8_0.
const BLOCK: usize = 32;

/// What is added to a q8_0 number, so that it lies in a `u8`.
const ZERO: f64 = 128.0;

/// Rows of `head_dim` numbers, `[kv_heads, capacity, head_dim]`, in one tensor or, for q8_0, in two: the
/// numbers, and the scales `[kv_heads, capacity, head_dim / 32]`.
#[derive(Debug, Clone)]
pub struct Rows {
    kv: KvType,
    planes: Vec<Tensor>,
}

impl Rows {
    /// No rows; `head_dim` must be a multiple of 32 for q8_0.
    ///
    /// # Errors
    /// When the device fails.
    pub fn empty(kv: KvType, kv_heads: usize, head_dim: usize, device: &Device) -> Result<Self> {
        let planes = widths(kv, head_dim)
            .into_iter()
            .map(|(dtype, width)| Ok(Tensor::zeros((kv_heads, 0, width), dtype, device)?));
        Ok(Self { kv, planes: planes.collect::<Result<_>>()? })
    }

    /// Holds `x` `[kv_heads, n, head_dim]`, f32.
    ///
    /// # Errors
    /// When the device fails.
    pub fn encode(x: &Tensor, kv: KvType) -> Result<Self> {
        let planes = match kv {
            KvType::F16 => vec![x.to_dtype(DType::F16)?],
            KvType::F32 => vec![x.clone()],
            KvType::Q8_0 => quantize(x)?,
        };
        Ok(Self { kv, planes })
    }

    /// The first `n` rows as f32, `[kv_heads, n, head_dim]`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn decode(&self, n: usize) -> Result<Tensor> {
        let plane =
            |i: usize| -> Result<Tensor> { Ok(self.planes[i].narrow(1, 0, n)?.to_dtype(DType::F32)?.contiguous()?) };
        if self.kv != KvType::Q8_0 {
            return plane(0);
        }
        let (heads, _, d) = self.planes[0].dims3()?;
        let q = (plane(0)? - ZERO)?.reshape((heads, n, d / BLOCK, BLOCK))?;
        Ok(q.broadcast_mul(&plane(1)?.unsqueeze(D::Minus1)?)?.reshape((heads, n, d))?)
    }

    /// How they are held.
    pub fn kv(&self) -> KvType {
        self.kv
    }

    /// Rows that there is memory for, of each KV head.
    pub fn capacity(&self) -> usize {
        self.planes[0].dims()[1]
    }

    /// Bytes of the buffers.
    pub fn bytes(&self) -> u64 {
        self.planes.iter().map(|x| (x.elem_count() * x.dtype().size_in_bytes()) as u64).sum()
    }

    /// Where they lie.
    pub fn device(&self) -> &Device {
        self.planes[0].device()
    }

    /// Moves the first `used` rows into buffers of `capacity`. Nothing else may hold these buffers.
    ///
    /// # Errors
    /// When the device has no memory for them; the rows are as before.
    pub fn set_capacity(&mut self, capacity: usize, used: usize) -> Result<()> {
        if capacity > self.capacity() {
            let row = |x: &Tensor| x.dims()[0] * x.dims()[2] * x.dtype().size_in_bytes();
            let bytes = capacity * self.planes.iter().map(row).sum::<usize>();
            memory::claim(self.device(), bytes as u64, Site::Hot)?;
        }
        let moved = |x: &Tensor| -> Result<Tensor> {
            let (heads, _, width) = x.dims3()?;
            let new = Tensor::zeros((heads, capacity, width), x.dtype(), x.device())?;
            if used > 0 {
                new.slice_set(&x.narrow(1, 0, used)?.contiguous()?, 1, 0)?;
            }
            Ok(new)
        };
        self.planes = self.planes.iter().map(moved).collect::<Result<_>>()?;
        Ok(())
    }

    /// Writes `rows`, of the same kind, from row `at` on.
    ///
    /// # Errors
    /// When the device fails.
    pub fn set(&mut self, rows: &Self, at: usize) -> Result<()> {
        for (x, new) in self.planes.iter().zip(&rows.planes) {
            x.slice_set(&new.contiguous()?, 1, at)?;
        }
        Ok(())
    }

    /// Moves rows `slots[kv_head]`, ascending, to the front of both keys and values.
    ///
    /// # Errors
    /// When the device fails; both are as before.
    pub fn retain(both: [&mut Self; 2], slots: &[Vec<u32>]) -> Result<()> {
        // Where the last ones go, none has to move.
        if slots.iter().all(|slots| slots.last().is_none_or(|&last| last as usize + 1 == slots.len())) {
            return Ok(());
        }
        let planes = || both.iter().flat_map(|rows| &rows.planes);
        if both[0].device().is_cpu() {
            for x in planes() {
                let (_, capacity, width) = x.dims3()?;
                x.inplace_op1(&MoveRows { slots, capacity, width })?;
            }
        } else if !slots[0].is_empty() {
            let gathered: Vec<Tensor> = planes().map(|x| gather(x, slots)).collect::<Result<_>>()?;
            planes().zip(gathered).try_for_each(|(x, kept)| x.slice_set(&kept, 1, 0))?;
        }
        Ok(())
    }

    /// Takes, for each KV head, `picks` among the first `used` rows and the rows of `more` that count on from
    /// there, into buffers of `capacity`, of keys and of values. Where these are those that there are, nothing new is
    /// needed.
    ///
    /// # Errors
    /// When the device has no memory for them; both are as before.
    pub fn assemble(
        both: [&mut Self; 2],
        used: usize,
        more: [&Self; 2],
        picks: &[Vec<u32>],
        capacity: usize,
    ) -> Result<()> {
        if both[0].device().is_cpu() && both.iter().all(|rows| rows.capacity() == capacity) {
            let planes = both.iter().flat_map(|rows| &rows.planes);
            for (x, more) in planes.zip(more.iter().flat_map(|rows| &rows.planes)) {
                let width = x.dim(2)?;
                x.inplace_op2(&more.contiguous()?, &MergeRows { picks, used, capacity, width })?;
            }
            return Ok(());
        }
        let assembled = |(x, more): (&Tensor, &Tensor)| -> Result<Tensor> {
            let (heads, _, width) = x.dims3()?;
            // What was, what comes, and both as they are picked are there at once.
            let rows = used + more.dim(1)? + picks[0].len() + capacity;
            memory::claim(x.device(), (heads * rows * width * x.dtype().size_in_bytes()) as u64, Site::Recall)?;
            let all = Tensor::cat(&[&x.narrow(1, 0, used)?.contiguous()?, more], 1)?;
            let new = Tensor::zeros((heads, capacity, width), x.dtype(), x.device())?;
            if !picks[0].is_empty() {
                new.slice_set(&gather(&all, picks)?, 1, 0)?;
            }
            Ok(new)
        };
        let planes = |rows: &Self, more: &Self| rows.planes.iter().zip(&more.planes).map(assembled).collect();
        let [k, v] = both;
        let new: [Result<Vec<Tensor>>; 2] = [planes(k, more[0]), planes(v, more[1])];
        let [new_k, new_v] = new;
        (k.planes, v.planes) = (new_k?, new_v?);
        Ok(())
    }

    /// A copy that shares no memory, so that either can be written to.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn fork(&self) -> Result<Self> {
        memory::claim(self.device(), self.bytes(), Site::Fork)?;
        let planes = self.planes.iter().map(|x| Ok(x.copy()?)).collect::<Result<_>>()?;
        Ok(Self { kv: self.kv, planes })
    }

    /// The first `n` rows in host memory.
    ///
    /// # Errors
    /// When the device fails.
    pub fn to_host(&self, n: usize) -> Result<HostRows> {
        let flat = |i: usize| -> Result<Tensor> { Ok(self.planes[i].narrow(1, 0, n)?.contiguous()?.flatten_all()?) };
        Ok(match self.kv {
            KvType::F16 => HostRows::F16(flat(0)?.to_vec1()?),
            KvType::F32 => HostRows::F32(flat(0)?.to_vec1()?),
            KvType::Q8_0 => HostRows::Q8(flat(0)?.to_vec1()?, flat(1)?.to_vec1()?),
        })
    }

    /// Rows from host memory, `[kv_heads, n, head_dim]`.
    ///
    /// # Errors
    /// When the device has no memory for them, or `rows` are not `kv_heads × n` whole ones.
    pub fn from_host(rows: HostRows, kv_heads: usize, head_dim: usize, device: &Device) -> Result<Self> {
        let kv = rows.kv();
        let n = rows.numbers() / (kv_heads * head_dim);
        memory::claim(device, (kv_heads * n * row_bytes(kv, head_dim)) as u64, Site::Recall)?;
        let planes = match rows {
            HostRows::F16(x) => vec![Tensor::from_vec(x, (kv_heads, n, head_dim), device)?],
            HostRows::F32(x) => vec![Tensor::from_vec(x, (kv_heads, n, head_dim), device)?],
            HostRows::Q8(q, scales) => vec![
                Tensor::from_vec(q, (kv_heads, n, head_dim), device)?,
                Tensor::from_vec(scales, (kv_heads, n, head_dim / BLOCK), device)?,
            ],
        };
        Ok(Self { kv, planes })
    }

    /// Runs `f` on the first `n` rows of each KV head, and tells it how many rows lie between two heads: where they
    /// are in host memory as they lie, otherwise on a copy.
    ///
    /// # Errors
    /// When the device fails.
    pub fn with_slices<T>(&self, n: usize, f: impl FnOnce(Slices, usize) -> T) -> Result<T> {
        if self.device().is_cpu() {
            return self.slices(|slices| f(slices, self.capacity()));
        }
        let copy: Vec<f32> = self.decode(n)?.flatten_all()?.to_vec1()?;
        Ok(f(Slices::F32(&copy), n))
    }

    /// Runs `f` on the numbers as they lie in host memory.
    ///
    /// # Errors
    /// When they lie elsewhere.
    pub fn slices<T>(&self, f: impl FnOnce(Slices) -> T) -> Result<T> {
        let first = self.planes[0].storage_and_layout().0;
        let second = self.planes.get(1).map(|x| x.storage_and_layout().0);
        match (&*first, second.as_deref()) {
            (Storage::Cpu(CpuStorage::F16(x)), None) => Ok(f(Slices::F16(x))),
            (Storage::Cpu(CpuStorage::F32(x)), None) => Ok(f(Slices::F32(x))),
            (Storage::Cpu(CpuStorage::U8(x)), Some(Storage::Cpu(CpuStorage::F16(scales)))) => {
                Ok(f(Slices::Q8(x, scales)))
            }
            _ => Err(candle_core::Error::msg("the entries are not in host memory").into()),
        }
    }
}

/// Type and width of each plane.
fn widths(kv: KvType, head_dim: usize) -> Vec<(DType, usize)> {
    match kv {
        KvType::F16 => vec![(DType::F16, head_dim)],
        KvType::F32 => vec![(DType::F32, head_dim)],
        KvType::Q8_0 => vec![(DType::U8, head_dim), (DType::F16, head_dim / BLOCK)],
    }
}

/// Bytes of one row.
pub fn row_bytes(kv: KvType, head_dim: usize) -> usize {
    widths(kv, head_dim).into_iter().map(|(dtype, width)| dtype.size_in_bytes() * width).sum()
}

/// As GGML's Q8_0: the largest magnitude of a block becomes 127.
fn quantize(x: &Tensor) -> Result<Vec<Tensor>> {
    let (heads, n, d) = x.dims3()?;
    let blocks = x.reshape((heads, n, d / BLOCK, BLOCK))?;
    // The scale is rounded before it is used, so that what is read back is the nearest number.
    let scales = (blocks.abs()?.max(D::Minus1)? / 127.0)?.to_dtype(DType::F16)?;
    let divisors = scales.to_dtype(DType::F32)?.clamp(1e-8, f64::from(f32::MAX))?;
    let q = blocks.broadcast_div(&divisors.unsqueeze(D::Minus1)?)?.round()?.clamp(-127.0, 127.0)?;
    Ok(vec![(q + ZERO)?.to_dtype(DType::U8)?.reshape((heads, n, d))?, scales])
}

/// Rows `picks[head]` of `x` `[heads, n, width]`.
fn gather(x: &Tensor, picks: &[Vec<u32>]) -> Result<Tensor> {
    let (heads, _, width) = x.dims3()?;
    let index = Tensor::from_vec(picks.concat(), (heads, picks[0].len(), 1), x.device())?;
    Ok(x.gather(&index.broadcast_as((heads, picks[0].len(), width))?.contiguous()?, 1)?)
}

/// Rows in host memory.
#[derive(Debug, Clone, PartialEq)]
pub enum HostRows {
    /// See [`KvType::F16`].
    F16(Vec<f16>),
    /// See [`KvType::F32`].
    F32(Vec<f32>),
    /// See [`KvType::Q8_0`]: numbers and scales.
    Q8(Vec<u8>, Vec<f16>),
}

impl HostRows {
    /// No rows, with memory for some.
    pub fn with_capacity(kv: KvType, rows: usize, head_dim: usize) -> Self {
        let n = rows * head_dim;
        match kv {
            KvType::F16 => Self::F16(Vec::with_capacity(n)),
            KvType::F32 => Self::F32(Vec::with_capacity(n)),
            KvType::Q8_0 => Self::Q8(Vec::with_capacity(n), Vec::with_capacity(n / BLOCK)),
        }
    }

    /// How they are held.
    pub fn kv(&self) -> KvType {
        match self {
            Self::F16(_) => KvType::F16,
            Self::F32(_) => KvType::F32,
            Self::Q8(..) => KvType::Q8_0,
        }
    }

    /// Numbers in them.
    pub fn numbers(&self) -> usize {
        match self {
            Self::F16(x) => x.len(),
            Self::F32(x) => x.len(),
            Self::Q8(q, _) => q.len(),
        }
    }

    /// Adds `n` numbers of `from`, a whole number of rows, from `start` on.
    pub fn extend(&mut self, from: &Self, start: usize, n: usize) {
        match (self, from) {
            (Self::F16(x), Self::F16(y)) => x.extend_from_slice(&y[start..start + n]),
            (Self::F32(x), Self::F32(y)) => x.extend_from_slice(&y[start..start + n]),
            (Self::Q8(q, s), Self::Q8(p, t)) => {
                q.extend_from_slice(&p[start..start + n]);
                s.extend_from_slice(&t[start / BLOCK..(start + n) / BLOCK]);
            }
            _ => unreachable!("a store holds its rows in one way"),
        }
    }

    /// Drops the numbers after the first `n`.
    pub fn truncate(&mut self, n: usize) {
        match self {
            Self::F16(x) => x.truncate(n),
            Self::F32(x) => x.truncate(n),
            Self::Q8(q, scales) => {
                q.truncate(n);
                scales.truncate(n / BLOCK);
            }
        }
    }

    /// As the kernels read them.
    pub fn slices(&self) -> Slices<'_> {
        match self {
            Self::F16(x) => Slices::F16(x),
            Self::F32(x) => Slices::F32(x),
            Self::Q8(q, scales) => Slices::Q8(q, scales),
        }
    }
}

/// Moves rows `slots` of width `d` to the front, and says how many they are.
fn to_front<T: Copy>(rows: &mut [T], slots: impl Iterator<Item = usize>, d: usize) -> usize {
    let mut kept = 0;
    for from in slots {
        // Slots ascend, so a row only ever moves forward, over rows that are no longer needed.
        rows.copy_within(from * d..(from + 1) * d, kept * d);
        kept += 1;
    }
    kept
}

/// Moves the kept rows of every KV head to its front, in place.
struct MoveRows<'a> {
    slots: &'a [Vec<u32>],
    capacity: usize,
    width: usize,
}

impl MoveRows<'_> {
    fn run<T: Copy>(&self, rows: &mut [T]) {
        let d = self.width;
        for (head, rows) in rows.chunks_exact_mut(self.capacity * d).enumerate() {
            to_front(rows, self.slots[head].iter().map(|&slot| slot as usize), d);
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
            CpuStorage::U8(rows) => self.run::<u8>(rows),
            _ => candle_core::bail!("the hot cache holds no such numbers"),
        }
        Ok(())
    }
}

/// Merges rows of another buffer into the kept ones of every KV head, in place.
struct MergeRows<'a> {
    picks: &'a [Vec<u32>],
    used: usize,
    capacity: usize,
    width: usize,
}

impl MergeRows<'_> {
    fn run<T: Copy>(&self, rows: &mut [T], more: &[T]) {
        let d = self.width;
        let of_head = more.len() / self.picks.len();
        for (head, (rows, picks)) in rows.chunks_exact_mut(self.capacity * d).zip(self.picks).enumerate() {
            let more = &more[head * of_head..(head + 1) * of_head];
            // The kept rows first close their ranks at the front, then the last go to their places first: no row is
            // written over before it has moved.
            let mut kept = to_front(rows, picks.iter().map(|&pick| pick as usize).filter(|&pick| pick < self.used), d);
            for (to, &pick) in picks.iter().enumerate().rev() {
                if kept == to + 1 {
                    break;
                }
                match (pick as usize).checked_sub(self.used) {
                    Some(from) => rows[to * d..(to + 1) * d].copy_from_slice(&more[from * d..(from + 1) * d]),
                    None => {
                        kept -= 1;
                        rows.copy_within(kept * d..(kept + 1) * d, to * d);
                    }
                }
            }
        }
    }
}

impl InplaceOp2 for MergeRows<'_> {
    fn name(&self) -> &'static str {
        "merge-rows"
    }

    fn cpu_fwd(
        &self,
        storage: &mut CpuStorage,
        _layout: &Layout,
        more: &CpuStorage,
        layout: &Layout,
    ) -> candle_core::Result<()> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("rows to merge lie one after another")
        };
        match (storage, more) {
            (CpuStorage::F16(rows), CpuStorage::F16(more)) => self.run(rows, &more[start..end]),
            (CpuStorage::F32(rows), CpuStorage::F32(more)) => self.run(rows, &more[start..end]),
            (CpuStorage::U8(rows), CpuStorage::U8(more)) => self.run(rows, &more[start..end]),
            _ => candle_core::bail!("the hot cache holds no such numbers"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q8_0_reads_back_every_number_to_half_a_step_of_its_block() {
        let x = Tensor::randn(0f32, 3f32, (2, 5, 64), &Device::Cpu).unwrap();
        let rows = Rows::encode(&x, KvType::Q8_0).unwrap();
        let back: Vec<f32> = rows.decode(5).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let x: Vec<f32> = x.flatten_all().unwrap().to_vec1().unwrap();
        for (x, back) in x.chunks(BLOCK).zip(back.chunks(BLOCK)) {
            let step = x.iter().fold(0f32, |max, x| max.max(x.abs())) / 127.0;
            assert!(x.iter().zip(back).all(|(x, back)| (x - back).abs() <= step * 0.52));
        }
        assert_eq!(rows.bytes() as usize, 2 * 5 * row_bytes(KvType::Q8_0, 64));
    }

    #[test]
    fn rows_merge_in_place_as_they_do_in_a_new_buffer() {
        let tensor = |from: u32, n: usize| {
            let numbers: Vec<f32> = (0..2 * n * 32).map(|i| (from + i as u32 / 32) as f32).collect();
            Rows::encode(&Tensor::from_vec(numbers, (2, n, 32), &Device::Cpu).unwrap(), KvType::F32).unwrap()
        };
        // Six slots of which five are used, and four new rows: before, between and after those that stay.
        let picks = [vec![5, 0, 6, 3, 7, 8], vec![1, 2, 3, 4, 5, 6]];
        let (mut in_place, mut anew) = (tensor(0, 6), tensor(0, 6));
        let more = tensor(100, 4);
        Rows::assemble([&mut in_place, &mut tensor(0, 6)], 5, [&more, &more], &picks, 6).unwrap();
        anew.set_capacity(5, 5).unwrap();
        Rows::assemble([&mut anew, &mut tensor(0, 6)], 5, [&more, &more], &picks, 6).unwrap();
        assert_eq!(in_place.to_host(6).unwrap(), anew.to_host(6).unwrap());
        let HostRows::F32(first) = in_place.to_host(6).unwrap() else { panic!("f32") };
        let rows: Vec<f32> = first.iter().step_by(32).copied().collect();
        assert_eq!(rows, [100., 0., 101., 3., 102., 103., 7., 8., 9., 10., 104., 105.]);
    }

    #[test]
    fn a_block_of_zeros_stays_zeros() {
        let rows = Rows::encode(&Tensor::zeros((1, 1, 32), DType::F32, &Device::Cpu).unwrap(), KvType::Q8_0).unwrap();
        assert_eq!(rows.decode(1).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap(), [0.0; 32]);
    }

    #[test]
    fn rows_go_to_the_host_and_come_back_bit_for_bit() {
        let device = &Device::Cpu;
        let x = Tensor::randn(0f32, 1f32, (2, 6, 32), device).unwrap();
        for kv in [KvType::F16, KvType::F32, KvType::Q8_0] {
            let rows = Rows::encode(&x, kv).unwrap();
            let host = rows.to_host(6).unwrap();
            let again = Rows::from_host(host.clone(), 2, 32, device).unwrap();
            assert_eq!(again.to_host(6).unwrap(), host);
            // Rows 1 and 4 of the first head, 0 and 7 of the second, where 6 and 7 are the added ones.
            let mut hot = rows.fork().unwrap();
            let more = Rows::encode(&x.narrow(1, 2, 2).unwrap().contiguous().unwrap(), kv).unwrap();
            let picks = [vec![1, 4], vec![0, 7]];
            Rows::assemble([&mut hot, &mut rows.fork().unwrap()], 6, [&more, &more], &picks, 3).unwrap();
            let want = |head: usize, row: usize| -> Vec<f32> {
                rows.decode(6).unwrap().get(head).unwrap().get(row).unwrap().to_vec1().unwrap()
            };
            let got: Vec<Vec<Vec<f32>>> = hot.decode(2).unwrap().to_vec3().unwrap();
            assert_eq!(got[0], [want(0, 1), want(0, 4)]);
            assert_eq!(got[1], [want(1, 0), want(1, 3)]);
        }
    }
}
