//! Activations times packed weights, without ever unpacking a whole matrix. Results are added to what is there: a bias,
//! what a layer adds to, or zeros.

use std::ops::Range;

use rayon::prelude::*;

use super::packed::{LANES, Packed, Token};
use crate::math::{Shared, silu};

/// Up to here, tokens are so few that dot products beat a GEMM, which unpacks the weights first.
const FEW_TOKENS: usize = 6;

/// Rows of one task: for a few tokens, and for many.
const FEW_ROWS: usize = 64;
const MANY_ROWS: usize = 96;

/// Rows of one of several matrices.
struct Task {
    matrix: usize,
    rows: Range<usize>,
}

/// Pieces of about the same size, of at most `most` rows, as many for each thread.
fn tasks(matrices: &[&dyn Packed], most: usize) -> Vec<Task> {
    let pieces = |(matrix, packed): (usize, &&dyn Packed)| {
        let n_out = packed.n_out();
        let pieces = n_out.div_ceil(most).next_multiple_of(rayon::current_num_threads());
        let size = n_out.div_ceil(pieces).next_multiple_of(LANES);
        (0..n_out).step_by(size).map(move |start| Task { matrix, rows: start..n_out.min(start + size) })
    };
    matrices.iter().enumerate().flat_map(pieces).collect()
}

/// Activations as what takes them.
enum Input<'a> {
    Few(Vec<Token>),
    Many(&'a [f32]),
}

impl<'a> Input<'a> {
    fn new(x: &'a [f32], n_in: usize) -> Self {
        match x.len() / n_in <= FEW_TOKENS {
            true => Self::Few(x.chunks_exact(n_in).map(Token::new).collect()),
            false => Self::Many(x),
        }
    }

    fn most_rows(&self) -> usize {
        match self {
            Self::Few(_) => FEW_ROWS,
            Self::Many(_) => MANY_ROWS,
        }
    }

    /// Adds the products with some rows to `y[n, rows]`, whose rows lie `stride` apart.
    ///
    /// # Safety
    /// `y` must be valid for that, and written by nobody else.
    unsafe fn times(&self, matrix: &dyn Packed, rows: Range<usize>, tile: &mut Vec<f32>, y: *mut f32, stride: usize) {
        match self {
            Self::Few(tokens) => {
                for (i, token) in tokens.iter().enumerate() {
                    // SAFETY: a row of y, of which the caller says so.
                    let y = unsafe { std::slice::from_raw_parts_mut(y.add(i * stride), rows.len()) };
                    matrix.dots(rows.start, token, y);
                }
            }
            // SAFETY: as the caller promises.
            Self::Many(x) => unsafe { matrix.products(rows, x, tile, y, stride) },
        }
    }
}

/// Adds `x[n, n_in] Wᵀ` to `y[n, n_out]` for each of the matrices.
pub fn add_products(matrices: &[&dyn Packed], x: &[f32], n_in: usize, y: &mut [Vec<f32>]) {
    let input = Input::new(x, n_in);
    for (matrix, y) in matrices.iter().zip(&*y) {
        assert_eq!(y.len(), x.len() / n_in * matrix.n_out(), "there is a row for each token");
    }
    let out: Vec<Shared> = y.iter_mut().map(|y| Shared(y.as_mut_ptr())).collect();
    let out = &out;
    tasks(matrices, input.most_rows()).into_par_iter().for_each_init(Vec::new, |tile, Task { matrix, rows }| {
        let stride = matrices[matrix].n_out();
        // SAFETY: y is as large as that, and this task alone writes the columns of these rows.
        unsafe {
            let y = out[matrix].0.add(rows.start);
            input.times(matrices[matrix], rows, tile, y, stride);
        }
    });
}

/// `silu(x Gᵀ) · (x Uᵀ)` for `x[n, n_in]`, and two matrices of the same size: `[n, n_out]`.
pub fn gated(gate: &dyn Packed, up: &dyn Packed, x: &[f32], n_in: usize) -> Vec<f32> {
    let (input, n, n_out) = (Input::new(x, n_in), x.len() / n_in, gate.n_out());
    assert_eq!(n_out, up.n_out(), "every gate has something to let through");
    let mut y = vec![0f32; n * n_out];
    let out = &Shared(y.as_mut_ptr());
    let work = || (Vec::new(), Vec::new());
    tasks(&[gate], input.most_rows()).into_par_iter().for_each_init(work, |(tile, both), Task { rows, .. }| {
        let (start, width) = (rows.start, rows.len());
        both.clear();
        both.resize(2 * n * width, 0f32);
        let (gates, ups) = both.split_at_mut(n * width);
        // SAFETY: each is n × width, and this task's own.
        unsafe {
            input.times(gate, rows.clone(), tile, gates.as_mut_ptr(), width);
            input.times(up, rows, tile, ups.as_mut_ptr(), width);
        }
        for (i, (gates, ups)) in gates.chunks_exact(width).zip(ups.chunks_exact(width)).enumerate() {
            // SAFETY: y is n × n_out, and this task alone writes the columns of these rows.
            let y = unsafe { std::slice::from_raw_parts_mut(out.0.add(i * n_out + start), width) };
            for (y, (&gate, &up)) in y.iter_mut().zip(gates.iter().zip(ups)) {
                *y = silu(gate) * up;
            }
        }
    });
    y
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};

    use super::super::formats::PART;
    use super::super::packed::packed;
    use super::*;

    /// Numbers from -1 to 1 that are the same every time.
    fn numbers(n: usize, mut state: u64) -> Vec<f32> {
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        std::iter::repeat_with(next).take(n).collect()
    }

    fn weights(dtype: GgmlDType, n_in: usize, n_out: usize, seed: u64) -> (QTensor, Vec<f32>) {
        let plain = Tensor::from_vec(numbers(n_out * n_in, seed), (n_out, n_in), &Device::Cpu).unwrap();
        let weights = QTensor::quantize(&plain, dtype).unwrap();
        let plain = weights.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        (weights, plain)
    }

    #[test]
    fn products_equal_those_with_the_dequantized_matrix() {
        for (dtype, offsets, n_in) in [
            (GgmlDType::Q4_0, false, 96),
            (GgmlDType::Q4_1, true, 576),
            (GgmlDType::Q5_0, false, 96),
            (GgmlDType::Q5_1, true, 96),
            (GgmlDType::Q8_0, false, 1_120),
            (GgmlDType::Q4K, true, 512),
            (GgmlDType::Q5K, true, 256),
            (GgmlDType::Q6K, false, 1_280),
        ] {
            for (n, n_out) in [(1, 3), (1, 131), (2, 131), (3, 70), (7, 99), (24, 64), (65, 201)] {
                let (weights, plain) = weights(dtype, n_in, n_out, 5);
                let data = weights.data().unwrap();
                let mut x = numbers(n * n_in, 77);
                // An outlier must not cost the others their precision.
                x[7] = 300.0;
                let before = numbers(n * n_out, 99);
                let mut y = [before.clone()];
                add_products(&[&*packed(dtype, &data, n_in, n_out).unwrap()], &x, n_in, &mut y);
                for (at, got) in y[0].iter().enumerate() {
                    let (x, w) = (&x[at / n_out * n_in..][..n_in], &plain[at % n_out * n_in..][..n_in]);
                    let products = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
                    let (sum, sizes) = products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                    let want = f64::from(before[at]) + sum;
                    // For a few tokens, rounding of activations to a step of their part is all that may be lost: six
                    // standard deviations of it.
                    let lost = |(x, w): (&[f32], &[f32])| {
                        let largest = x.iter().fold(0f64, |most, x| most.max(f64::from(x.abs())));
                        let step = largest / f64::from(i16::MAX);
                        // What is added apart, as an offset, takes the activations as they are.
                        let apart = if offsets { w.iter().copied().fold(0.0, f32::min) } else { 0.0 };
                        step * step / 12.0 * w.iter().map(|w| f64::from(w - apart).powi(2)).sum::<f64>()
                    };
                    let variance: f64 = match n <= FEW_TOKENS {
                        true => x.chunks(PART).zip(w.chunks(PART)).map(lost).sum(),
                        false => 0.0,
                    };
                    // Sums of f32 lose as a random walk does.
                    let sums = f64::from(f32::EPSILON) * (n_in as f64).sqrt();
                    let (off, most) = ((f64::from(*got) - want).abs(), 6.0 * variance.sqrt() + sums * sizes);
                    assert!(off <= most, "{dtype:?} {n}×{n_out}: {got} is {off:e} from {want}, over {most:e}");
                }
            }
        }
    }

    #[test]
    fn several_matrices_and_a_gate_give_what_each_alone_gives() {
        let n_in = 256;
        let kinds = [(GgmlDType::Q4K, 200), (GgmlDType::Q6K, 24), (GgmlDType::Q5_0, 200)];
        let weights = kinds.map(|(dtype, n_out)| weights(dtype, n_in, n_out, n_out as u64 + dtype as u64).0);
        let data = weights.each_ref().map(|weights| weights.data().unwrap());
        let matrices: Vec<_> =
            kinds.iter().zip(&data).map(|(&(dtype, n_out), data)| packed(dtype, data, n_in, n_out).unwrap()).collect();
        let matrices: Vec<&dyn Packed> = matrices.iter().map(|matrix| &**matrix).collect();
        for n in [1, 2, 33] {
            let x = numbers(n * n_in, 3);
            let zeros = || matrices.iter().map(|matrix| vec![0f32; n * matrix.n_out()]);
            let mut together: Vec<_> = zeros().collect();
            add_products(&matrices, &x, n_in, &mut together);
            let alone = matrices.iter().zip(zeros()).map(|(&matrix, y)| {
                let mut y = [y];
                add_products(&[matrix], &x, n_in, &mut y);
                let [y] = y;
                y
            });
            assert_eq!(together, alone.collect::<Vec<_>>());
            let gated = gated(matrices[0], matrices[2], &x, n_in);
            for (got, (&gate, &up)) in gated.iter().zip(together[0].iter().zip(&together[2])) {
                let want = gate / (1.0 + (-gate).exp()) * up;
                assert!((got - want).abs() <= 1e-5 * want.abs().max(1e-3), "{got} is not {want}");
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let (weights, _) = weights(GgmlDType::Q8_0, 32, 4, 1);
        let data = weights.data().unwrap();
        let matrix = packed(GgmlDType::Q8_0, &data, 32, 4).unwrap();
        for (bad, n) in [(f32::NAN, 1), (f32::INFINITY, 1), (f32::NAN, 9), (f32::INFINITY, 9)] {
            let mut x = vec![0.5; 32 * n];
            x[3] = bad;
            let mut y = [vec![0.0; 4 * n]];
            add_products(&[&*matrix], &x, 32, &mut y);
            assert!(y[0][..4].iter().all(|y| !y.is_finite()));
            assert!(y[0][4..].iter().all(|y| y.is_finite()));
        }
    }
}
