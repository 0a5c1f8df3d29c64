//! What attention and decoder compute alike, on the CPU and in f32.

use candle_core::{CpuStorage, Storage, Tensor};
use gemm::Parallelism;

use crate::error::Result;
use crate::simd::Floats;

/// Runs `f` on the numbers of a contiguous f32 tensor in host memory.
pub fn floats<T>(x: &Tensor, f: impl FnOnce(&[f32]) -> T) -> Result<T> {
    let (storage, layout) = x.storage_and_layout();
    match (&*storage, layout.contiguous_offsets()) {
        (Storage::Cpu(CpuStorage::F32(x)), Some((start, end))) => Ok(f(&x[start..end])),
        _ => Err(candle_core::Error::msg("a contiguous f32 tensor in host memory is expected").into()),
    }
}

/// `dst[m, n] = alpha · lhs[m, k] rhs[k, n]`, added to what `dst` holds where `add`; the strides of `lhs` and
/// `rhs` are (column, row), that of `dst` is its row's.
///
/// # Safety
/// The pointers must be valid for these sizes and strides, and `dst` written by nobody else.
pub unsafe fn gemm_f32(
    (m, n, k): (usize, usize, usize),
    (dst, dst_row): (*mut f32, usize),
    (lhs, lhs_col, lhs_row): (*const f32, usize, usize),
    (rhs, rhs_col, rhs_row): (*const f32, usize, usize),
    alpha: f32,
    add: bool,
) {
    // SAFETY: as the caller promises.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            dst,
            1,
            dst_row as isize,
            add,
            lhs,
            lhs_col as isize,
            lhs_row as isize,
            rhs,
            rhs_col as isize,
            rhs_row as isize,
            1.0,
            alpha,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// In sixteen lanes, which the compiler turns into vector code.
#[inline]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 16];
    let (a_chunks, b_chunks) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for i in 0..16 {
            sums[i] = a[i].mul_add(b[i], sums[i]);
        }
    }
    Floats::load(&std::array::from_fn(|lane| sums[lane] + sums[lane + 8])).sum() + rest
}

/// `eˣ` for x ≤ 0 to about 1e-7 relative: the bits of 2ⁿ times a polynomial on the rest (Cephes `expf`).
/// Without branches or calls, so that a loop over it becomes vector code.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5 · 2²³ rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let p = 1.987_569_1e-4_f32;
    let p = p.mul_add(r, 1.398_199_9e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 1.666_666_5e-1);
    let p = p.mul_add(r, 5e-1);
    let p = p.mul_add(r * r, r) + 1.0;
    p * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1f32.to_bits()))
}

/// `x / (1 + e⁻ˣ)`
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    let power = exp(-x.abs());
    let sigmoid = if x < 0.0 { power } else { 1.0 } / (1.0 + power);
    x * sigmoid
}

/// Lets tasks write disjoint parts of one matrix.
pub struct Shared(pub *mut f32);
// SAFETY: every user says how its tasks keep apart.
unsafe impl Sync for Shared {}
// SAFETY: see above.
unsafe impl Send for Shared {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_exact_to_a_few_ulps() {
        for i in 0..8_700 {
            let x = -(i as f32) / 100.0;
            assert!((exp(x) - x.exp()).abs() <= 3e-7 * x.exp(), "exp({x})");
        }
    }

    #[test]
    fn silu_is_exact_to_a_few_ulps() {
        for i in -8_000..8_000 {
            let x = i as f32 / 100.0;
            let want = f64::from(x) / (1.0 + f64::from(-x).exp());
            assert!((f64::from(silu(x)) - want).abs() <= 4e-7 * want.abs(), "silu({x})");
        }
        assert!(silu(f32::NAN).is_nan());
        assert_eq!(silu(f32::INFINITY), f32::INFINITY);
    }
}
