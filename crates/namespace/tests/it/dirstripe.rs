//! Layouts of directories and their defaults, through xattrs: `lustre.lmv`, `trusted.lmv`,
//! `lustre.dmv`, `trusted.dmv`.

use crate::common::*;
use sheen_layout::lmv::{HashType, INHERIT_NONE, LmvMds, LmvUser, MAGIC_V1};
use sheen_namespace::{Config, Permitted};
use sheen_wire::{
    Cred, Errno, Fid,
    fid::ROOT,
    mds::xattr::{CREATE, REPLACE},
};

const ME: Cred = Cred::ROOT;

fn ask(stripe_count: i32) -> LmvUser {
    LmvUser::new(stripe_count)
}

/// That many stripes on one MDT.
fn over(stripe_count: i32) -> LmvUser {
    LmvUser { hash: HashType(HashType::OVERSTRIPED), ..ask(stripe_count) }
}

fn default_of(fs: &mut Fs, dir: Fid) -> Option<LmvUser> {
    fs.get(&user(9), dir, "lustre.dmv").ok().map(|value| LmvUser::decode(&value).unwrap())
}

fn layout_of(fs: &mut Fs, dir: Fid) -> LmvUser {
    LmvUser::decode(&fs.get(&user(9), dir, "lustre.lmv").unwrap()).unwrap()
}

#[test]
fn plain_directory_reports_its_mdt() {
    let mut fs = Fs::on(Default::default(), Config { mdt_index: 3, ..Config::default() });
    let d = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    for count in [0, 1, 2, -1, 2000] {
        fs.set(&ME, d, "lustre.lmv", &ask(count).encode(), 0).unwrap();
        let shown = layout_of(&mut fs, d);
        assert_eq!((shown.magic, shown.stripe_count, shown.mdt, shown.stripes.len()), (MAGIC_V1, 0, Some(3), 0));
        assert_eq!(fs.get(&ME, d, "trusted.lmv"), Err(Errno::ENODATA), "{count}");
    }
    assert_eq!(fs.names(&ME, d), ["trusted.link", "trusted.lma"]);
    assert_eq!(fs.names(&ME, ROOT), ["trusted.lma"]);
}

#[test]
fn overstriped_directory_is_stored_in_lustres_form() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    fs.set(&ME, d, "lustre.lmv", &over(4).encode(), 0).unwrap();
    let stored = LmvMds::decode(&fs.get(&ME, d, "trusted.lmv").unwrap()).unwrap();
    assert_eq!((stored.stripes.clone(), stored.master_mdt), (vec![d; 4], 0));
    assert_eq!(stored.hash.to_string(), "fnv_1a_64,overstriped");
    assert_eq!(fs.get(&user(9), d, "trusted.lmv"), Err(Errno::ENODATA), "only the superuser reads it");
    let shown = layout_of(&mut fs, d);
    assert_eq!((shown.stripe_count, shown.stripes[3].fid, shown.stripes[3].mdt), (4, d, 0));
    assert_eq!(fs.names(&ME, d), ["trusted.link", "trusted.lma", "trusted.lmv"]);
    // The maximum number of stripes, and another hash; the layout of an empty directory may change.
    let crush = LmvUser { hash: HashType::parse("crush").unwrap().with(HashType::OVERSTRIPED), ..ask(11) };
    fs.set(&ME, d, "trusted.lmv", &crush.encode(), 0).unwrap();
    let shown = layout_of(&mut fs, d);
    assert_eq!((shown.stripe_count, shown.hash.to_string().as_str()), (5, "crush,overstriped"));
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(layout_of(&mut fs, d).stripe_count, 5);
    let f = fs.mknod(&ME, d, "f", 0o644).unwrap();
    assert_eq!(fs.set(&ME, d, "lustre.lmv", &ask(1).encode(), 0), Err(Errno::EEXIST));
    assert_eq!(layout_of(&mut fs, d).stripe_count, 5);
    assert_eq!(fs.lookup(&ME, d, "f").unwrap().fid, f);
    // An archive contains another directory's stripes.
    let foreign = LmvMds::new(1, HashType::DEFAULT, vec![Fid::new(7, 7); 2]);
    fs.set(&ME, d, "trusted.lmv", &foreign.encode(), 0).unwrap();
    fs.unset(&ME, d, "trusted.lmv").unwrap();
    assert_eq!(layout_of(&mut fs, d).stripe_count, 5);
}

#[test]
fn directory_default_is_stored_byte_for_byte() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    let mut value = LmvUser { mdt: Some(0), max_inherit: 3, max_inherit_rr: 2, ..over(-2) }.encode();
    value[16] = 1; // lum_type and padding have no meaning here
    value[31] = 9;
    fs.set(&ME, d, "trusted.dmv", &value, CREATE).unwrap();
    assert_eq!(fs.get(&ME, d, "trusted.dmv").unwrap(), value);
    assert_eq!(fs.get(&user(9), d, "lustre.dmv").unwrap(), value);
    assert_eq!(fs.names(&ME, d), ["trusted.link", "trusted.lma", "trusted.dmv"]);
    assert_eq!(fs.set(&ME, d, "trusted.dmv", &value, CREATE), Err(Errno::EEXIST));
    fs.set(&ME, d, "lustre.dmv", &ask(1).encode(), REPLACE).unwrap();
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(fs.get(&ME, d, "trusted.dmv").unwrap(), ask(1).encode());
    // A default that requests nothing deletes the present one; no error if there is none.
    for _ in 0..2 {
        fs.set(&ME, d, "lustre.dmv", &ask(0).encode(), 0).unwrap();
        assert_eq!(fs.get(&ME, d, "trusted.dmv"), Err(Errno::ENODATA));
    }
    assert_eq!(fs.unset(&ME, d, "trusted.dmv"), Err(Errno::ENODATA));
}

#[test]
fn only_permitted_owners_request_layouts_of_directories() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    fs.chown(&ME, d, Some(9), Some(9)).unwrap();
    let (owner, one, four) = (user_in(9, &[50]), ask(1).encode(), over(4).encode());
    for permitted in [Permitted::Nobody, Permitted::Group(51)] {
        fs.env.directory_stripers = permitted;
        for name in ["lustre.lmv", "lustre.dmv"] {
            for value in [&one, &four, &ask(0).encode()] {
                assert_eq!(fs.set(&owner, d, name, value, 0), Err(Errno::EPERM), "{permitted:?} {name}");
            }
        }
        assert_eq!(fs.unset(&owner, d, "lustre.dmv"), Err(Errno::EPERM));
    }
    assert_eq!(layout_of(&mut fs, d).stripe_count, 0);
    for permitted in [Permitted::Everybody, Permitted::Group(50)] {
        fs.env.directory_stripers = permitted;
        fs.set(&owner, d, "lustre.lmv", &four, 0).unwrap();
        fs.set(&owner, d, "lustre.dmv", &four, 0).unwrap();
        assert_eq!(layout_of(&mut fs, d).stripe_count, 4);
        fs.set(&owner, d, "lustre.lmv", &one, 0).unwrap();
    }
}

#[test]
fn invalid_directory_layouts_are_refused() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&user(1), ROOT, "d", 0o777);
    assert_eq!(d, Err(Errno::EACCES));
    let d = fs.mkdir(&ME, ROOT, "d", 0o777).unwrap();
    let f = fs.mknod(&ME, ROOT, "f", 0o644).unwrap();
    for name in ["lustre.lmv", "lustre.dmv"] {
        assert_eq!(fs.set(&user(1), d, name, &ask(1).encode(), 0), Err(Errno::EPERM), "{name}: another owner");
        assert_eq!(fs.set(&ME, f, name, &ask(1).encode(), 0), Err(Errno::ENOTDIR), "{name}");
        assert_eq!(fs.get(&ME, f, name), Err(Errno::ENODATA), "{name}");
        let elsewhere = LmvUser { mdt: Some(1), ..ask(1) };
        assert_eq!(fs.set(&ME, d, name, &elsewhere.encode(), 0), Err(Errno::ENODEV), "{name}");
        assert_eq!(fs.set(&ME, d, name, &LmvUser { hash: HashType(9), ..ask(1) }.encode(), 0), Err(Errno::EINVAL));
        for bytes in [&b""[..], b"abc", &[0; 48], &ask(1).encode()[..47]] {
            assert_eq!(fs.set(&ME, d, name, bytes, 0), Err(Errno::EINVAL), "{name} {bytes:?}");
        }
    }
    assert_eq!(fs.set(&user(1), d, "trusted.dmv", &ask(1).encode(), 0), Err(Errno::EPERM));
    assert_eq!(fs.set(&ME, d, "lustre.dmv", &ask(0).with_mdts(&[0, 0]).encode(), 0), Err(Errno::EINVAL));
    assert_eq!(fs.set(&ME, d, "lustre.lmv", &ask(0).with_mdts(&[0, 1]).encode(), 0), Err(Errno::ENODEV));
    assert_eq!(layout_of(&mut fs, d).stripe_count, 0);
}

#[test]
fn subdirectories_inherit_the_default_to_its_depth() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    let default = LmvUser { max_inherit: 3, max_inherit_rr: 1, ..over(4) };
    fs.set(&ME, d, "lustre.dmv", &default.encode(), 0).unwrap();
    let mut dirs = vec![d];
    for depth in 0..4 {
        dirs.push(fs.mkdir(&ME, dirs[depth], "s", 0o755).unwrap());
    }
    let stripes: Vec<i32> = dirs.iter().map(|d| layout_of(&mut fs, *d).stripe_count).collect();
    assert_eq!(stripes, [0, 4, 4, 4, 0], "the directory itself stays as it was made");
    let own = |fs: &mut Fs, d| fs.get(&ME, d, "trusted.dmv").ok().map(|v| LmvUser::decode(&v).unwrap());
    let depths: Vec<_> = dirs.iter().map(|d| own(&mut fs, *d).map(|d| (d.max_inherit, d.max_inherit_rr))).collect();
    assert_eq!(depths, [Some((3, 1)), Some((2, 0)), Some((1, 0)), None, None]);
    fs.commit();
    let mut fs = fs.crash();
    assert_eq!(layout_of(&mut fs, dirs[1]).stripes[0].fid, dirs[1], "its own stripes, not its parent's");
    fs.rmdir(&ME, dirs[3], "s").unwrap();
    fs.check();
    // A requested layout replaces everything inherited, including the inherited default.
    let own_way = fs.mkdir(&ME, d, "asked", 0o755).unwrap();
    fs.set(&ME, own_way, "lustre.lmv", &ask(1).encode(), 0).unwrap();
    assert_eq!((layout_of(&mut fs, own_way).stripe_count, own(&mut fs, own_way)), (0, None));
    // Files inherit none of it.
    let f = fs.touch(&ME, d, "f", 0o644).unwrap();
    assert_eq!(fs.names(&ME, f), ["lustre.lov", "trusted.link", "trusted.lma", "trusted.lov"]);
}

#[test]
fn default_with_inherit_none_stops_at_the_first_level() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ME, ROOT, "d", 0o755).unwrap();
    fs.set(&ME, d, "lustre.dmv", &LmvUser { max_inherit: INHERIT_NONE, ..over(2) }.encode(), 0).unwrap();
    let s = fs.mkdir(&ME, d, "s", 0o755).unwrap();
    assert_eq!(layout_of(&mut fs, s).stripe_count, 2);
    assert_eq!(fs.get(&ME, s, "trusted.dmv"), Err(Errno::ENODATA));
}

#[test]
fn roots_directory_default_applies_everywhere_and_is_not_copied() {
    let mut fs = Fs::new();
    let a = fs.mkdir(&ME, ROOT, "a", 0o755).unwrap();
    let b = fs.mkdir(&ME, a, "b", 0o755).unwrap();
    let shown = |fs: &mut Fs, d| default_of(fs, d).map(|d| (d.stripe_count, d.max_inherit, d.max_inherit_rr));
    // Not set by a user: Lustre's default.
    assert_eq!(shown(&mut fs, ROOT), Some((1, 0, 3)));
    assert_eq!((shown(&mut fs, a), shown(&mut fs, b)), (Some((1, 0, 2)), Some((1, 0, 1))));
    fs.set(&ME, ROOT, "lustre.dmv", &LmvUser { max_inherit: 2, ..over(3) }.encode(), 0).unwrap();
    assert_eq!((shown(&mut fs, a), shown(&mut fs, b)), (Some((3, 1, 0)), None));
    let c = fs.mkdir(&ME, ROOT, "c", 0o755).unwrap();
    let in_a = fs.mkdir(&ME, a, "new", 0o755).unwrap();
    let in_b = fs.mkdir(&ME, b, "new", 0o755).unwrap();
    let stripes: Vec<i32> = [c, in_a, in_b].iter().map(|d| layout_of(&mut fs, *d).stripe_count).collect();
    assert_eq!(stripes, [3, 3, 0], "two levels below the root");
    assert_eq!(fs.get(&ME, c, "trusted.dmv"), Err(Errno::ENODATA));
    // A directory's own default has precedence over the root's.
    fs.set(&ME, a, "lustre.dmv", &ask(1).encode(), 0).unwrap();
    let plain = fs.mkdir(&ME, a, "plain", 0o755).unwrap();
    assert_eq!(layout_of(&mut fs, plain).stripe_count, 0);
    assert_eq!(shown(&mut fs, plain), Some((1, 0, 0)));
    // No default is in force in a removed directory that is open.
    let deleted = fs.mkdir(&ME, ROOT, "removed", 0o755).unwrap();
    let open = fs.open(&ME, deleted, 0).unwrap();
    fs.rmdir(&ME, ROOT, "removed").unwrap();
    assert_eq!(shown(&mut fs, deleted), None);
    fs.close(open).unwrap();
}

#[test]
fn roots_default_at_depth_300_follows_max_inherit() {
    let mut fs = Fs::new();
    let mut dir = ROOT;
    for _ in 0..300 {
        dir = fs.mkdir(&ME, dir, "d", 0o755).unwrap();
    }
    fs.set(&ME, ROOT, "lustre.dmv", &LmvUser { max_inherit: 250, ..over(2) }.encode(), 0).unwrap();
    assert_eq!(default_of(&mut fs, dir), None);
    fs.set(&ME, ROOT, "lustre.dmv", &over(2).encode(), 0).unwrap();
    let last = fs.mkdir(&ME, dir, "d", 0o755).unwrap();
    assert_eq!(layout_of(&mut fs, last).stripe_count, 2);
}
