//! What must stay in the cache: the system prompt, what the template needs, and what the person chose.

use std::ops::Range;

use crate::cache::Cache;
use crate::error::Result;
use crate::protocol::{Message, Role, Span, SpanKind};

/// What is pinned without being asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnPins {
    /// The system prompt and what the template puts before the first message of the person.
    pub(super) opening: Vec<Range<u32>>,
    /// What the template puts between messages, the newest last: kept while there is room.
    pub(super) between: Vec<Range<u32>>,
}

pub(super) fn own_pins(spans: &[Span], messages: &[Message]) -> OwnPins {
    let is_system =
        |span: &Span| span.message.is_none_or(|i| messages.get(i as usize).is_some_and(|m| m.role == Role::System));
    let opening = spans.iter().take_while(|span| is_system(span)).last().map_or(0, |span| span.end);
    let between = spans.iter().filter(|span| span.start >= opening && span.kind == SpanKind::Template);
    OwnPins {
        opening: if opening == 0 { Vec::new() } else { vec![Range { start: 0, end: opening }] },
        between: between.map(|span| span.start..span.end).collect(),
    }
}

/// Adds a range to the pins, or cuts it out of them.
pub(super) fn repin(pins: &mut Vec<Range<u32>>, range: Range<u32>, pinned: bool) {
    if pinned {
        pins.push(range);
    } else {
        let outside = |pin: &Range<u32>| [pin.start..pin.end.min(range.start), pin.start.max(range.end)..pin.end];
        *pins = pins.iter().flat_map(outside).filter(|pin| !pin.is_empty()).collect();
    }
}

pub(super) fn set_pins(cache: &mut Cache, own: &OwnPins, user: &[Range<u32>]) -> Result<()> {
    cache.set_pins(own.opening.iter().chain(user).cloned().collect(), own.between.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpinning_the_middle_leaves_both_ends() {
        let mut pins = vec![10..30, 50..60];
        repin(&mut pins, 15..20, false);
        repin(&mut pins, 50..70, false);
        repin(&mut pins, 80..90, true);
        assert_eq!(pins, [10..15, 20..30, 80..90]);
    }
}
