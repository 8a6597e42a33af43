//! The files that a client can reach, and its rights on them.

use crate::common::*;
use sheen_namespace::{ClientId, EXEC, READ, Reach, WRITE};
use sheen_wire::{Cred, Errno, Fid, fid::ROOT, mds::flags, nodemap::Nodemap};

const CLIENT: ClientId = ClientId(7);

/// Directories `a` (mode 755), `a/b` (700 of user 1), and files `a/b/f` (644 of user 1), `g` (640).
fn tree() -> (Fs, [Fid; 4]) {
    let mut fs = Fs::new();
    let a = fs.mkdir(&Cred::ROOT, ROOT, "a", 0o755).unwrap();
    let b = fs.mkdir(&Cred::ROOT, a, "b", 0o700).unwrap();
    let f = fs.touch(&Cred::ROOT, b, "f", 0o644).unwrap();
    for fid in [b, f] {
        fs.chown(&Cred::ROOT, fid, Some(1), Some(1)).unwrap();
    }
    let g = fs.touch(&Cred::ROOT, ROOT, "g", 0o640).unwrap();
    (fs, [a, b, f, g])
}

fn reaches(fs: &mut Fs, cred: Option<&Cred>, top: Fid, fids: &[Fid]) -> Vec<bool> {
    let mut reach = Reach::new(cred, top);
    fids.iter().map(|fid| fs.ns.reaches(CLIENT, *fid, &mut reach).unwrap()).collect()
}

#[test]
fn user_reaches_files_by_paths_that_it_may_search() {
    let (mut fs, all) = tree();
    assert_eq!(reaches(&mut fs, Some(&user(2)), ROOT, &all), [true, true, false, true]);
    assert_eq!(reaches(&mut fs, Some(&user(1)), ROOT, &all), [true; 4], "the owner");
    assert_eq!(reaches(&mut fs, None, ROOT, &all), [true; 4], "a trusted client");
    let unknown = Fid::new(0x2_0000_0999, 1);
    assert_eq!(reaches(&mut fs, Some(&user(2)), ROOT, &[ROOT, unknown]), [true, true]);
}

#[test]
fn client_with_a_top_reaches_only_what_is_below_it() {
    let (mut fs, all @ [a, b, f, _]) = tree();
    for cred in [None, Some(&user(1)), Some(&Cred::ROOT)] {
        assert_eq!(reaches(&mut fs, cred, b, &all), [false, true, true, false], "{cred:?}");
        assert_eq!(reaches(&mut fs, cred, a, &[ROOT, a, b, f]), [false, true, true, true], "{cred:?}");
    }
    assert_eq!(reaches(&mut fs, Some(&user(2)), b, &[f]), [false], "it may not search the top");
    // A directory above that nobody may search does not matter.
    fs.chmod(&Cred::ROOT, a, 0).unwrap();
    assert_eq!(reaches(&mut fs, Some(&user(1)), b, &[f]), [true]);
    // A further name outside changes nothing; the only name inside does.
    fs.link(&Cred::ROOT, f, ROOT, "h").unwrap();
    assert_eq!(reaches(&mut fs, None, b, &[f]), [true]);
    fs.unlink(&Cred::ROOT, b, "f").unwrap();
    assert_eq!(reaches(&mut fs, None, b, &[f]), [false]);
}

#[test]
fn client_reaches_a_file_with_more_names_than_are_stored_only_without_a_top() {
    let (mut fs, [a, _, _, g]) = tree();
    let long = "x".repeat(200);
    for i in 0..200 {
        fs.link(&Cred::ROOT, g, ROOT, &format!("{long}{i}")).unwrap();
    }
    assert_eq!(reaches(&mut fs, Some(&user(2)), ROOT, &[g]), [true]);
    assert_eq!(reaches(&mut fs, None, a, &[g]), [false]);
}

/// A nodemap with these users and groups, which squashes all others to user and group 99.
fn nodemap(uids: &[u32], gids: &[u32]) -> Nodemap {
    let same = |ids: &[u32]| ids.iter().map(|id| (*id, *id)).collect();
    let (uids, gids) = (same(uids), same(gids));
    Nodemap { uids, gids, squash_uid: 99, squash_gid: 99, ..Nodemap::new("a") }
}

#[test]
fn rights_of_all_users_are_the_largest_that_one_of_them_has() {
    let (mut fs, [_, b, f, g]) = tree();
    let client = fs.client;
    let mut rights = |nodemap: &Nodemap, fid| fs.ns.rights_of_all(client, nodemap, fid).unwrap();
    let all = READ | WRITE | EXEC;
    assert_eq!(rights(&nodemap(&[1], &[]), f), all, "the owner");
    assert_eq!(rights(&Nodemap { admin: true, ..nodemap(&[], &[]) }, f), all, "the superuser");
    assert_eq!((rights(&nodemap(&[2], &[]), f), rights(&nodemap(&[2], &[]), g)), (READ, 0), "by the bits of others");
    assert_eq!(rights(&nodemap(&[2], &[0]), g), READ, "by those of the group");
    assert_eq!(rights(&nodemap(&[], &[]), b), 0);
    assert_eq!(rights(&Nodemap { deny_unknown: true, ..nodemap(&[], &[]) }, f), 0, "it has no user");
    fs.chmod(&Cred::ROOT, f, 0).unwrap();
    let opened = fs.open(&Cred::ROOT, f, flags::WRONLY).unwrap();
    assert_eq!(fs.ns.rights_of_all(client, &nodemap(&[], &[]), f), Ok(WRITE), "by the open file of the client");
    assert_eq!(fs.ns.rights_of_all(ClientId(8), &nodemap(&[], &[]), f), Ok(0));
    fs.close(opened).unwrap();
}

#[test]
fn access_control_list_gives_rights_to_the_users_and_groups_that_it_names() {
    let (mut fs, [.., g]) = tree();
    let client = fs.client;
    // User 5: rw; group 0: r; group 6: rwx; mask: rw; others: none.
    let entries: [(u16, u16, u32); 6] = [(1, 6, !0), (2, 6, 5), (4, 4, !0), (8, 7, 6), (16, 6, !0), (32, 0, !0)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend([&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    fs.set(&Cred::ROOT, g, "system.posix_acl_access", &value, 0).unwrap();
    let mut rights = |uids: &[u32], gids: &[u32]| fs.ns.rights_of_all(client, &nodemap(uids, gids), g).unwrap();
    assert_eq!((rights(&[5], &[]), rights(&[], &[6]), rights(&[], &[0])), (READ | WRITE, READ | WRITE, READ));
    assert_eq!(rights(&[7], &[7]), 0);
}

#[test]
fn orphan_is_reached_by_its_owner_without_a_top() {
    let (mut fs, [a, b, f, _]) = tree();
    let opened = fs.open(&user(1), f, flags::RDWR).unwrap();
    fs.unlink(&Cred::ROOT, b, "f").unwrap();
    let (own, other) = (fs.client, ClientId(8));
    let mut reach = |client, uid, top| fs.ns.reaches(client, f, &mut Reach::new(Some(&user(uid)), top)).unwrap();
    assert_eq!((reach(other, 1, ROOT), reach(other, 1, a), reach(other, 2, ROOT)), (true, false, false));
    assert_eq!((reach(own, 1, a), reach(own, 2, a)), (true, true), "that client has it open");
    assert_eq!((fs.ns.has_name(f), fs.ns.has_name(b)), (Ok(false), Ok(true)));
    fs.close(opened).unwrap();
}

#[test]
fn directory_is_found_by_its_path() {
    let (mut fs, [a, b, ..]) = tree();
    let mut at = |top, path| fs.ns.dir_at(top, path, None);
    assert_eq!((at(ROOT, ""), at(ROOT, "/a/b"), at(a, "b/")), (Ok(ROOT), Ok(b), Ok(b)));
    assert_eq!(
        (at(ROOT, "b"), at(ROOT, "g"), at(ROOT, "g/x")),
        (Err(Errno::ENOENT), Err(Errno::ENOTDIR), Err(Errno::ENOTDIR))
    );
    let mut as_user = |path| fs.ns.dir_at(ROOT, path, Some(&user(2)));
    assert_eq!((as_user("a/b"), as_user("a/b/x"), as_user("a/x")), (Ok(b), Err(Errno::EACCES), Err(Errno::ENOENT)));
}
