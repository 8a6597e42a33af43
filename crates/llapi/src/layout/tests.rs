//! Values that setters accept and refuse, and moves between components.

use super::*;

fn layout() -> Layout {
    Layout::default()
}

#[test]
fn layout_setters_refuse_values_outside_lustre_limits() {
    let mut c = Component::default();
    for good in [65536, 1 << 20, 0xffff_0000, DEFAULT] {
        assert_eq!(c.set_stripe_size(good), Ok(()), "{good:#x}");
        assert_eq!(c.stripe_size, good);
    }
    for bad in [0, 1, 65535, 65537, 1 << 32, INVALID, WIDE, u64::MAX] {
        assert_eq!(c.set_stripe_size(bad), Err(Errno::EINVAL), "{bad:#x}");
    }
    for good in [1, 2000, DEFAULT, WIDE, WIDE_MAX] {
        assert_eq!(c.set_stripe_count(good), Ok(()), "{good:#x}");
    }
    for bad in [0, 2001, INVALID, WIDE_MAX + 1, u64::MAX] {
        assert_eq!(c.set_stripe_count(bad), Err(Errno::EINVAL), "{bad:#x}");
    }
    for good in [RAID0, MDT, OVERSTRIPING, DEFAULT] {
        assert_eq!(c.set_pattern(good), Ok(()));
    }
    assert_eq!(c.set_pattern(1), Err(Errno::EOPNOTSUPP));
    assert_eq!(c.stripe_size, DEFAULT, "what was refused changed nothing");
}

#[test]
fn set_ost_sets_the_first_ost_or_a_list() {
    let mut c = Component::default();
    assert_eq!(c.ost(0), Err(Errno::EINVAL), "none was chosen");
    assert_eq!(c.set_ost(0, 3), Ok(()));
    assert_eq!((c.start_ost, c.specific, c.ost(0)), (3, false, Ok(3)));
    assert_eq!(c.set_ost(2, 1), Ok(()));
    assert_eq!((c.specific, c.ost(1), c.ost(2), c.ost(3)), (true, Err(Errno::EINVAL), Ok(1), Err(Errno::EINVAL)));
    assert_eq!(c.set_ost(2000, 1), Err(Errno::EINVAL));
    assert_eq!(c.set_ost(1, DEFAULT), Err(Errno::EINVAL));
    assert_eq!(c.set_ost(0, OST_INDEX_MAX), Err(Errno::EINVAL));
    assert_eq!(c.set_ost(0, DEFAULT), Ok(()));
    assert_eq!(c, Component::default());
}

#[test]
fn set_pool_strips_the_file_system_name() {
    let mut c = Component::default();
    assert_eq!(c.set_pool(b"lustre.flash-1"), Ok(()));
    assert_eq!(c.pool, b"flash-1");
    assert_eq!(c.set_pool(b"a.sixteen-chars-pp"), Err(Errno::EINVAL));
    assert_eq!(c.set_pool(b"two words"), Err(Errno::EINVAL));
    assert_eq!(c.set_pool(b"fifteen-chars_1"), Ok(()));
    assert_eq!(c.set_pool(b""), Ok(()));
    assert!(c.pool.is_empty());
}

#[test]
fn set_extension_size_applies_only_to_extension_space() {
    let mut c = Component::default();
    assert_eq!(c.set_extension_size(64 << 20), Err(Errno::EINVAL), "it is none");
    c.flags = flags::EXTENSION;
    assert_eq!(c.set_extension_size(64 << 20), Ok(()));
    assert_eq!(c.set_extension_size(1000), Err(Errno::EINVAL));
    assert_eq!(c.set_extension_size(4 << 40), Err(Errno::EINVAL));
    assert_eq!(c.set_stripe_size(1 << 20), Err(Errno::EINVAL));
    assert_eq!(c.stripe_size, 64 << 20);
}

#[test]
fn layout_components_are_added_and_removed_without_gaps() {
    let mut l = layout();
    l.current_mut().set_stripe_count(4).unwrap();
    assert_eq!(l.add(), Err(Errno::EINVAL), "the first has no end");
    assert_eq!(l.remove(), Err(Errno::EINVAL), "the only one");
    assert_eq!(l.go_to(0), Err(Errno::EINVAL), "plain");
    assert_eq!(l.set_extent(0, 1 << 20), Ok(()));
    assert!(l.composite);
    assert_eq!(l.add(), Ok(()));
    assert_eq!((l.current().start, l.current().end, l.current().stripe_count), (1 << 20, EOF, 4));
    assert_eq!(l.set_extent(2 << 20, 4 << 20), Err(Errno::EINVAL), "a gap");
    assert_eq!(l.set_extent(1 << 20, 4096), Err(Errno::EINVAL), "backwards");
    assert_eq!(l.set_extent(1 << 20, 4 << 20), Ok(()));
    assert_eq!(l.add(), Ok(()));
    assert!(!l.go(Move::Next) && l.go(Move::Previous) && l.current().end == 4 << 20);
    assert_eq!(l.remove(), Err(Errno::EINVAL), "in the middle");
    assert!(l.go(Move::First) && !l.go(Move::Previous) && l.current().start == 0);
    assert!(l.go(Move::Last));
    assert_eq!(l.remove(), Ok(()));
    assert_eq!((l.components().len(), l.current().end), (2, 4 << 20));
    l.components_mut()[0].id = 7;
    assert_eq!((l.go_to(7), l.current().start), (Ok(()), 0));
    assert_eq!(l.go_to(9), Err(Errno::ENOENT));
}

#[test]
fn as_request_drops_ids_and_object_state() {
    let c = Component { id: 3, flags: flags::INIT | flags::NOSYNC | flags::STALE, ..Component::default() };
    let mut l = Layout::composite(vec![c]).unwrap();
    l.generation = 9;
    let asked = l.as_request();
    assert_eq!((asked.generation, asked.current().id, asked.current().flags), (0, 0, flags::NOSYNC));
}
