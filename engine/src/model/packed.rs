//! A packed matrix, and what is done with some of its rows: dot products with a few tokens, which unpack it as it comes,
//! or a GEMM with many, for which a tile of it is unpacked first.

use std::ops::Range;

use candle_core::quantized::GgmlDType;

use super::formats::{Format, MOST_PARTS, PART, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::math::gemm_f32;
use crate::simd::{Floats, Ints, Words, prefetch};

/// Sums that a dot product is added up in: one would wait for its own last addition.
const CHAINS: usize = 4;

/// About so many numbers of a row are unpacked at once: a tile stays in the L2 cache of a core.
const PANEL: usize = 1024;

/// Numbers of a vector.
pub const LANES: usize = 8;

/// `[n_out, n_in]`, in some format.
pub trait Packed: Send + Sync {
    /// Rows.
    fn n_out(&self) -> usize;

    /// Adds the dot products of the rows from `first` on with one token to `y`.
    fn dots(&self, first: usize, x: &Token, y: &mut [f32]);

    /// Adds `x[n, n_in]` times these rows to `y[n, rows]`, whose rows lie `stride` apart. `tile` is room to work in.
    ///
    /// # Safety
    /// `y` must be valid for that, and written by nobody else.
    unsafe fn products(&self, rows: Range<usize>, x: &[f32], tile: &mut Vec<f32>, y: *mut f32, stride: usize);
}

/// The matrix that is packed in `data`; `None` for a type that is packed in another way.
pub fn packed(dtype: GgmlDType, data: &[u8], n_in: usize, n_out: usize) -> Option<Box<dyn Packed + '_>> {
    Some(match dtype {
        GgmlDType::Q4_0 => Matrix::<Q4_0>::boxed(data, n_in, n_out),
        GgmlDType::Q4_1 => Matrix::<Q4_1>::boxed(data, n_in, n_out),
        GgmlDType::Q5_0 => Matrix::<Q5_0>::boxed(data, n_in, n_out),
        GgmlDType::Q5_1 => Matrix::<Q5_1>::boxed(data, n_in, n_out),
        GgmlDType::Q8_0 => Matrix::<Q8_0>::boxed(data, n_in, n_out),
        GgmlDType::Q4K => Matrix::<Q4K>::boxed(data, n_in, n_out),
        GgmlDType::Q5K => Matrix::<Q5K>::boxed(data, n_in, n_out),
        GgmlDType::Q6K => Matrix::<Q6K>::boxed(data, n_in, n_out),
        _ => return None,
    })
}

struct Matrix<'a, F> {
    weights: &'a [F],
    /// Blocks of a row.
    row: usize,
}

impl<'a, F: Format + 'a> Matrix<'a, F> {
    fn boxed(data: &'a [u8], n_in: usize, n_out: usize) -> Box<dyn Packed + 'a> {
        let row = n_in / (F::PARTS * PART);
        assert_eq!(n_in, row * F::PARTS * PART, "a row holds whole blocks");
        assert_eq!(data.len(), n_out * row * size_of::<F>(), "a tensor holds whole rows");
        assert_eq!(data.as_ptr().align_offset(align_of::<F>()), 0, "candle aligns its blocks");
        // SAFETY: the bytes are whole, aligned blocks of this type, which has no invalid bit patterns.
        let weights = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<F>(), n_out * row) };
        Box::new(Self { weights, row })
    }
}

impl<F: Format> Packed for Matrix<'_, F> {
    fn n_out(&self) -> usize {
        self.weights.len() / self.row
    }

    fn dots(&self, first: usize, x: &Token, y: &mut [f32]) {
        for (y, weights) in y.iter_mut().zip(self.weights[first * self.row..].chunks_exact(self.row)) {
            *y += dot(weights, x);
        }
    }

    unsafe fn products(&self, rows: Range<usize>, x: &[f32], tile: &mut Vec<f32>, y: *mut f32, stride: usize) {
        let n_in = self.row * F::PARTS * PART;
        let panel = self.row.div_ceil(n_in.div_ceil(PANEL));
        let weights = &self.weights[rows.start * self.row..rows.end * self.row];
        let height = rows.len().next_multiple_of(LANES);
        for start in (0..self.row).step_by(panel) {
            let blocks = start..self.row.min(start + panel);
            let width = blocks.len() * F::PARTS * PART;
            tile.resize(width * height, 0.0);
            for (group, weights) in weights.chunks(LANES * self.row).enumerate() {
                unpack(weights, self.row, &blocks, &mut tile[group * LANES..], height);
            }
            let x = &x[start * F::PARTS * PART..];
            let n = x.len().div_ceil(n_in);
            // SAFETY: x has n rows that are `width` wide from here on, the tile holds width × height, and the caller
            // says so of y.
            unsafe {
                gemm_f32(
                    (n, rows.len(), width),
                    (y, stride),
                    (x.as_ptr(), 1, n_in),
                    (tile.as_ptr(), 1, height),
                    1.0,
                    true,
                );
            }
        }
    }
}

/// A token's activations, `[n_in]`, as 16-bit integers with a scale for each part, so that products with the weights'
/// small integers are exact and take half the instructions of floats. Eight bits, as llama.cpp and candle take, are not
/// enough: a single outlier among 32, as small llama models have them, costs the other 31 their precision (SmolLM2:
/// cosine 0.997 to the exact logits).
pub struct Token {
    /// `[parts]`
    q: Vec<[i16; PART]>,
    /// `[parts]`
    scales: Vec<f32>,
    /// `[parts]`, of the numbers as they were
    sums: Vec<f32>,
}

impl Token {
    pub fn new(x: &[f32]) -> Self {
        let parts = x.as_chunks().0;
        let mut q = vec![[0; PART]; parts.len()];
        let (scales, sums) = q.iter_mut().zip(parts).map(|(q, x)| quantize(x, q)).unzip();
        Self { q, scales, sums }
    }
}

/// Rounds to integers of 16 bits; gives their scale, and the sum of the numbers. In lanes, which the compiler turns
/// into vector code.
#[inline(always)]
fn quantize(x: &[f32; PART], q: &mut [i16; PART]) -> (f32, f32) {
    let (mut most, mut sums) = ([0f32; LANES], [0f32; LANES]);
    for eight in x.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            most[lane] = most[lane].max(eight[lane].abs());
            sums[lane] += eight[lane];
        }
    }
    let most = most.into_iter().fold(0f32, f32::max);
    let by = if most > 0.0 { f32::from(i16::MAX) / most } else { 0.0 };
    for (q, x) in q.iter_mut().zip(x) {
        // What is no number becomes 0 here, and its scale says so.
        *q = (x * by).round_ties_even() as i32 as i16;
    }
    let sum: f32 = sums.into_iter().sum();
    // `max` leaves out what is not a number; it must reach the result all the same.
    (if sum.is_finite() { most / f32::from(i16::MAX) } else { f32::NAN }, sum)
}

/// The dot product of a row with a token.
#[inline(always)]
fn dot<F: Format>(weights: &[F], x: &Token) -> f32 {
    let mut total = Total { lanes: [Floats::zero(); CHAINS], offsets: [0.0; CHAINS] };
    // Blocks that take every chain as often as the others. All run side by side in pieces of a known size, so that no
    // place in them needs a check.
    let step = const { CHAINS.div_ceil(F::PARTS) };
    let parts = const { CHAINS.div_ceil(F::PARTS) * F::PARTS };
    let (weights, q) = (weights.chunks_exact(step), x.q.chunks_exact(parts));
    let (scales, sums) = (x.scales.chunks_exact(parts), x.sums.chunks_exact(parts));
    let rest = (weights.remainder(), q.remainder(), scales.remainder(), sums.remainder());
    for (((weights, q), scales), sums) in weights.zip(q).zip(scales).zip(sums) {
        total.add(weights, q, scales, sums);
    }
    total.add(rest.0, rest.1, rest.2, rest.3);
    total.sum()
}

/// A dot product as it is added up.
struct Total {
    lanes: [Floats; CHAINS],
    offsets: [f32; CHAINS],
}

impl Total {
    /// The products of some blocks with the same parts of the activations.
    #[inline(always)]
    fn add<F: Format>(&mut self, weights: &[F], q: &[[i16; PART]], by: &[f32], sums: &[f32]) {
        for (b, block) in weights.iter().enumerate() {
            let first = b * F::PARTS;
            // The small blocks are shorter than what memory gives at once.
            if F::PARTS > 1 || b % 2 == 0 {
                prefetch(block);
            }
            let (scales, offset) = block.scales();
            block.each(|i, w| {
                let chain = (first + i) % CHAINS;
                let products = Ints::zero().plus(w, Words::load(&q[first + i])).floats();
                self.lanes[chain] = self.lanes[chain].plus(products, Floats::all(&(scales[i] * by[first + i])));
            });
            let sums = &sums[first..first + F::PARTS];
            if F::OFFSETS && F::PARTS == MOST_PARTS {
                let (offset, sums) = (Floats::load(&offset), Floats::load(&sums.as_chunks().0[0]));
                self.lanes[b % CHAINS] = self.lanes[b % CHAINS].plus(offset, sums);
            } else if F::OFFSETS {
                for i in 0..F::PARTS {
                    let chain = (first + i) % CHAINS;
                    self.offsets[chain] = offset[i].mul_add(sums[i], self.offsets[chain]);
                }
            }
        }
    }

    fn sum(self) -> f32 {
        let [a, b, c, d] = self.lanes;
        a.and(b).and(c.and(d)).sum() + self.offsets.iter().sum::<f32>()
    }
}

/// The `blocks` of up to eight rows as numbers, one column of the matrix after another, `height` apart.
#[inline(always)]
fn unpack<F: Format>(weights: &[F], row: usize, blocks: &Range<usize>, to: &mut [f32], height: usize) {
    let mut wide = [[[0f32; LANES]; MOST_PARTS * PART / LANES]; LANES];
    let eights = F::PARTS * PART / LANES;
    for (b, block) in blocks.clone().enumerate() {
        for (wide, weights) in wide.iter_mut().zip(weights.chunks_exact(row)) {
            let (scales, offsets) = weights[block].scales();
            weights[block].each(|i, q| {
                for (q, to) in q.floats().into_iter().zip(&mut wide[i * PART / LANES..]) {
                    Floats::all(&offsets[i]).plus(q, Floats::all(&scales[i])).store(to);
                }
            });
        }
        for c in 0..eights {
            let columns = Floats::transposed(std::array::from_fn(|r| Floats::load(&wide[r][c])));
            for (i, column) in columns.into_iter().enumerate() {
                let at = ((b * eights + c) * LANES + i) * height;
                if let Some(to) = to[at..].first_chunk_mut() {
                    column.store(to);
                }
            }
        }
    }
}
