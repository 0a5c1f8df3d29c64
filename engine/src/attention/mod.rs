//! Attention over slots that also yields what the policies need: for every entry, the sum over the queries
//! of the softmax, averaged over the query heads that share the KV head ("column sums").
//!
//! [`cpu`] reads the entries as they lie; [`ops`] says the same in candle's operations, for every other
//! device, and is what the CPU kernel is tested against.

pub mod cpu;
pub mod ops;
pub mod probe;

pub use cpu::Slices;
