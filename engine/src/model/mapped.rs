//! Weights that stay in the file: mapped into memory, read where they lie, and shared by every process that has
//! the file open. Opening a model then takes no time and no memory of its own.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0, matmul,
    matmul_f16,
};
use candle_core::quantized::{GgmlDType, GgmlType, QStorage, QuantizedType};
use candle_core::{CpuStorage, Result, bail};
use half::f16;
use memmap2::Mmap;

/// Blocks of one tensor in a mapped file.
struct Mapped<T> {
    file: Arc<Mmap>,
    /// Bytes before the first block, a multiple of its alignment.
    start: usize,
    blocks: usize,
    of: PhantomData<T>,
}

impl<T> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `storage`, which alone makes these, checked length and alignment, and names only blocks of halves
        // and bytes, which have no invalid bit patterns. The mapping lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.file.as_ptr().add(self.start).cast(), self.blocks) }
    }
}

/// The `bytes` from `start` on of a file as the storage of a tensor. `None` for what is not packed, or not aligned:
/// that has to be read.
pub fn storage(file: &Arc<Mmap>, dtype: GgmlDType, start: u64, bytes: usize) -> Option<QStorage> {
    let start = usize::try_from(start).ok()?;
    let of_file = file.get(start..start.checked_add(bytes)?)?;
    macro_rules! blocks {
        ($($dtype:ident: $block:ty),* $(,)?) => {
            match dtype {
                $(GgmlDType::$dtype => {
                    let fits = bytes.is_multiple_of(size_of::<$block>())
                        && of_file.as_ptr().align_offset(align_of::<$block>()) == 0;
                    let blocks = bytes / size_of::<$block>();
                    fits.then(|| {
                        let of = PhantomData::<$block>;
                        QStorage::Cpu(Box::new(Mapped { file: file.clone(), start, blocks, of }))
                    })
                })*
                _ => None,
            }
        };
    }
    blocks! {
        Q4_0: BlockQ4_0, Q4_1: BlockQ4_1, Q5_0: BlockQ5_0, Q5_1: BlockQ5_1, Q8_0: BlockQ8_0, Q2K: BlockQ2K,
        Q3K: BlockQ3K, Q4K: BlockQ4K, Q5K: BlockQ5K, Q6K: BlockQ6K,
    }
}

/// As candle does for blocks that it owns.
impl<T: GgmlType> QuantizedType for Mapped<T> {
    fn dtype(&self) -> GgmlDType {
        T::DTYPE
    }

    fn matmul_t(&self, mkn: (usize, usize, usize), lhs: &[f32], dst: &mut [f32]) -> Result<()> {
        matmul(mkn, lhs, self, dst)
    }

    fn matmul_t_f16(&self, mkn: (usize, usize, usize), lhs: &[f16], dst: &mut [f16]) -> Result<()> {
        matmul_f16(mkn, lhs, self, dst)
    }

    fn embedding(&self, ids: &[u32], rows: usize, hidden: usize) -> Result<CpuStorage> {
        let row = hidden / T::BLCK_SIZE;
        if !hidden.is_multiple_of(T::BLCK_SIZE) || self.len() != rows * row {
            bail!("{} blocks are not {rows} rows of {hidden}", self.len());
        }
        let mut out = vec![0f32; ids.len() * hidden];
        for (&id, out) in ids.iter().zip(out.chunks_exact_mut(hidden)) {
            let Some(blocks) = self.get(id as usize * row..(id as usize + 1) * row) else {
                bail!("there is no row {id} among {rows}");
            };
            T::to_float(blocks, out);
        }
        Ok(CpuStorage::F32(out))
    }

    fn dequantize(&self, elem_count: usize) -> Result<CpuStorage> {
        let mut out = vec![0f32; elem_count];
        T::to_float(self, &mut out);
        Ok(CpuStorage::F32(out))
    }

    fn storage_size_in_bytes(&self) -> usize {
        size_of_val::<[T]>(self)
    }

    fn as_ptr(&self) -> *const u8 {
        self.deref().as_ptr().cast()
    }

    fn block_size(&self) -> usize {
        T::BLCK_SIZE
    }

    fn size(&self) -> usize {
        size_of_val::<[T]>(self)
    }

    fn from_float(&mut self, _: &[f32]) {
        unreachable!("a file that is only read is not quantized into");
    }

    fn from_float_imatrix(&mut self, _: &[f32], _: &[f32], _: usize) {
        unreachable!("a file that is only read is not quantized into");
    }
}
