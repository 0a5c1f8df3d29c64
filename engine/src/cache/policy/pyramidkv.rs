use super::snapkv::WINDOW;
use super::{Entries, Observes, Policy, Protection, SnapKv};

/// How much less the highest layer gets: β of arXiv 2406.02069, section 4.2.
const BETA: f64 = 20.0;

/// [`SnapKv`] with more room in the lower layers, where attention is spread wider: arXiv 2406.02069. What is
/// generated follows [`super::H2o`] within each layer's own budget.
pub struct PyramidKv;

impl Policy for PyramidKv {
    fn protection(&self, budget: u32, sinks: u32, recent: Option<u32>) -> Protection {
        SnapKv.protection(budget, sinks, recent)
    }

    fn observes(&self) -> Observes {
        SnapKv.observes()
    }

    fn layer_budget(&self, budget: u32, layer: usize, layers: usize) -> u32 {
        layer_budget(budget, layer, layers)
    }

    fn ranks(&self, entries: &Entries) -> Vec<f32> {
        SnapKv.ranks(entries)
    }
}

/// From `max = 2(B − W) − min` in the lowest layer down to `min = (B − W)/β` in the highest, W more for the
/// window in each (section 4.2): B on average.
fn layer_budget(budget: u32, layer: usize, layers: usize) -> u32 {
    let room = f64::from(budget.saturating_sub(WINDOW));
    if layers < 2 || room == 0.0 {
        return budget;
    }
    let least = room / BETA;
    let most = 2.0 * room - least;
    let share = layer as f64 / (layers - 1) as f64;
    budget.min(WINDOW) + (most + (least - most) * share).round() as u32
}
