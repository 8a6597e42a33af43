//! Tests against the output of a real Lustre for the same directories.

use sheen_layout::lmv::{HashType, INHERIT_OVERSTRIPED, INHERIT_STRIPED, LmvMds};

use super::{
    super::testing::{Fake, UNREADABLE, check_case},
    *,
};

/// The file system of the captures: two MDTs, plain and striped directories.
fn recorded() -> Fake {
    let mut fake = Fake::new("/mnt/c1");
    for (name, mdt) in [("md1", "1"), ("md1/sub2", "1"), ("plain", "0")] {
        fake.dir(name);
        fake.attribute(name, control::MDT, mdt.as_bytes());
    }
    fake.file("c2", "[0x200000402:0x1b9:0x0]", None);
    let on = |fid: Fid| u32::from(matches!(fid.seq, 0x2_4000_0400 | 0x2_4000_0401));
    let mut striped = |name: &str, master, hash, fids: &[(u64, u32)]| {
        fake.dir(name);
        let fids = fids.iter().map(|(seq, oid)| Fid::new(*seq, *oid)).collect();
        fake.attribute(name, "lustre.lmv", &LmvMds::new(master, HashType(hash), fids).to_user(on).encode());
    };
    striped("mdc2", 0, 2, &[(0x2_0000_0400, 5), (0x2_4000_0401, 5)]);
    striped("mdcr", 1, 3, &[(0x2_4000_0400, 5), (0x2_0000_0401, 4)]);
    let over = [(0x2_4000_0400, 0xa), (0x2_0000_0401, 9), (0x2_4000_0400, 0xb)];
    striped("mdC3", 1, 0x0100_0002, &over);
    striped("md1/sub", 1, 2, &[(0x2_4000_0400, 0x11), (0x2_0000_0401, 0xf)]);
    fake.attribute("mdc2", control::FID, b"[0x200000402:0xae:0x0]");
    fake.attribute("mdC3", control::FID, b"[0x240000402:0x26:0x0]");
    fake.attribute("plain", control::FID, b"[0x200000402:0x7:0x0]");
    fake
}

#[test]
fn getdirstripe_refuses_directories_that_the_caller_may_not_read() {
    let mut fake = recorded();
    fake.attribute("plain", UNREADABLE, b"");
    for options in ["", "-D "] {
        let refused = "[exit 13]\n--- stderr
lfs getdirstripe: llapi_semantic_traverse: Failed to open 'plain': Permission denied (13)
lfs: getdirstripe for 'plain' failed: Permission denied
";
        check_case(&mut fake, &format!("$ lfs getdirstripe {options}plain\n{refused}"));
    }
}

#[test]
fn getdirstripe_prints_layouts_like_lustre() {
    let mut fake = recorded();
    for case in [
        "$ lfs getdirstripe md1\n[exit 0]\n--- stdout\nlmv_stripe_count: 0 lmv_stripe_offset: 1 lmv_hash_type: none\n",
        "$ lfs getdirstripe mdc2\n[exit 0]\n--- stdout
lmv_stripe_count: 2 lmv_stripe_offset: 0 lmv_hash_type: fnv_1a_64
mdtidx\t\t FID[seq:oid:ver]
     0\t\t [0x200000400:0x5:0x0]\t\t
     1\t\t [0x240000401:0x5:0x0]\t\t
",
        "$ lfs getdirstripe -v mdc2\n[exit 0]\n--- stdout
lmv_fid: 0x200000402:0xae:0x0 lmv_magic: 0xcd20cd0 lmv_stripe_count: 2 lmv_stripe_offset: 0 lmv_hash_type: fnv_1a_64
mdtidx\t\t FID[seq:oid:ver]
     0\t\t [0x200000400:0x5:0x0]\t\t
     1\t\t [0x240000401:0x5:0x0]\t\t
",
        "$ lfs getdirstripe -y mdc2\n[exit 0]\n--- stdout
lmv_stripe_count:  2
lmv_stripe_offset: 0
lmv_hash_type:     fnv_1a_64
lmv_objects:
      - l_mdt_idx: 0
        l_fid:     0x200000400:0x5:0x0
      - l_mdt_idx: 1
        l_fid:     0x240000401:0x5:0x0
",
        "$ lfs getdirstripe -c mdc2\n[exit 0]\n--- stdout\n2\n",
        "$ lfs getdirstripe -T mdc2\n[exit 0]\n--- stdout\n2\n",
        "$ lfs getdirstripe -m mdc2\n[exit 0]\n--- stdout\n0\n",
        "$ lfs getdirstripe -i mdc2\n[exit 0]\n--- stdout\n0\n",
        "$ lfs getdirstripe -H mdc2\n[exit 0]\n--- stdout\nfnv_1a_64\n",
        "$ lfs getdirstripe -c -H mdc2\n[exit 0]\n--- stdout\nlmv_stripe_count: 2 lmv_hash_type: fnv_1a_64\n",
        "$ lfs getdirstripe -F mdc2\n[exit 0]\n--- stdout\n0x200000402:0xae:0x0\n",
        "$ lfs getdirstripe -O 1 mdc2\n[exit 22]\n--- stderr
lfs getdirstripe: error: llapi_ostlist: unknown obduuid: 1
lfs: getdirstripe for 'mdc2' failed: Invalid argument
",
        "$ lfs getdirstripe mdcr\n[exit 0]\n--- stdout
lmv_stripe_count: 2 lmv_stripe_offset: 1 lmv_hash_type: crush
mdtidx\t\t FID[seq:oid:ver]
     1\t\t [0x240000400:0x5:0x0]\t\t
     0\t\t [0x200000401:0x4:0x0]\t\t
",
        "$ lfs getdirstripe -v mdC3\n[exit 0]\n--- stdout
lmv_fid: 0x240000402:0x26:0x0 lmv_magic: 0xcd20cd0 lmv_stripe_count: 3 lmv_stripe_offset: 1 lmv_hash_type: fnv_1a_64,overstriped
mdtidx\t\t FID[seq:oid:ver]
     1\t\t [0x240000400:0xa:0x0]\t\t
     0\t\t [0x200000401:0x9:0x0]\t\t
     1\t\t [0x240000400:0xb:0x0]\t\t
",
        "$ lfs getdirstripe c2\n[exit 0]\n",
        "$ lfs getdirstripe nosuch\n[exit 2]\n--- stderr\nlfs: getdirstripe for 'nosuch' failed: No such file or directory\n",
        "$ lfs getdirstripe /tmp\n[exit 25]\n--- stderr
lfs getdirstripe: cb_getstripe: '/tmp' not on a Lustre fs?: Inappropriate ioctl for device (25)
lfs: getdirstripe for '/tmp' failed: Inappropriate ioctl for device
",
    ] {
        check_case(&mut fake, case);
    }
}

#[test]
fn getdirstripe_prints_defaults_like_lustre() {
    let mut fake = recorded();
    let mut default = |name: &str, lmv: LmvUser| fake.attribute(name, "lustre.dmv", &lmv.encode());
    default("mdc2", LmvUser::root_default().inherited(2).unwrap());
    let five = LmvUser { max_inherit: 5, max_inherit_rr: 2, ..LmvUser::new(2) };
    default("md1", five);
    let over = HashType(HashType::OVERSTRIPED);
    default("mdcr", LmvUser { hash: over, max_inherit: INHERIT_OVERSTRIPED, ..LmvUser::new(4) });
    default("mdC3", LmvUser { max_inherit: INHERIT_STRIPED, mdt: Some(1), ..LmvUser::new(1) });
    for case in [
        "$ lfs getdirstripe -D mdc2\n[exit 0]\n--- stdout
lmv_stripe_count: 1 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: -1 lmv_max_inherit_rr: 1
",
        "$ lfs getdirstripe -D md1\n[exit 0]\n--- stdout
lmv_stripe_count: 2 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: 5 lmv_max_inherit_rr: 2
",
        "$ lfs getdirstripe -y -D md1\n[exit 0]\n--- stdout
lmv_stripe_count:  2
lmv_stripe_offset: -1
lmv_hash_type:     none
lmv_max_inherit:   5
lmv_max_inherit_rr: 2
",
        "$ lfs getdirstripe -D mdcr\n[exit 0]\n--- stdout
lmv_stripe_count: 4 lmv_stripe_offset: -1 lmv_hash_type: none,overstriped lmv_max_inherit: 2 lmv_max_inherit_rr: 0
",
        "$ lfs getdirstripe -D mdC3\n[exit 0]\n--- stdout
lmv_stripe_count: 1 lmv_stripe_offset: 1 lmv_hash_type: none lmv_max_inherit: 3 lmv_max_inherit_rr: 0
",
        "$ lfs getdirstripe -D -X mdC3\n[exit 0]\n--- stdout\n3\n",
        "$ lfs getdirstripe -D --max-inherit-rr md1\n[exit 0]\n--- stdout\n2\n",
        // No default is in force, and none is stored.
        "$ lfs getdirstripe -D plain\n[exit 0]\n--- stdout
lmv_stripe_count: 0 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: -1 lmv_max_inherit_rr: 0
",
        "$ lfs getdirstripe -D -R md1\n[exit 0]\n",
    ] {
        check_case(&mut fake, case);
    }
}

#[test]
fn getdirstripe_prints_trees_and_single_mdts_like_lustre() {
    let mut fake = recorded();
    fake.node("link", FileKind::Symlink, "plain");
    for case in [
        "$ lfs getdirstripe -r md1\n[exit 0]\n--- stdout
md1
lmv_stripe_count: 0 lmv_stripe_offset: 1 lmv_hash_type: none
md1/sub
lmv_stripe_count: 2 lmv_stripe_offset: 1 lmv_hash_type: fnv_1a_64
mdtidx\t\t FID[seq:oid:ver]
     1\t\t [0x240000400:0x11:0x0]\t\t
     0\t\t [0x200000401:0xf:0x0]\t\t
md1/sub2
lmv_stripe_count: 0 lmv_stripe_offset: 1 lmv_hash_type: none
",
        "$ lfs getdirstripe -O lustre-MDT0001_UUID mdc2 md1 plain\n[exit 0]\n--- stdout
mdc2
lmv_stripe_count: 2 lmv_stripe_offset: 0 lmv_hash_type: fnv_1a_64
mdtidx\t\t FID[seq:oid:ver]
     1\t\t [0x240000401:0x5:0x0]\t\t *
lmv_stripe_count: 0 lmv_stripe_offset: 1 lmv_hash_type: none
",
        "$ lfs getdirstripe --hex-idx mdc2\n[exit 0]\n--- stdout
lmv_stripe_count: 2 lmv_stripe_offset: 0 lmv_hash_type: fnv_1a_64
mdtidx\t\t FID[seq:oid:ver]
     0\t\t [0x200000400:0x5:0x0]\t\t
   0x1\t\t [0x240000401:0x5:0x0]\t\t
",
        "$ lfs getdirstripe -y link\n[exit 0]\n--- stdout
lmv_stripe_count:  0
lmv_stripe_offset: 0
lmv_hash_type:     none
lmv_objects:
      - l_mdt_idx: 0
        l_fid:     0x200000402:0x7:0x0
",
        "$ lfs getdirstripe -t md1\n[exit 0]\n--- stdout\nnone\n--- stderr
warning: '-t' deprecated, use '--mdt-hash' or '-H' instead
",
    ] {
        check_case(&mut fake, case);
    }
    for (line, err) in
        [("-Z md1", "lfs: unrecognized option '-Z'\n"), ("-O a -O b md1", "lfs: only one obduuid allowed\n")]
    {
        check_case(&mut fake, &format!("$ lfs getdirstripe {line}\n[exit 4]\n--- stdout\n{USAGE}--- stderr\n{err}"));
    }
    check_case(&mut fake, &format!("$ lfs getdirstripe -D\n[exit 4]\n--- stdout\n{USAGE}"));
}

#[test]
fn getdirstripe_refuses_malformed_lmv() {
    let mut fake = recorded();
    for bytes in [&b""[..], b"\xd0\x0c\xd3\x0c", &[0xff; 48], &[0; 4096]] {
        fake.attribute("plain", "lustre.lmv", bytes);
        check_case(
            &mut fake,
            "$ lfs getdirstripe plain\n[exit 22]\n--- stderr\nlfs: getdirstripe for 'plain' failed: Invalid argument\n",
        );
    }
}
