//! Checks that the components of a layout fit together, and that a file system has the OSTs and
//! pools that they name.
//!
//! The components of a mirror follow each other from byte 0 without gaps. A component that starts
//! at byte 0 again begins another mirror.

use sheen_layout::{STRIPE_SIZE_UNIT, flags};
use sheen_wire::mgs::Pool;

use crate::layout::{Component, DEFAULT, EOF, Layout, MDT, OST_UNSET};

/// A defect of a layout. The numbers are those that `llapi_layout_sanity` returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum LayoutDefect {
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

impl LayoutDefect {
    const ALL: [(LayoutDefect, &str); 17] = [
        (LayoutDefect::IncompleteMirror, "a mirror must reach to the end of file"),
        (LayoutDefect::AdjacentExtension, "extension space cannot follow extension space"),
        (LayoutDefect::InitExtension, "extension space cannot have objects"),
        (LayoutDefect::Flags, "unknown component flags"),
        (LayoutDefect::DomExtension, "extension space cannot be on an MDT"),
        (LayoutDefect::DomBeforeExtension, "extension space cannot follow a component on an MDT"),
        (LayoutDefect::DomFirst, "only the first component of a file or mirror can be on an MDT"),
        (LayoutDefect::NothingToExtend, "extension space needs a component before it"),
        (LayoutDefect::Empty, "only a component that is followed by extension space can be empty"),
        (LayoutDefect::NotAdjacent, "a component must begin where the one before it ends"),
        (LayoutDefect::Backwards, "a component must end after it begins"),
        (LayoutDefect::AlignEnd, "a component's end must be a multiple of 64 KiB"),
        (LayoutDefect::AlignStripe, "a component's end must be a multiple of its stripe size"),
        (LayoutDefect::AlignExtension, "an extension size must be a multiple of 64 KiB"),
        (LayoutDefect::UnknownOst, "an OST must be given for each stripe"),
        (LayoutDefect::NoSuchPool, "the file system has no such pool"),
        (LayoutDefect::NoSuchOst, "the file system, or the pool, has no such OST"),
    ];

    /// Returns a description for users. `None`: the number is unknown.
    pub fn text_of(number: i32) -> Option<&'static str> {
        LayoutDefect::ALL.iter().find(|(wrong, _)| *wrong as i32 == number).map(|(_, text)| *text)
    }
}

/// Finds the first defect. `incomplete`: the end may be missing, because the components are to be
/// added to a file. `mirrors`: each mirror must reach to the end.
pub fn check(layout: &Layout, incomplete: bool, mirrors: bool) -> Result<(), LayoutDefect> {
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
            return Err(LayoutDefect::NothingToExtend);
        } else if !incomplete && c.start != 0 {
            return Err(LayoutDefect::NotAdjacent);
        }
        let extended = components.get(i + 1).is_some_and(|next| next.is_extension() && next.start == c.end);
        if c.start == c.end && !extended {
            return Err(LayoutDefect::Empty);
        }
        before = Some(c);
    }
    ends(before, incomplete || !mirrors)
}

/// Checks that each OST and pool that a layout names exists. Finds the first that does not.
pub fn check_names(layout: &Layout, osts: &[u32], pools: &[Pool]) -> Result<(), LayoutDefect> {
    for c in layout.components() {
        let members = match pools.iter().find(|pool| pool.name.as_bytes() == c.pool) {
            Some(pool) => &pool.osts,
            None if c.pool.is_empty() => osts,
            None => return Err(LayoutDefect::NoSuchPool),
        };
        let named = c.osts.iter().filter(|ost| **ost != OST_UNSET).map(|ost| u64::from(*ost));
        let first = Some(c.start_ost).filter(|ost| *ost != DEFAULT);
        let has = |ost: u64| members.iter().any(|member| u64::from(*member) == ost);
        if !named.chain(first).all(has) {
            return Err(LayoutDefect::NoSuchOst);
        }
    }
    Ok(())
}

fn ends(last: Option<&Component>, incomplete: bool) -> Result<(), LayoutDefect> {
    if incomplete || last.is_none_or(|last| last.end == EOF) { Ok(()) } else { Err(LayoutDefect::IncompleteMirror) }
}

fn alone(c: &Component) -> Result<(), LayoutDefect> {
    let unit = u64::from(STRIPE_SIZE_UNIT);
    if c.flags & !flags::KNOWN != 0 {
        return Err(LayoutDefect::Flags);
    }
    if c.start > c.end {
        return Err(LayoutDefect::Backwards);
    }
    if c.is_extension() {
        if c.pattern == MDT {
            return Err(LayoutDefect::DomExtension);
        }
        if c.flags & flags::INIT != 0 {
            return Err(LayoutDefect::InitExtension);
        }
        if c.stripe_size == DEFAULT || !c.stripe_size.is_multiple_of(unit) {
            return Err(LayoutDefect::AlignExtension);
        }
    }
    if c.end != EOF && !c.end.is_multiple_of(unit) {
        return Err(LayoutDefect::AlignEnd);
    }
    let striped = !c.is_extension() && c.pattern != MDT && !matches!(c.stripe_size, DEFAULT | 0);
    if striped && c.end != EOF && !c.end.is_multiple_of(c.stripe_size) {
        return Err(LayoutDefect::AlignStripe);
    }
    if c.specific && c.osts.contains(&OST_UNSET) {
        return Err(LayoutDefect::UnknownOst);
    }
    Ok(())
}

fn after(before: &Component, c: &Component) -> Result<(), LayoutDefect> {
    if c.start != before.end {
        return Err(LayoutDefect::NotAdjacent);
    }
    if c.pattern == MDT {
        return Err(LayoutDefect::DomFirst);
    }
    if c.is_extension() {
        if before.pattern == MDT {
            return Err(LayoutDefect::DomBeforeExtension);
        }
        if before.is_extension() {
            return Err(LayoutDefect::AdjacentExtension);
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
        Component { flags: flags::EXTENSION, stripe_size: 64 << 20, ..c(start, end) }
    }

    fn judge(components: Vec<Component>) -> Result<(), LayoutDefect> {
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
            (vec![c(0, 1)], LayoutDefect::IncompleteMirror),
            (vec![c(0, 1), c(0, EOF)], LayoutDefect::IncompleteMirror),
            (vec![c(0, 1), c(2, EOF)], LayoutDefect::NotAdjacent),
            (vec![c(1, EOF)], LayoutDefect::NotAdjacent),
            (vec![c(0, 2), c(2, 1)], LayoutDefect::Backwards),
            (vec![c(0, 0), c(0, EOF)], LayoutDefect::Empty),
            (vec![c(0, 1), mdt(1, EOF)], LayoutDefect::DomFirst),
            (vec![mdt(0, 1), space(1, EOF)], LayoutDefect::DomBeforeExtension),
            (vec![c(0, 1), space(1, 2), space(2, EOF)], LayoutDefect::AdjacentExtension),
            (vec![space(0, EOF)], LayoutDefect::NothingToExtend),
            (vec![c(0, 1), Component { pattern: MDT, ..space(1, EOF) }], LayoutDefect::DomExtension),
            (
                vec![c(0, 1), Component { flags: flags::EXTENSION | flags::INIT, ..space(1, EOF) }],
                LayoutDefect::InitExtension,
            ),
            (vec![c(0, 1), Component { stripe_size: DEFAULT, ..space(1, EOF) }], LayoutDefect::AlignExtension),
            (vec![Component { end: 100, ..c(0, 1) }, c(1, EOF)], LayoutDefect::AlignEnd),
            (vec![Component { stripe_size: 4 << 20, ..c(0, 1) }, c(1, EOF)], LayoutDefect::AlignStripe),
            (vec![Component { flags: 0x800, ..c(0, EOF) }], LayoutDefect::Flags),
            (vec![Component { specific: true, osts: vec![0, OST_UNSET], ..c(0, EOF) }], LayoutDefect::UnknownOst),
        ] {
            assert_eq!(judge(components.clone()), Err(wrong), "{components:?}");
            assert!(LayoutDefect::text_of(wrong as i32).is_some());
        }
        assert_eq!(LayoutDefect::text_of(0), None);
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
        assert_eq!(judge(Component { osts: vec![3, 4], ..c.clone() }), Err(LayoutDefect::NoSuchOst));
        assert_eq!(judge(Component { start_ost: 7, ..c.clone() }), Err(LayoutDefect::NoSuchOst));
        assert_eq!(judge(Component { pool: pool(b"fast"), start_ost: 2, ..c.clone() }), Ok(()));
        assert_eq!(
            judge(Component { pool: pool(b"fast"), osts: vec![2, 1], ..c.clone() }),
            Err(LayoutDefect::NoSuchOst)
        );
        assert_eq!(judge(Component { pool: pool(b"slow"), ..c }), Err(LayoutDefect::NoSuchPool));
    }
}
