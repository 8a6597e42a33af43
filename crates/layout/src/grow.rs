//! Self-extending components: who writes into an extension gets space from it first.
//!
//! Lustre's policy, in this order:
//!
//! 1. **Extend**: the component before the extension takes as many times the extension size as the
//!    write needs, if its OSTs have room for that.
//! 2. **Spill over**: else the component behind the extension takes all that is left of it.
//! 3. **Repeat**: else, as there is none, the component is repeated on other OSTs, if those have
//!    room.
//! 4. **Smaller steps**: else 1 and 3 are tried with half the extension size, a quarter, and so on
//!    down to [`STEP_BYTES_MIN`], so that no OST is left with room behind. (Lustre does not: it
//!    comes to 5.)
//! 5. Else it is extended all the same: nobody has room, and a hole needs none.
//!
//! A component that is empty when it is passed over disappears, and so does an extension that is
//! used up.

use crate::{Component, Layout, LayoutError, flags, instantiate::NO_OST};

/// Bytes of the smallest step. Each may make another component and costs a request; an OST with
/// less free than this counts as full anyway.
pub const STEP_BYTES_MIN: u64 = 1 << 20;
/// Components of a layout that is still repeated for smaller steps: where the space of nearly full
/// OSTs comes and goes, a growing file could else come to the end of its layout (ERANGE).
const SMALL_STEPS_COMPONENTS_MAX: usize = 128;

/// What happens to the last component.
enum Step {
    /// It grows up to there.
    Extend(u64),
    /// It is repeated.
    Repeat,
}

impl Layout {
    /// The layout of the next generation in which no extension lies in `[offset, offset + len)`.
    /// `None`: it is this one.
    ///
    /// `has_room` says whether the OSTs of a component have room for so many more bytes; of one
    /// without objects, whether the OSTs that it could be placed on have.
    ///
    /// # Errors
    /// EINVAL: an extension follows nothing. ERANGE: the layout would be too large.
    pub fn grow(
        &self,
        offset: u64,
        len: u64,
        has_room: impl Fn(&Component, u64) -> bool,
    ) -> Result<Option<Layout>, LayoutError> {
        let end = offset.saturating_add(len);
        let written = |c: &Component| c.is_extension() && !c.is_outside(offset, end);
        let Some(composite) = self.composite().filter(|_| self.components().iter().any(written)) else {
            return Ok(None);
        };
        let mut composite = composite.clone();
        let mut components = self.components().to_vec();
        // Each round an extension goes, or ends to be written, or gets another component in front
        // of it that has room.
        while let Some(at) = components.iter().position(written) {
            let Some((grower, extension)) = at.checked_sub(1).map(|i| (&components[i], &components[at])) else {
                return Err(LayoutError::Malformed("an extension follows no component that could grow"));
            };
            let to = extended(extension, end, extension.extension_size().unwrap_or(0));
            if has_room(grower, to - extension.start) {
                extend(&mut components, at, to);
            } else if components.get(at + 1).is_some_and(|next| next.start > 0) {
                spill(&mut components, at);
            } else {
                let again = repeated(grower, extension);
                let step = last_step(grower, extension, &again, end, components.len(), &has_room);
                match step.unwrap_or(Step::Extend(to)) {
                    Step::Repeat => {
                        let id = composite.next_id(u32::from(again.mirror_id()), &components)?;
                        components.insert(at, Component { id, ..again });
                    }
                    Step::Extend(to) => extend(&mut components, at, to),
                }
            }
        }
        composite.raise();
        Layout::assemble(Some(composite), components).checked().map(Some)
    }
}

/// Up to where the component before an extension takes from it in steps of `size` bytes, so that it
/// reaches `end`.
fn extended(extension: &Component, end: u64, size: u64) -> u64 {
    let size = size.max(1);
    let times = (end.min(extension.end) - extension.start).div_ceil(size);
    extension.start.saturating_add(times.saturating_mul(size)).min(extension.end)
}

/// What the last component of a file comes to that has no room for a whole extension: the largest
/// step that somebody has room for.
fn last_step(
    grower: &Component,
    extension: &Component,
    again: &Component,
    end: u64,
    components: usize,
    has_room: impl Fn(&Component, u64) -> bool,
) -> Option<Step> {
    let whole = extension.extension_size().unwrap_or(0);
    let stripe_size = u64::from(grower.stripe_size).max(1);
    // Components end at a multiple of their stripe size.
    let smaller =
        |size: &u64| Some(size / 2).filter(|half| *half >= STEP_BYTES_MIN && half.is_multiple_of(stripe_size));
    std::iter::successors(Some(whole), smaller).find_map(|size| {
        let to = extended(extension, end, size);
        let may_repeat = grower.is_instantiated() && (size == whole || components < SMALL_STEPS_COMPONENTS_MAX);
        if has_room(grower, to - extension.start) {
            Some(Step::Extend(to))
        } else if may_repeat && has_room(again, to - extension.start) {
            Some(Step::Repeat)
        } else {
            None
        }
    })
}

fn extend(components: &mut Vec<Component>, at: usize, to: u64) {
    components[at - 1].end = to;
    components[at].start = to;
    if components[at].end == to {
        components.remove(at);
    }
}

/// What is behind the extension begins where the extension does.
fn spill(components: &mut Vec<Component>, at: usize) {
    let start = components[at].start;
    let next = &mut components[at + 1];
    let is_empty = next.start == next.end;
    next.start = start;
    if is_empty {
        // It takes from its own extension.
        next.end = start;
        if let Some(behind) = components.get_mut(at + 2) {
            behind.start = start;
        }
    }
    components.remove(at);
    let before = &components[at - 1];
    if before.start == before.end {
        components.remove(at - 1);
    }
}

/// Another component like the one that cannot grow: without objects, empty as yet, between it and
/// the extension. That remembers how many stripes were asked for.
fn repeated(grower: &Component, extension: &Component) -> Component {
    Component {
        flags: grower.flags & !(flags::INIT | flags::STALE),
        start: extension.start,
        end: extension.start,
        pattern: extension.pattern,
        stripe_count: extension.stripe_count,
        layout_gen: NO_OST,
        stripes: Vec::new(),
        ..grower.clone()
    }
}

#[cfg(test)]
mod tests;
