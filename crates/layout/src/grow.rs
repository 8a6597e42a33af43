//! Self-extending components: a write into an extension first takes space from it.
//!
//! Lustre's policy, in this order:
//!
//! 1. **Extend**: if the OSTs of the component before the extension have room, the component grows
//!    by as many extension sizes as the write needs.
//! 2. **Spill over**: otherwise, if a component follows the extension, it takes the whole rest of
//!    the extension.
//! 3. **Repeat**: otherwise, if other OSTs have room, a copy of the component without objects is
//!    inserted, to be placed on them.
//! 4. **Smaller steps**: otherwise 1 and 3 are tried with half the extension size, a quarter, and
//!    so on down to [`STEP_BYTES_MIN`], so that no OST is left with unused room. (Lustre skips this
//!    step.)
//! 5. Otherwise the component is extended all the same: no OST has room, but a hole needs none.
//!
//! An empty component that is passed over is removed, and so is an extension that is
//! used up.

use crate::{Component, Layout, LayoutError, component::ANY_OST, flags};

/// Smallest step in bytes. Each step may add a component and costs a request. An OST with
/// less free space than this counts as full anyway.
pub const STEP_BYTES_MIN: u64 = 1 << 20;
/// Maximum number of components of a layout in which a smaller step may still repeat a component.
/// If OSTs are nearly full and their free space comes and goes, a growing file would otherwise
/// reach the size limit of a layout (ERANGE).
const SMALL_STEPS_COMPONENTS_MAX: usize = 128;

/// Change of the last component.
enum Step {
    /// Extend it to this end.
    Extend(u64),
    /// Repeat it.
    Repeat,
}

impl Layout {
    /// Returns the layout of the next generation in which no extension overlaps
    /// `[offset, offset + len)`. `None` if this layout needs no change.
    ///
    /// `has_room` tells whether the OSTs of a component have room for a number of additional bytes.
    /// For a component without objects it tells this of the OSTs on which it could be placed.
    ///
    /// # Errors
    /// EINVAL if an extension follows no component. ERANGE if the layout would be too large.
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
        // Each round removes an extension, moves it out of the written range, or inserts a
        // component with room in front of it.
        while let Some(at) = components.iter().position(written) {
            let Some((grower, extension)) = at.checked_sub(1).map(|i| (&components[i], &components[at])) else {
                return Err(LayoutError::Malformed("an extension does not follow a component that can grow"));
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

/// Returns the new end of the component before an extension, if it grows in steps of `size` bytes
/// until it reaches `end`.
fn extended(extension: &Component, end: u64, size: u64) -> u64 {
    let size = size.max(1);
    let times = (end.min(extension.end) - extension.start).div_ceil(size);
    extension.start.saturating_add(times.saturating_mul(size)).min(extension.end)
}

/// Chooses the step for the last component of a file, whose OSTs have no room for a whole
/// extension. Returns the largest step for which any OST has room.
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
    // The end of a component must be a multiple of its stripe size.
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

/// Removes the extension at `at`. The component behind it takes over its space.
fn spill(components: &mut Vec<Component>, at: usize) {
    let start = components[at].start;
    let next = &mut components[at + 1];
    let is_empty = next.start == next.end;
    next.start = start;
    if is_empty {
        // The next component takes its first bytes from its own extension.
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

/// Returns a copy of the component that cannot grow: without objects, empty, to be inserted before
/// the extension. The stripe count comes from the extension, which stores the requested one.
fn repeated(grower: &Component, extension: &Component) -> Component {
    Component {
        flags: grower.flags & !(flags::INIT | flags::STALE),
        start: extension.start,
        end: extension.start,
        pattern: extension.pattern,
        stripe_count: extension.stripe_count,
        layout_gen: ANY_OST,
        stripes: Vec::new(),
        ..grower.clone()
    }
}

#[cfg(test)]
mod tests;
