//! One row of activations times a matrix in blocks of 32: decode's matmul.
//!
//! Activations stay f32. candle quantizes them to 8 bits in blocks of 32 first, and has no vector code for
//! these types on x86; a single outlier in a block, as small llama models have them, then costs the other 31
//! their precision (SmolLM2: cosine 0.997 to the exact logits, against 0.9999 here), and this is faster too.
//! Every value of a block is `d · q + c` with small integers `q`, so a block's share of the dot product is
//! `d · Σ q x + c · Σ x`, and the sums of x are computed once for all rows.

use candle_core::quantized::GgmlDType;
use half::f16;
use rayon::prelude::*;

/// Weights in a block.
const BLOCK: usize = 32;

/// Rows that share each load of x.
const ROWS: usize = 4;

/// Rows of one task.
const TASK_ROWS: usize = 64;

/// A block as the file holds it.
trait Block: Copy + Sync {
    /// `d` and `c`.
    fn scales(&self) -> (f32, f32);

    /// `Σ q x` in eight lanes.
    fn dot(&self, x: &[f32; BLOCK]) -> [f32; 8];
}

/// `y[n_out] = W x` for rows of `data`; `false` for a type that has other blocks.
pub fn gemv(dtype: GgmlDType, data: &[u8], x: &[f32], y: &mut [f32]) -> bool {
    match dtype {
        GgmlDType::Q4_0 => rows::<Q4_0>(data, x, y),
        GgmlDType::Q4_1 => rows::<Q4_1>(data, x, y),
        GgmlDType::Q5_0 => rows::<Q5_0>(data, x, y),
        GgmlDType::Q5_1 => rows::<Q5_1>(data, x, y),
        GgmlDType::Q8_0 => rows::<Q8_0>(data, x, y),
        _ => return false,
    }
    true
}

fn rows<B: Block>(data: &[u8], x: &[f32], y: &mut [f32]) {
    let blocks = x.len() / BLOCK;
    assert_eq!(data.len(), y.len() * blocks * size_of::<B>(), "a tensor holds whole rows");
    assert_eq!(data.as_ptr().align_offset(align_of::<B>()), 0, "candle aligns its blocks");
    // SAFETY: the bytes are whole, aligned blocks of this type, which has no invalid bit patterns.
    let weights = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<B>(), y.len() * blocks) };
    let (x, _) = x.as_chunks::<BLOCK>();
    let sums: Vec<f32> = x.iter().map(|x| x.iter().sum()).collect();
    y.par_chunks_mut(TASK_ROWS).enumerate().for_each(|(task, y)| {
        let weights = &weights[task * TASK_ROWS * blocks..][..y.len() * blocks];
        for (y, weights) in y.chunks_mut(ROWS).zip(weights.chunks(ROWS * blocks)) {
            match y.len() {
                ROWS => y.copy_from_slice(&dots::<B, ROWS>(weights, x, &sums)),
                _ => {
                    for (y, weights) in y.iter_mut().zip(weights.chunks(blocks)) {
                        [*y] = dots::<B, 1>(weights, x, &sums);
                    }
                }
            }
        }
    });
}

/// The dot products of `N` neighbouring rows with `x`.
#[inline(always)]
fn dots<B: Block, const N: usize>(weights: &[B], x: &[[f32; BLOCK]], sums: &[f32]) -> [f32; N] {
    let row_blocks = weights.len() / N;
    let mut lanes = [[0f32; 8]; N];
    let mut offsets = [0f32; N];
    for (i, (x, sum)) in x.iter().zip(sums).enumerate() {
        for row in 0..N {
            let block = &weights[row * row_blocks + i];
            let (d, c) = block.scales();
            let dot = block.dot(x);
            for lane in 0..8 {
                lanes[row][lane] = d.mul_add(dot[lane], lanes[row][lane]);
            }
            offsets[row] = c.mul_add(*sum, offsets[row]);
        }
    }
    std::array::from_fn(|row| lanes[row].iter().sum::<f32>() + offsets[row])
}

/// `Σ q x` of 16 low and 16 high nibbles, each with a bit of `high` above it where there is one.
#[inline(always)]
fn nibbles(qs: &[u8; 16], high: u32, x: &[f32; BLOCK]) -> [f32; 8] {
    let mut sums = [0f32; 8];
    for half in 0..2 {
        for lane in 0..8 {
            let j = half * 8 + lane;
            let low = u32::from(qs[j] & 15) | ((high >> j) & 1) << 4;
            sums[lane] = (low as i32 as f32).mul_add(x[j], sums[lane]);
        }
        for lane in 0..8 {
            let j = half * 8 + lane;
            let top = u32::from(qs[j] >> 4) | ((high >> (j + 16)) & 1) << 4;
            sums[lane] = (top as i32 as f32).mul_add(x[j + 16], sums[lane]);
        }
    }
    sums
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Q4_0 {
    d: f16,
    qs: [u8; 16],
}

impl Block for Q4_0 {
    #[inline(always)]
    fn scales(&self) -> (f32, f32) {
        let d = self.d.to_f32();
        (d, -8.0 * d)
    }

    #[inline(always)]
    fn dot(&self, x: &[f32; BLOCK]) -> [f32; 8] {
        nibbles(&self.qs, 0, x)
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Q4_1 {
    d: f16,
    m: f16,
    qs: [u8; 16],
}

impl Block for Q4_1 {
    #[inline(always)]
    fn scales(&self) -> (f32, f32) {
        (self.d.to_f32(), self.m.to_f32())
    }

    #[inline(always)]
    fn dot(&self, x: &[f32; BLOCK]) -> [f32; 8] {
        nibbles(&self.qs, 0, x)
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Q5_0 {
    d: f16,
    high: [u8; 4],
    qs: [u8; 16],
}

impl Block for Q5_0 {
    #[inline(always)]
    fn scales(&self) -> (f32, f32) {
        let d = self.d.to_f32();
        (d, -16.0 * d)
    }

    #[inline(always)]
    fn dot(&self, x: &[f32; BLOCK]) -> [f32; 8] {
        nibbles(&self.qs, u32::from_le_bytes(self.high), x)
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Q5_1 {
    d: f16,
    m: f16,
    high: [u8; 4],
    qs: [u8; 16],
}

impl Block for Q5_1 {
    #[inline(always)]
    fn scales(&self) -> (f32, f32) {
        (self.d.to_f32(), self.m.to_f32())
    }

    #[inline(always)]
    fn dot(&self, x: &[f32; BLOCK]) -> [f32; 8] {
        nibbles(&self.qs, u32::from_le_bytes(self.high), x)
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Q8_0 {
    d: f16,
    qs: [i8; BLOCK],
}

impl Block for Q8_0 {
    #[inline(always)]
    fn scales(&self) -> (f32, f32) {
        (self.d.to_f32(), 0.0)
    }

    #[inline(always)]
    fn dot(&self, x: &[f32; BLOCK]) -> [f32; 8] {
        let mut sums = [0f32; 8];
        for part in 0..4 {
            for lane in 0..8 {
                let j = part * 8 + lane;
                sums[lane] = f32::from(self.qs[j]).mul_add(x[j], sums[lane]);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::QTensor;
    use candle_core::{Device, Tensor};

    use super::*;

    #[test]
    fn a_row_times_a_matrix_equals_the_product_with_the_dequantized_matrix() {
        let device = &Device::Cpu;
        for dtype in [GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q5_0, GgmlDType::Q5_1, GgmlDType::Q8_0] {
            for (n_out, n_in) in [(3, 32), (131, 576)] {
                let weight = Tensor::rand(-1f32, 1f32, (n_out, n_in), device).unwrap();
                let weight = QTensor::quantize(&weight, dtype).unwrap();
                let x = Tensor::rand(-1f32, 1f32, (n_in, 1), device).unwrap();
                let want = weight.dequantize(device).unwrap().matmul(&x).unwrap().flatten_all().unwrap();
                let x: Vec<f32> = x.flatten_all().unwrap().to_vec1().unwrap();
                let mut y = vec![0f32; n_out];
                assert!(gemv(dtype, &weight.data().unwrap(), &x, &mut y));
                for (got, want) in y.iter().zip(want.to_vec1::<f32>().unwrap()) {
                    assert!((got - want).abs() < 1e-4, "{dtype:?}: {got} is not {want}");
                }
            }
        }
    }
}
