//! Checks of a composite layout that Lustre's tool makes before it asks the MDT, with Lustre's
//! messages. A refused call leaves nothing behind.

use sheen_layout::{MIRRORS_MAX, Template, TemplateComponent};

use super::super::getstripe::flag;

/// Checks a layout. The error is the message for the user.
pub fn check(template: &Template) -> Result<(), &'static str> {
    if template.mirrors > MIRRORS_MAX {
        return Err("A file has at most 16 mirrors; ask for fewer with -N");
    }
    check_beside(template, 0)
}

/// Checks mirrors that are added to a file with `there` mirrors, except for their number.
pub fn check_beside(template: &Template, there: u16) -> Result<(), &'static str> {
    let mirrored = template.mirrors > 1 || there > 0;
    check_chain(template, 0, mirrored)?;
    // DoM data is stored on the MDT under the file's FID, so only one mirror can have it.
    if template.on_mdt() > 1 && mirrored {
        return Err("Only one mirror of a file can begin on the MDT");
    }
    Ok(())
}

/// Checks components that are added to a file whose last one ends at `end`.
pub fn check_added(added: &Template, end: u64) -> Result<(), &'static str> {
    check_chain(added, end, added.mirrors > 1)
}

fn check_chain(template: &Template, first: u64, mirrored: bool) -> Result<(), &'static str> {
    let allowed = if mirrored { flag::ASKABLE } else { flag::EXTENSION | flag::PREFER };
    // The components of one mirror follow those of another. Each mirror begins at 0.
    let mut previous: Option<&TemplateComponent> = None;
    for (i, c) in template.components.iter().enumerate() {
        let next = template.components.get(i + 1).filter(|next| next.start != 0);
        if first == 0 && c.start == 0 && previous.is_some_and(|p| p.end != 0) {
            complete(mirrored, previous)?;
            previous = None;
        }
        if c.flags & !allowed != 0 {
            return Err("Wrong flags");
        }
        check_kind(c, previous, next)?;
        check_extent(c, previous, next, previous.map_or(first, |p| p.end))?;
        previous = Some(c);
    }
    complete(mirrored, previous)
}

fn complete(mirrored: bool, last: Option<&TemplateComponent>) -> Result<(), &'static str> {
    if mirrored && last.is_some_and(|c| c.end != u64::MAX) {
        return Err("Incomplete mirror - must go to EOF");
    }
    Ok(())
}

fn check_kind(
    c: &TemplateComponent,
    previous: Option<&TemplateComponent>,
    next: Option<&TemplateComponent>,
) -> Result<(), &'static str> {
    let extended = next.is_some_and(TemplateComponent::is_extension);
    if c.is_extension() && extended {
        return Err("No adjacent extension space components");
    }
    if c.is_extension() && previous.is_none() && c.start == 0 {
        return Err("Cannot apply extension flag to init components");
    }
    if c.is_on_mdt() {
        if c.is_extension() {
            return Err("DoM components can't be extension space");
        }
        if extended {
            return Err("DoM components cannot be followed by extension space");
        }
        if previous.is_some() || c.start != 0 {
            return Err("DoM component should be the first one in a file/mirror");
        }
    }
    Ok(())
}

fn check_extent(
    c: &TemplateComponent,
    previous: Option<&TemplateComponent>,
    next: Option<&TemplateComponent>,
    expected: u64,
) -> Result<(), &'static str> {
    if c.start > c.end {
        return Err("Component start is > end");
    }
    if previous.is_some_and(|p| c.end < p.end) {
        return Err("Component end is before end of previous component");
    }
    if c.start == c.end && !next.is_some_and(TemplateComponent::is_extension) {
        return Err("Zero length components must be followed by extension");
    }
    // An extension's range will belong to the component before it.
    let striped = if c.is_extension() { previous } else { Some(c) };
    let size = striped.and_then(|c| c.spec.stripe_size).map_or(1, u64::from).max(1);
    if c.end != u64::MAX && c.end != c.start && !c.end.is_multiple_of(size) {
        return Err("The component end must be aligned by the stripe size");
    }
    if c.extension_size.is_some_and(|bytes| !bytes.is_multiple_of(size)) {
        return Err("The extension size must be aligned by the stripe size");
    }
    if c.start != expected {
        return Err("Components not adjacent (end != next->start");
    }
    Ok(())
}
