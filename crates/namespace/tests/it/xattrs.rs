//! Extended attributes, ACLs, layouts through xattrs.

use crate::common::*;
use sheen_layout::{Count, Layout, Spec};
use sheen_wire::{
    Cred, Errno, Fid, FileKind,
    fid::ROOT,
    mds::{
        NewNode, flags,
        xattr::{CREATE, REPLACE},
    },
};

#[test]
fn xattrs_are_set_read_listed_and_removed() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let f = fs.mknod(&me, d, "f", 0o644).unwrap();
    assert_eq!(fs.get(&me, f, "user.a"), Err(Errno::ENODATA));
    let before = fs.attr(f);
    fs.set(&me, f, "user.b", b"1", 0).unwrap();
    fs.set(&me, f, "user.a", b"", CREATE).unwrap();
    assert!(fs.attr(f).ctime > before.ctime && fs.attr(f).mtime == before.mtime);
    assert_eq!(fs.set(&me, f, "user.a", b"2", CREATE), Err(Errno::EEXIST));
    assert_eq!(fs.set(&me, f, "user.c", b"2", REPLACE), Err(Errno::ENODATA));
    assert_eq!(fs.set(&me, f, "user.b", b"2", 4), Err(Errno::EINVAL));
    fs.set(&me, f, "user.b", b"22", REPLACE).unwrap();
    assert_eq!(fs.names(&me, f), ["user.a", "user.b"]);
    let mut fs = {
        fs.commit();
        fs.crash()
    };
    assert_eq!(
        (&fs.get(&me, f, "user.a").unwrap()[..], &fs.get(&me, f, "user.b").unwrap()[..]),
        (&b""[..], &b"22"[..])
    );
    fs.unset(&me, f, "user.a").unwrap();
    assert_eq!(fs.unset(&me, f, "user.a"), Err(Errno::ENODATA));
    fs.unset(&me, f, "user.b").unwrap();
    assert_eq!(fs.names(&me, f), [] as [&str; 0]);
    for (name, errno) in
        [("foo", Errno::EOPNOTSUPP), ("user.", Errno::EINVAL), ("", Errno::ERANGE), ("system.x", Errno::EOPNOTSUPP)]
    {
        assert_eq!(fs.set(&ROOT_CRED, f, name, b"", 0), Err(errno), "{name}");
        assert_eq!(fs.get(&ROOT_CRED, f, name), Err(errno), "{name}");
    }
    assert_eq!(fs.get(&me, f, &format!("user.{}", "x".repeat(251))), Err(Errno::ERANGE));
}

#[test]
fn xattrs_beyond_the_limits_are_refused() {
    let mut fs = Fs::new();
    let f = fs.mknod(&ROOT_CRED, ROOT, "f", 0o644).unwrap();
    assert_eq!(fs.set(&ROOT_CRED, f, "user.a", &[0; 65537], 0), Err(Errno::E2BIG));
    fs.set(&ROOT_CRED, f, "user.a", &[0; 65536], 0).unwrap();
    fs.set(&ROOT_CRED, f, "user.b", &[0; 60000], 0).unwrap();
    assert_eq!(fs.set(&ROOT_CRED, f, "user.c", &[0; 60000], 0), Err(Errno::ENOSPC));
    assert_eq!(fs.get(&ROOT_CRED, f, "user.b").unwrap().len(), 60000);
}

#[test]
fn xattr_access_depends_on_prefix_and_caller() {
    let mut fs = Fs::new();
    let (me, other) = (user(1), user(2));
    let d = open_dir(&mut fs);
    let f = fs.touch(&me, d, "f", 0o640).unwrap();
    fs.set(&me, f, "user.a", b"1", 0).unwrap();
    assert_eq!(fs.get(&other, f, "user.a"), Err(Errno::EACCES));
    assert_eq!(fs.set(&other, f, "user.a", b"", 0), Err(Errno::EACCES));
    assert_eq!(fs.set(&me, f, "trusted.a", b"", 0), Err(Errno::EPERM));
    assert_eq!(fs.set(&me, f, "security.a", b"", 0), Err(Errno::EPERM));
    fs.set(&ROOT_CRED, f, "trusted.a", b"t", 0).unwrap();
    fs.set(&ROOT_CRED, f, "security.a", b"s", 0).unwrap();
    assert_eq!(fs.get(&me, f, "trusted.a"), Err(Errno::ENODATA));
    assert_eq!(fs.get(&other, f, "security.a").unwrap(), "s");
    assert_eq!(fs.names(&me, f), ["lustre.lov", "security.a", "user.a"]);
    let all = ["lustre.lov", "trusted.link", "trusted.lma", "trusted.lov", "trusted.a", "security.a", "user.a"];
    assert_eq!(fs.names(&ROOT_CRED, f), all);
    let l = fs.symlink(&me, d, "l", "f").unwrap();
    assert_eq!(fs.set(&me, l, "user.a", b"", 0), Err(Errno::EPERM));
    assert_eq!(fs.get(&me, l, "user.a"), Err(Errno::ENODATA));
    fs.chmod(&ROOT_CRED, d, 0o1777).unwrap();
    assert_eq!(fs.set(&me, d, "user.a", b"", 0), Err(Errno::EPERM), "sticky directory of another user");
}

#[test]
fn capabilities_are_removed_when_content_or_owner_change() {
    let mut fs = Fs::new();
    let f = fs.touch(&ROOT_CRED, ROOT, "f", 0o777).unwrap();
    fs.set(&ROOT_CRED, f, "user.keep", b"1", 0).unwrap();
    for change in 0..4 {
        fs.set(&ROOT_CRED, f, "security.capability", b"cap", 0).unwrap();
        match change {
            0 => drop(fs.chown(&ROOT_CRED, f, Some(0), None).unwrap()),
            1 => drop(fs.open(&ROOT_CRED, f, flags::WRONLY | flags::TRUNC).unwrap()),
            2 => {
                fs.chmod(&ROOT_CRED, f, 0o666).unwrap();
                fs.open(&user(1), f, flags::RDONLY).unwrap();
                fs.open(&ROOT_CRED, f, flags::RDWR).unwrap();
                assert_eq!(fs.get(&ROOT_CRED, f, "security.capability").unwrap(), "cap");
                fs.open(&user(1), f, flags::WRONLY).unwrap();
            }
            _ => {
                fs.chmod(&ROOT_CRED, f, 0o666).unwrap();
                let _ = fs.truncate(&user(1), f, 0).unwrap();
            }
        }
        assert_eq!(fs.get(&ROOT_CRED, f, "security.capability"), Err(Errno::ENODATA), "{change}");
    }
    assert_eq!(fs.get(&ROOT_CRED, f, "user.keep").unwrap(), "1");
}

/// The xattr form of an ACL.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

const NONE: u32 = u32::MAX;
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

#[test]
fn access_acls_are_enforced_and_follow_chmod() {
    let mut fs = Fs::new();
    let d = open_dir(&mut fs);
    let me = user(1);
    let f = fs.touch(&me, d, "f", 0o600).unwrap();
    let rw = acl(&[(1, 6, NONE), (2, 6, 50), (4, 0, NONE), (8, 4, 60), (16, 6, NONE), (32, 1, NONE)]);
    assert_eq!(fs.set(&user(2), f, ACCESS, &rw, 0), Err(Errno::EPERM));
    assert_eq!(fs.get(&me, f, ACCESS), Err(Errno::ENODATA));
    fs.set(&me, f, ACCESS, &rw, 0).unwrap();
    assert_eq!(fs.get(&user(9), f, ACCESS).unwrap(), rw);
    assert_eq!(fs.attr(f).perm, 0o661, "the mask shows as the group's bits");
    assert_eq!(fs.names(&me, f), ["lustre.lov", ACCESS]);
    assert_eq!(fs.access(&user(50), f, 6), Ok(()));
    assert_eq!(fs.access(&user_in(9, &[60]), f, 4), Ok(()));
    assert_eq!(fs.access(&user_in(9, &[60]), f, 2), Err(Errno::EACCES));
    assert_eq!(
        fs.access(&user_in(9, &[60]), f, 1),
        Err(Errno::EACCES),
        "a matching group excludes the others' x permission"
    );
    assert_eq!(fs.access(&user(9), f, 1), Ok(()));
    let unknown = |uid| Cred { groups: None, ..user(uid) };
    assert_eq!(fs.access(&unknown(50), f, 6), Ok(()));
    assert_eq!(fs.access(&unknown(9), f, 4), Err(Errno::NEED_GROUPS));
    assert_eq!(fs.access(&unknown(9), f, 1), Err(Errno::NEED_GROUPS));
    assert_eq!(fs.access(&unknown(9), f, 2), Err(Errno::EACCES), "no group would help");
    fs.chmod(&me, f, 0o640).unwrap();
    assert_eq!(fs.access(&user(50), f, 6), Err(Errno::EACCES), "masked");
    assert_eq!(fs.access(&user(50), f, 4), Ok(()));
    assert_eq!(fs.get(&me, f, ACCESS).unwrap()[4 + 4 * 8 + 2], 4, "the mask follows");
    let minimal = acl(&[(1, 7, NONE), (4, 5, NONE), (32, 0, NONE)]);
    fs.set(&me, f, ACCESS, &minimal, 0).unwrap();
    assert_eq!((fs.attr(f).perm, fs.get(&me, f, ACCESS)), (0o750, Err(Errno::ENODATA)));
    assert_eq!(fs.set(&me, f, DEFAULT, &minimal, 0), Err(Errno::EACCES));
    assert_eq!(fs.set(&me, f, ACCESS, &minimal[..20], 0), Err(Errno::EINVAL));
    assert_eq!(fs.unset(&me, f, ACCESS), Ok(()), "as on local file systems");
    let l = fs.symlink(&me, d, "l", "f").unwrap();
    assert_eq!(fs.set(&me, l, ACCESS, &minimal, 0), Err(Errno::EOPNOTSUPP));
}

#[test]
fn default_acls_are_inherited_in_place_of_the_umask() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    fs.chown(&ROOT_CRED, d, Some(1), Some(1)).unwrap();
    let default = acl(&[(1, 7, NONE), (2, 7, 50), (4, 5, NONE), (16, 7, NONE), (32, 0, NONE)]);
    fs.set(&me, d, DEFAULT, &default, 0).unwrap();
    let f = fs.touch(&me, d, "f", 0o666).unwrap();
    assert_eq!(fs.attr(f).perm, 0o660, "umask 022 did not apply");
    let got = acl(&[(1, 6, NONE), (2, 7, 50), (4, 5, NONE), (16, 6, NONE), (32, 0, NONE)]);
    assert_eq!(fs.get(&me, f, ACCESS).unwrap(), got);
    assert_eq!(fs.get(&me, f, DEFAULT), Err(Errno::ENODATA));
    let sub = fs.mkdir(&me, d, "sub", 0o755).unwrap();
    assert_eq!(fs.attr(sub).perm, 0o750);
    assert_eq!(fs.get(&me, sub, DEFAULT).unwrap(), default);
    let minimal = acl(&[(1, 7, NONE), (4, 7, NONE), (32, 7, NONE)]);
    fs.set(&me, d, DEFAULT, &minimal, 0).unwrap();
    let g = fs.touch(&me, d, "g", 0o666).unwrap();
    assert_eq!((fs.attr(g).perm, fs.get(&me, g, ACCESS)), (0o666, Err(Errno::ENODATA)));
    fs.unset(&me, d, DEFAULT).unwrap();
    assert_eq!(fs.get(&me, d, DEFAULT), Err(Errno::ENODATA));
    let h = fs.touch(&me, d, "h", 0o666).unwrap();
    assert_eq!(fs.attr(h).perm, 0o644);
}

fn count(n: u16) -> Vec<u8> {
    Spec { count: Some(Count::Stripes(n)), ..Spec::default() }.encode()
}

#[test]
fn setting_lustre_lov_allocates_the_layout_once() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let f = fs.mknod(&me, d, "f", 0o644).unwrap();
    assert_eq!(fs.get(&me, f, "lustre.lov"), Err(Errno::ENODATA));
    assert_eq!(fs.set(&user(2), f, "lustre.lov", &count(2), 0), Err(Errno::EPERM));
    let bad = Spec { start: Some(99), ..Spec::default() }.encode();
    assert_eq!(fs.set(&me, f, "lustre.lov", &bad, 0), Err(Errno::EINVAL));
    assert_eq!(fs.layout(f), None, "a refused layout leaves the file without one");
    fs.set(&me, f, "lustre.lov", &count(2), 0).unwrap();
    let lov = fs.get(&me, f, "lustre.lov").unwrap();
    let stored = fs.layout(f).unwrap();
    assert_eq!(lov.len(), 32 + 2 * 24);
    // As in the reference's 070: stripe size, stripe count, then ffff in place of the generation.
    assert_eq!(
        (&lov[24..32], &stored[24..32]),
        (b"\0\0\x40\0\x02\0\xff\xff".as_slice(), b"\0\0\x40\0\x02\0\0\0".as_slice())
    );
    assert!(lov[..30] == stored[..30] && lov[32..] == stored[32..], "nothing else differs");
    assert_eq!(fs.get(&ROOT_CRED, f, "trusted.lov").unwrap(), lov);
    assert_eq!(fs.get(&me, f, "trusted.lov"), Err(Errno::ENODATA));
    assert_eq!(fs.set(&me, f, "lustre.lov", &count(3), CREATE), Err(Errno::EEXIST));
    let before = fs.attr(f);
    assert_eq!(fs.set(&me, f, "lustre.lov", &count(3), 0), Ok(()), "a restored archive may say what is there already");
    assert_eq!(fs.set(&ROOT_CRED, f, "trusted.lov", &lov, 0), Ok(()));
    assert_eq!(fs.unset(&me, f, "lustre.lov"), Ok(()));
    assert_eq!((fs.layout(f), fs.attr(f)), (Some(stored), before), "neither request changes anything");
    assert_eq!(fs.get(&me, f, "lustre.nosuch"), Err(Errno::ENODATA));
    // A layout is copied through its xattr; the copy gets objects of its own.
    let copy = fs.mknod(&me, d, "copy", 0o644).unwrap();
    fs.set(&me, copy, "lustre.lov", &lov, 0).unwrap();
    fs.check();
    let fifo = fs.make(&me, d, "p", NewNode::Node { kind: FileKind::Fifo, rdev: 0 }, 0o644).unwrap();
    assert_eq!(fs.set(&me, fifo, "lustre.lov", &count(2), 0), Err(Errno::EOPNOTSUPP));
}

#[test]
fn directory_defaults_are_inherited() {
    let mut fs = Fs::new();
    let me = user(1);
    let d = open_dir(&mut fs);
    let stripes = |fs: &mut Fs, f| {
        let layout = Layout::decode(&fs.layout(f).unwrap()).unwrap();
        (layout.stripe_count(), layout.stripe_size())
    };
    assert_eq!(fs.set(&me, d, "lustre.lov", &count(3), 0), Err(Errno::EPERM));
    fs.set(&ROOT_CRED, d, "lustre.lov", &count(3), 0).unwrap();
    assert_eq!(fs.get(&me, d, "lustre.lov").unwrap(), count(3));
    let f = fs.touch(&me, d, "f", 0o644).unwrap();
    assert_eq!(stripes(&mut fs, f), (3, 4 << 20));
    let sub = fs.mkdir(&me, d, "sub", 0o755).unwrap();
    assert_eq!(fs.get(&me, sub, "lustre.lov").unwrap(), count(3));
    let late = fs.mknod(&me, sub, "late", 0o644).unwrap();
    fs.open(&me, late, flags::RDWR).unwrap();
    assert_eq!(stripes(&mut fs, late), (3, 4 << 20));
    // The root's default fills open parameters everywhere, and is not copied.
    let size = Spec { stripe_size: Some(65536), count: Some(Count::Stripes(2)), ..Spec::default() };
    fs.set(&ROOT_CRED, ROOT, "lustre.lov", &size.encode(), 0).unwrap();
    let g = fs.touch(&me, sub, "g", 0o644).unwrap();
    assert_eq!(stripes(&mut fs, g), (3, 65536));
    let e = fs.mkdir(&ROOT_CRED, ROOT, "e", 0o755).unwrap();
    assert_eq!(fs.get(&me, e, "lustre.lov"), Err(Errno::ENODATA));
    let h = fs.touch(&ROOT_CRED, e, "h", 0o644).unwrap();
    assert_eq!(stripes(&mut fs, h), (2, 65536));
    // A user's request is not completed by either default, as in Lustre.
    for (parent, spec, want) in [
        (e, count(3), (3, 4 << 20)),
        (e, Spec { stripe_size: Some(131_072), ..Spec::default() }.encode(), (1, 131_072)),
        (sub, Spec { stripe_size: Some(131_072), ..Spec::default() }.encode(), (1, 131_072)),
    ] {
        let own = fs.mknod(&ROOT_CRED, parent, "own", 0o644).unwrap();
        fs.set(&ROOT_CRED, own, "lustre.lov", &spec, 0).unwrap();
        assert_eq!(stripes(&mut fs, own), want);
        fs.unlink(&ROOT_CRED, parent, "own").unwrap();
    }
    let bad = Spec { start: Some(99), ..Spec::default() }.encode();
    assert_eq!(fs.set(&ROOT_CRED, e, "lustre.lov", &bad, 0), Err(Errno::EINVAL));
    // The file system's defaults, whatever the defaults of directories.
    let system = Spec { stripe_size: Some(4 << 20), count: Some(Count::Stripes(1)), ..Spec::default() }.encode();
    for fid in [ROOT, e, h] {
        assert_eq!(fs.get(&me, fid, "lustre.lov.default").unwrap(), system);
    }
    assert_eq!(fs.set(&ROOT_CRED, ROOT, "lustre.lov.default", &system, 0), Err(Errno::EOPNOTSUPP));
    fs.set(&ROOT_CRED, d, "lustre.lov", &Spec::default().encode(), 0).unwrap();
    assert_eq!(fs.get(&me, d, "lustre.lov"), Err(Errno::ENODATA), "requesting nothing removes it");
    assert_eq!(fs.unset(&me, sub, "lustre.lov"), Ok(()));
    assert_eq!(fs.unset(&me, sub, "lustre.lov"), Ok(()));
    assert_eq!(fs.get(&me, sub, "lustre.lov"), Err(Errno::ENODATA));
}

#[test]
fn link_and_lma_have_lustres_bytes() {
    let mut fs = Fs::new();
    let f = fs.touch(&ROOT_CRED, ROOT, "plain", 0o644).unwrap();
    let hex = |b: &[u8]| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
    // As in the reference's 070-xattr.txt, except for the FIDs.
    let header = "dff1ea11010000002f00000000000000000000000000000000";
    let entry = "1700000002000000070000000100000000706c61696e";
    assert_eq!(hex(&fs.get(&ROOT_CRED, f, "trusted.link").unwrap()), format!("{header}{entry}"));
    assert_eq!(f, Fid::new(0x2_0000_0401, 1));
    assert_eq!(hex(&fs.get(&ROOT_CRED, f, "trusted.lma").unwrap()), "000000000000000001040000020000000100000000000000");
    fs.link(&ROOT_CRED, f, ROOT, "second").unwrap();
    let two = fs.get(&ROOT_CRED, f, "trusted.link").unwrap();
    assert_eq!((two[4], two[8] as usize, two.len()), (2, two.len(), 24 + 18 + 5 + 18 + 6));
    assert_eq!(fs.set(&ROOT_CRED, f, "trusted.lma", b"x", 0), Ok(()), "archives can be restored");
    assert_eq!(fs.get(&user(1), f, "trusted.lma"), Err(Errno::ENODATA));
    assert_eq!(fs.get(&ROOT_CRED, ROOT, "trusted.link"), Err(Errno::ENODATA));
}
