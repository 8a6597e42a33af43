//! Changes of nodemaps, and their text.

use super::text::{read, write};
use super::*;

fn change(all: &mut Nodemaps, name: &str, change: MapChange<'_>) -> Result<()> {
    apply(all, &NodemapChange::Map { name, change })
}

fn range(text: &str) -> Range {
    text.parse().unwrap()
}

fn uid(client: u32, fs: u32) -> IdPair {
    IdPair { id_type: IdType::Uid, client, fs }
}

fn gid(client: u32, fs: u32) -> IdPair {
    IdPair { id_type: IdType::Gid, client, fs }
}

/// The nodemaps `a` and `b`.
fn two() -> Nodemaps {
    let mut all = Nodemaps::default();
    for name in ["b", "a"] {
        change(&mut all, name, MapChange::New).unwrap();
    }
    all
}

#[test]
fn nodemap_changes_create_set_and_delete() {
    let mut all = two();
    assert_eq!(all.maps, [Nodemap::new("a"), Nodemap::new("b")], "sorted by name");
    for (property, value) in [
        (Property::Admin, 1),
        (Property::Trusted, 1),
        (Property::DenyUnknown, 1),
        (Property::AuditMode, 0),
        (Property::ReadonlyMount, 1),
        (Property::SquashUid, 99),
        (Property::SquashGid, 98),
    ] {
        change(&mut all, "a", MapChange::Set { property, value }).unwrap();
        assert_eq!(property.get(&all.maps[0]), value, "{property:?}");
        assert_ne!(property.get(&all.maps[1]), value, "{property:?} of another nodemap");
    }
    for (path, stored) in [("/x/y z", "/x/y z"), ("", ""), ("/x", "/x"), ("clear", "")] {
        change(&mut all, "a", MapChange::SetFileset(path)).unwrap();
        assert_eq!(all.maps[0].fileset, stored);
    }
    apply(&mut all, &NodemapChange::Activate(true)).unwrap();
    assert!(all.active);
    change(&mut all, "a", MapChange::Delete).unwrap();
    assert_eq!(all.maps, [Nodemap::new("b")]);
}

#[test]
fn ranges_and_ids_are_sorted_and_deleted_as_a_whole() {
    let mut all = two();
    let (low, high) = (range("10.0.0.*@tcp"), range("10.0.1.[1-9]@tcp"));
    for added in [high, low] {
        change(&mut all, "a", MapChange::AddRange(added)).unwrap();
    }
    for added in [uid(6, 60), uid(5, 70), gid(6, 60)] {
        change(&mut all, "a", MapChange::AddId(added)).unwrap();
    }
    assert_eq!((&all.maps[0].ranges[..], &all.maps[0].uids[..]), (&[low, high][..], &[(5, 70), (6, 60)][..]));
    let part = MapChange::DeleteRange(range("10.0.0.1@tcp"));
    assert_eq!(change(&mut all, "a", part), Err(Errno::ENOENT));
    assert_eq!(change(&mut all, "b", MapChange::DeleteRange(low)), Err(Errno::ENOENT), "of another nodemap");
    assert_eq!(change(&mut all, "a", MapChange::DeleteId(uid(5, 60))), Err(Errno::ENOENT));
    change(&mut all, "a", MapChange::DeleteRange(low)).unwrap();
    change(&mut all, "a", MapChange::DeleteId(uid(6, 60))).unwrap();
    assert_eq!((&all.maps[0].ranges[..], &all.maps[0].uids[..]), (&[high][..], &[(5, 70)][..]));
    assert_eq!(all.maps[0].gids, [(6, 60)]);
    // The addresses and ids are free again, and another nodemap can map the same ids.
    change(&mut all, "b", MapChange::AddRange(low)).unwrap();
    change(&mut all, "b", MapChange::AddId(uid(5, 70))).unwrap();
}

#[test]
fn refused_nodemap_changes_change_nothing() {
    let mut all = two();
    change(&mut all, "a", MapChange::AddRange(range("10.0.0.[10-20]@tcp"))).unwrap();
    change(&mut all, "a", MapChange::AddId(uid(5, 50))).unwrap();
    let (before, long) = (all.clone(), format!("/{}", "x".repeat(FILESET_MAX)));
    let set = |property, value| MapChange::Set { property, value };
    for (name, refused, errno) in [
        ("a", MapChange::New, Errno::EEXIST),
        (DEFAULT, MapChange::New, Errno::EEXIST),
        ("active", MapChange::New, Errno::EINVAL),
        ("list", MapChange::New, Errno::EINVAL),
        ("", MapChange::New, Errno::EINVAL),
        ("a-b", MapChange::New, Errno::EINVAL),
        ("seventeen_letters", MapChange::New, Errno::ENAMETOOLONG),
        ("c", MapChange::Delete, Errno::ENOENT),
        (DEFAULT, MapChange::Delete, Errno::EPERM),
        ("c", set(Property::Admin, 1), Errno::ENOENT),
        ("a", set(Property::Admin, 2), Errno::EINVAL),
        (DEFAULT, set(Property::SquashUid, u32::MAX), Errno::EINVAL),
        ("c", MapChange::AddRange(range("10.1.0.1@tcp")), Errno::ENOENT),
        (DEFAULT, MapChange::AddRange(range("10.1.0.1@tcp")), Errno::EPERM),
        ("a", MapChange::AddRange(range("10.0.0.[10-20]@tcp")), Errno::EEXIST),
        ("b", MapChange::AddRange(range("10.0.0.20@tcp")), Errno::EEXIST),
        ("b", MapChange::AddRange(range("10.0.0.0/8@tcp")), Errno::EEXIST),
        (DEFAULT, MapChange::DeleteRange(range("10.1.0.1@tcp")), Errno::EPERM),
        ("a", MapChange::AddId(uid(5, 51)), Errno::EEXIST),
        ("a", MapChange::AddId(uid(6, 50)), Errno::EEXIST),
        ("a", MapChange::AddId(gid(u32::MAX, 1)), Errno::EINVAL),
        ("a", MapChange::AddId(gid(1, u32::MAX)), Errno::EINVAL),
        (DEFAULT, MapChange::AddId(gid(1, 1)), Errno::EPERM),
        ("a", MapChange::DeleteId(gid(5, 50)), Errno::ENOENT),
        ("c", MapChange::SetFileset("/x"), Errno::ENOENT),
        ("a", MapChange::SetFileset("x"), Errno::EINVAL),
        ("a", MapChange::SetFileset("/"), Errno::EINVAL),
        ("a", MapChange::SetFileset("/x/"), Errno::EINVAL),
        ("a", MapChange::SetFileset("/x//y"), Errno::EINVAL),
        ("a", MapChange::SetFileset("/x/../y"), Errno::EINVAL),
        (DEFAULT, MapChange::SetFileset("/./y"), Errno::EINVAL),
        ("a", MapChange::SetFileset("/x\ny"), Errno::EINVAL),
        ("a", MapChange::SetFileset(&long), Errno::ENAMETOOLONG),
    ] {
        assert_eq!(change(&mut all, name, refused), Err(errno), "{name:?} {refused:?}");
        assert_eq!(all, before, "{name:?} {refused:?}");
    }
}

#[test]
fn default_nodemap_is_stored_at_its_first_change() {
    let mut all = two();
    assert_eq!((show::get(&all, DEFAULT), show::get(&all, "c")), (Some(Nodemap::new(DEFAULT)), None));
    change(&mut all, DEFAULT, MapChange::Set { property: Property::Trusted, value: 1 }).unwrap();
    change(&mut all, DEFAULT, MapChange::SetFileset("/public")).unwrap();
    assert!(all.get(DEFAULT).is_some_and(|map| map.trusted && map.fileset == "/public"));
    change(&mut all, "z", MapChange::New).unwrap();
    assert_eq!(show::names(&all), ["a", "b", DEFAULT, "z"]);
    assert_eq!(show::names(&Nodemaps::default()), [DEFAULT]);
}

#[test]
fn nodemaps_ranges_and_ids_beyond_the_limits_are_refused() {
    let mut all = Nodemaps::default();
    for i in 0..NODEMAPS_MAX {
        change(&mut all, &format!("n{i}"), MapChange::New).unwrap();
    }
    assert_eq!(change(&mut all, "more", MapChange::New), Err(Errno::ENOSPC));
    change(&mut all, DEFAULT, MapChange::Set { property: Property::Admin, value: 1 }).unwrap();

    let address = |i: usize| range(&format!("10.{}.{}.{}@tcp", i >> 16, (i >> 8) & 255, i & 255));
    let maps = ALL_RANGES_MAX / RANGES_MAX;
    for i in 0..ALL_RANGES_MAX {
        change(&mut all, &format!("n{}", i / RANGES_MAX), MapChange::AddRange(address(i))).unwrap();
        if i == RANGES_MAX - 1 {
            assert_eq!(change(&mut all, "n0", MapChange::AddRange(address(1 << 16))), Err(Errno::ENOSPC));
        }
    }
    let more = MapChange::AddRange(address(ALL_RANGES_MAX));
    assert_eq!(change(&mut all, &format!("n{maps}"), more), Err(Errno::ENOSPC));

    for i in 0..IDS_MAX as u32 {
        change(&mut all, "n0", MapChange::AddId(uid(i, i))).unwrap();
    }
    let more = uid(IDS_MAX as u32, IDS_MAX as u32);
    assert_eq!(change(&mut all, "n0", MapChange::AddId(more)), Err(Errno::ENOSPC));
    change(&mut all, "n0", MapChange::AddId(gid(0, 0))).unwrap();
    // The bound of all nodemaps together is reached by copies of these ids.
    for map in all.maps.iter_mut().filter(|map| map.name != DEFAULT).take(ALL_IDS_MAX / IDS_MAX) {
        map.uids = (0..IDS_MAX as u32).map(|id| (id, id)).collect();
        map.gids.clear();
    }
    assert_eq!(change(&mut all, "n200", MapChange::AddId(gid(0, 0))), Err(Errno::ENOSPC));
}

#[test]
fn nodemap_changes_roundtrip_through_text() {
    let map = |change| NodemapChange::Map { name: "a_1", change };
    for (change, text) in [
        (NodemapChange::Activate(true), "nodemap_activate 1"),
        (NodemapChange::Activate(false), "nodemap_activate 0"),
        (map(MapChange::New), "nodemap_add a_1"),
        (map(MapChange::Delete), "nodemap_del a_1"),
        (map(MapChange::Set { property: Property::SquashGid, value: 7 }), "nodemap_modify a_1 squash_gid 7"),
        (map(MapChange::AddRange(range("10.0.*.*@tcp"))), "nodemap_add_range a_1 10.0.0.0@tcp:10.0.255.255@tcp"),
        (map(MapChange::DeleteRange(range("fd00::/120@tcp"))), "nodemap_del_range a_1 fd00::@tcp:fd00::ff@tcp"),
        (map(MapChange::AddId(uid(1, 2))), "nodemap_add_idmap a_1 uid 1:2"),
        (map(MapChange::DeleteId(gid(1, 2))), "nodemap_del_idmap a_1 gid 1:2"),
        (map(MapChange::SetFileset("/x y")), "nodemap_set_fileset a_1 /x y"),
        (map(MapChange::SetFileset("")), "nodemap_set_fileset a_1 "),
    ] {
        assert_eq!(write(&change), text);
        assert_eq!(read(text), Ok(change), "{text}");
    }
    for property in Property::ALL {
        assert_eq!(Property::of_name(property.name()), Some(property));
    }
    for text in [
        "",
        "nodemap_add",
        "nodemap_add a b",
        "nodemap_del a b",
        "nodemap_activate 2",
        "nodemap_modify a",
        "nodemap_modify a admin",
        "nodemap_modify a admin x",
        "nodemap_modify a map_mode 1",
        "nodemap_add_range a 10.0.0.1",
        "nodemap_add_idmap a projid 1:2",
        "nodemap_add_idmap a uid 1",
        "nodemap_add_idmap a uid -1:2",
        "nodemap_list a",
    ] {
        assert_eq!(read(text), Err(Errno::EINVAL), "{text}");
    }
}

#[test]
fn nodemaps_are_shown_in_lustres_forms() {
    let mut all = two();
    change(&mut all, "a", MapChange::AddRange(range("10.0.0.[1-9]@tcp"))).unwrap();
    change(&mut all, "a", MapChange::AddId(uid(5, 50))).unwrap();
    change(&mut all, "a", MapChange::AddId(gid(6, 60))).unwrap();
    change(&mut all, "a", MapChange::SetFileset("/x")).unwrap();
    let lines =
        |map: &Nodemap| show::params(map).iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    let want = [
        "admin_nodemap=0",
        "audit_mode=1",
        "deny_unknown=0",
        "fileset=/x",
        "idmap=[\n { idtype: uid, client_id: 5, fs_id: 50 },\n { idtype: gid, client_id: 6, fs_id: 60 }\n]\n",
        "ranges=[\n { start_nid: 10.0.0.1@tcp, end_nid: 10.0.0.9@tcp }\n]\n",
        "readonly_mount=0",
        "squash_gid=65534",
        "squash_uid=65534",
        "trusted_nodemap=0",
    ];
    assert_eq!(lines(&all.maps[0]), want);
    let b = lines(&all.maps[1]);
    assert_eq!((b[3].as_str(), b[5].as_str()), ("fileset=", "ranges=[\n\n]\n"));
    assert_eq!(show::parse(&show::render(&all)), Some(all));
    assert_eq!(show::parse("{}"), None);
}

proptest::proptest! {
    #[test]
    fn read_of_any_text_does_not_panic(text: String) {
        if let Ok(change) = read(&text) {
            let _ = apply(&mut Nodemaps::default(), &change);
        }
    }
}
