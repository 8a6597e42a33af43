//! Checks that the components of a layout fit together, and that a file system has the OSTs and
//! pools that they name.
//!
//! The components of a mirror follow each other from byte 0 without gaps. A component that starts
//! at byte 0 again begins another mirror.

use sheen_layout::STRIPE_SIZE_UNIT;
use sheen_wire::mgs::Pool;

use crate::layout::{Component, DEFAULT, EOF, Layout, MDT, OST_UNSET, flag};

/// A defect of a layout. The numbers are those that `llapi_layout_sanity` returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Wrong {
    /// A mirror ends before the end of all files.
    IncompleteMirror = 1,
    /// Extension space after extension space.
    AdjacentExtension,
    /// Extension space with objects.
    InitExtension,
    /// An unknown flag.
    Flags,
    /// Extension space on the MDT.
    DomExtension,
    /// Extension space after a component on the MDT.
    DomBeforeExtension,
    /// A component on the MDT that is not the first of its mirror.
    DomFirst,
    /// Extension space without a component before it.
    NothingToExtend,
    /// An empty component that no extension space follows.
    Empty,
    /// A component that does not begin where the one before it ends.
    NotAdjacent,
    /// A component that ends before it begins.
    Backwards,
    /// An end that is not a multiple of 64 KiB.
    AlignEnd,
    /// An end that is not a multiple of the stripe size.
    AlignStripe,
    /// An extension size that is missing or not a multiple of 64 KiB.
    AlignExtension,
    /// A list of OSTs with gaps.
    UnknownOst,
    /// A pool that the file system does not have.
    NoSuchPool,
    /// An OST that the file system, or the pool, does not have.
    NoSuchOst,
}

impl Wrong {
    const ALL: [(Wrong, &str); 17] = [
        (Wrong::IncompleteMirror, "a mirror must reach to the end of file"),
        (Wrong::AdjacentExtension, "extension space cannot follow extension space"),
        (Wrong::InitExtension, "extension space cannot have objects"),
        (Wrong::Flags, "unknown component flags"),
        (Wrong::DomExtension, "extension space cannot be on an MDT"),
        (Wrong::DomBeforeExtension, "extension space cannot follow a component on an MDT"),
        (Wrong::DomFirst, "only the first component of a file or mirror can be on an MDT"),
        (Wrong::NothingToExtend, "extension space needs a component before it"),
        (Wrong::Empty, "only a component that is followed by extension space can be empty"),
        (Wrong::NotAdjacent, "a component must begin where the one before it ends"),
        (Wrong::Backwards, "a component must end after it begins"),
        (Wrong::AlignEnd, "a component's end must be a multiple of 64 KiB"),
        (Wrong::AlignStripe, "a component's end must be a multiple of its stripe size"),
        (Wrong::AlignExtension, "an extension size must be a multiple of 64 KiB"),
        (Wrong::UnknownOst, "an OST must be given for each stripe"),
        (Wrong::NoSuchPool, "the file system has no such pool"),
        (Wrong::NoSuchOst, "the file system, or the pool, has no such OST"),
    ];

    /// Returns a description for users. `None`: the number is unknown.
    pub fn text_of(number: i32) -> Option<&'static str> {
        Wrong::ALL.iter().find(|(wrong, _)| *wrong as i32 == number).map(|(_, text)| *text)
    }
}

/// Finds the first defect. `incomplete`: the end may be missing, because the components are to be
/// added to a file. `mirrors`: each mirror must reach to the end.
pub fn check(layout: &Layout, incomplete: bool, mirrors: bool) -> Result<(), Wrong> {
    if !layout.composite {
        return alone(layout.current());
    }
    let mut before: Option<&Component> = None;
    let components = layout.components();
    for (i, c) in components.iter().enumerate() {
        let first = i == 0 || c.start == 0 && before.is_some_and(|before| before.end != 0);
        if first {
            ends(before, incomplete || !mirrors)?;
            before = None;
        }
        alone(c)?;
        if let Some(before) = before {
            after(before, c)?;
        } else if c.is_extension() {
            return Err(Wrong::NothingToExtend);
        } else if !incomplete && c.start != 0 {
            return Err(Wrong::NotAdjacent);
        }
        let extended = components.get(i + 1).is_some_and(|next| next.is_extension() && next.start == c.end);
        if c.start == c.end && !extended {
            return Err(Wrong::Empty);
        }
        before = Some(c);
    }
    ends(before, incomplete || !mirrors)
}

/// Checks that each OST and pool that a layout names exists. Finds the first that does not.
pub fn check_names(layout: &Layout, osts: &[u32], pools: &[Pool]) -> Result<(), Wrong> {
    for c in layout.components() {
        let members = match pools.iter().find(|pool| pool.name.as_bytes() == c.pool) {
            Some(pool) => &pool.osts,
            None if c.pool.is_empty() => osts,
            None => return Err(Wrong::NoSuchPool),
        };
        let named = c.osts.iter().filter(|ost| **ost != OST_UNSET).map(|ost| u64::from(*ost));
        let first = Some(c.start_ost).filter(|ost| *ost != DEFAULT);
        let has = |ost: u64| members.iter().any(|member| u64::from(*member) == ost);
        if !named.chain(first).all(has) {
            return Err(Wrong::NoSuchOst);
        }
    }
    Ok(())
}

fn ends(last: Option<&Component>, incomplete: bool) -> Result<(), Wrong> {
    if incomplete || last.is_none_or(|last| last.end == EOF) { Ok(()) } else { Err(Wrong::IncompleteMirror) }
}

fn alone(c: &Component) -> Result<(), Wrong> {
    let unit = u64::from(STRIPE_SIZE_UNIT);
    if c.flags & !flag::KNOWN != 0 {
        return Err(Wrong::Flags);
    }
    if c.start > c.end {
        return Err(Wrong::Backwards);
    }
    if c.is_extension() {
        if c.pattern == MDT {
            return Err(Wrong::DomExtension);
        }
        if c.flags & flag::INIT != 0 {
            return Err(Wrong::InitExtension);
        }
        if c.stripe_size == DEFAULT || !c.stripe_size.is_multiple_of(unit) {
            return Err(Wrong::AlignExtension);
        }
    }
    if c.end != EOF && !c.end.is_multiple_of(unit) {
        return Err(Wrong::AlignEnd);
    }
    let striped = !c.is_extension() && c.pattern != MDT && !matches!(c.stripe_size, DEFAULT | 0);
    if striped && c.end != EOF && !c.end.is_multiple_of(c.stripe_size) {
        return Err(Wrong::AlignStripe);
    }
    if c.specific && c.osts.contains(&OST_UNSET) {
        return Err(Wrong::UnknownOst);
    }
    Ok(())
}

fn after(before: &Component, c: &Component) -> Result<(), Wrong> {
    if c.start != before.end {
        return Err(Wrong::NotAdjacent);
    }
    if c.pattern == MDT {
        return Err(Wrong::DomFirst);
    }
    if c.is_extension() {
        if before.pattern == MDT {
            return Err(Wrong::DomBeforeExtension);
        }
        if before.is_extension() {
            return Err(Wrong::AdjacentExtension);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(start: u64, end: u64) -> Component {
        let end = if end == EOF { EOF } else { end << 20 };
        Component { start: start << 20, end, ..Component::default() }
    }

    fn space(start: u64, end: u64) -> Component {
        Component { flags: flag::EXTENSION, stripe_size: 64 << 20, ..c(start, end) }
    }

    fn judge(components: Vec<Component>) -> Result<(), Wrong> {
        check(&Layout::composite(components).unwrap(), false, true)
    }

    #[test]
    fn sanity_check_accepts_layouts_that_lustre_creates() {
        assert_eq!(check(&Layout::default(), false, true), Ok(()));
        assert_eq!(judge(vec![c(0, 1), c(1, 4096), c(4096, EOF)]), Ok(()));
        assert_eq!(judge(vec![Component { pattern: MDT, ..c(0, 1) }, c(1, EOF)]), Ok(()));
        // `-E 128M -z 64M -E -1 -z 128M`: the third has no bytes yet.
        assert_eq!(judge(vec![c(0, 64), space(64, 128), c(128, 128), space(128, EOF)]), Ok(()));
        assert_eq!(judge(vec![c(0, 1), c(1, EOF), c(0, EOF), c(0, 4), c(4, EOF)]), Ok(()), "three mirrors");
    }

    #[test]
    fn sanity_check_reports_each_defect() {
        let mdt = |start, end| Component { pattern: MDT, ..c(start, end) };
        for (components, wrong) in [
            (vec![c(0, 1)], Wrong::IncompleteMirror),
            (vec![c(0, 1), c(0, EOF)], Wrong::IncompleteMirror),
            (vec![c(0, 1), c(2, EOF)], Wrong::NotAdjacent),
            (vec![c(1, EOF)], Wrong::NotAdjacent),
            (vec![c(0, 2), c(2, 1)], Wrong::Backwards),
            (vec![c(0, 0), c(0, EOF)], Wrong::Empty),
            (vec![c(0, 1), mdt(1, EOF)], Wrong::DomFirst),
            (vec![mdt(0, 1), space(1, EOF)], Wrong::DomBeforeExtension),
            (vec![c(0, 1), space(1, 2), space(2, EOF)], Wrong::AdjacentExtension),
            (vec![space(0, EOF)], Wrong::NothingToExtend),
            (vec![c(0, 1), Component { pattern: MDT, ..space(1, EOF) }], Wrong::DomExtension),
            (vec![c(0, 1), Component { flags: flag::EXTENSION | flag::INIT, ..space(1, EOF) }], Wrong::InitExtension),
            (vec![c(0, 1), Component { stripe_size: DEFAULT, ..space(1, EOF) }], Wrong::AlignExtension),
            (vec![Component { end: 100, ..c(0, 1) }, c(1, EOF)], Wrong::AlignEnd),
            (vec![Component { stripe_size: 4 << 20, ..c(0, 1) }, c(1, EOF)], Wrong::AlignStripe),
            (vec![Component { flags: 0x800, ..c(0, EOF) }], Wrong::Flags),
            (vec![Component { specific: true, osts: vec![0, OST_UNSET], ..c(0, EOF) }], Wrong::UnknownOst),
        ] {
            assert_eq!(judge(components.clone()), Err(wrong), "{components:?}");
            assert!(Wrong::text_of(wrong as i32).is_some());
        }
        assert_eq!(Wrong::text_of(0), None);
        assert_eq!(check(&Layout::composite(vec![c(4, 8)]).unwrap(), true, false), Ok(()), "to be added to a file");
    }

    #[test]
    fn check_names_refuses_unknown_osts_and_pools() {
        let pools = [Pool { name: "fast".into(), osts: vec![2, 3] }];
        let judge = |c: Component| check_names(&Layout::plain(c), &[0, 1, 2, 3], &pools);
        let c = Component::default();
        let pool = |name: &[u8]| name.to_vec();
        assert_eq!(judge(c.clone()), Ok(()));
        assert_eq!(judge(Component { osts: vec![3, OST_UNSET, 0], ..c.clone() }), Ok(()));
        assert_eq!(judge(Component { osts: vec![3, 4], ..c.clone() }), Err(Wrong::NoSuchOst));
        assert_eq!(judge(Component { start_ost: 7, ..c.clone() }), Err(Wrong::NoSuchOst));
        assert_eq!(judge(Component { pool: pool(b"fast"), start_ost: 2, ..c.clone() }), Ok(()));
        assert_eq!(judge(Component { pool: pool(b"fast"), osts: vec![2, 1], ..c.clone() }), Err(Wrong::NoSuchOst));
        assert_eq!(judge(Component { pool: pool(b"slow"), ..c }), Err(Wrong::NoSuchPool));
    }
}
