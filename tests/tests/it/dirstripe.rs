//! Directory striping on a mount, with Lustre's commands: `lfs mkdir`, `lfs setdirstripe`,
//! `lfs getdirstripe`.

use std::{fs, os::unix::fs::PermissionsExt};

use rustix::fs::XattrFlags;
use sheen_layout::lmv::{HashType, LmvMds, LmvUser, MDS_BYTES, MDS_STRIPE_BYTES};
use sheen_tests::{Fs, is_root, mounts::as_nobody, run_command, sh};
use sheen_wire::Fid;

/// Returns what `lfs getdirstripe` prints, with the directory's own FID replaced by `OWN`.
fn shown(fs: &Fs, dir: &str) -> String {
    let fid = fs.lfs(&format!("path2fid {dir}")).ok();
    fs.lfs(&format!("getdirstripe {dir}")).ok().replace(fid.trim(), "OWN")
}

const PLAIN: &str = "lmv_stripe_count: 0 lmv_stripe_offset: 0 lmv_hash_type: none\n";

fn striped(count: usize, hash: &str) -> String {
    let rows = "     0\t\t OWN\t\t\n".repeat(count);
    format!(
        "lmv_stripe_count: {count} lmv_stripe_offset: 0 lmv_hash_type: {hash},overstriped\nmdtidx\t\t FID[seq:oid:ver]\n{rows}"
    )
}

fn get(fs: &Fs, dir: &str, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 65536];
    let n = rustix::fs::getxattr(fs.path(dir), name, &mut value[..]).ok()?;
    value.truncate(n);
    Some(value)
}

#[test]
fn mkdir_makes_directories_like_lustre_with_one_mdt() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    for (i, (options, want)) in [
        ("", PLAIN.to_owned()),
        ("-c 1", PLAIN.to_owned()),
        ("-c 2", PLAIN.to_owned()),
        ("-c -1", PLAIN.to_owned()),
        ("-i 0", PLAIN.to_owned()),
        ("-i -1 -c 2000", PLAIN.to_owned()),
        ("-C 1", PLAIN.to_owned()),
        ("-C 4", striped(4, "fnv_1a_64")),
        ("-C 11", striped(5, "fnv_1a_64")),
        ("-C -2 -H crush", striped(2, "crush")),
        ("-C -5", striped(5, "fnv_1a_64")),
        ("-i 0,0,0 -H all_char", striped(3, "all_char")),
        ("--mdt-overcount=2 --mdt-hash=4", striped(2, "crush2")),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("d{i}");
        let command = if i % 2 == 0 { "mkdir" } else { "setdirstripe" };
        let made = fs.lfs(&format!("{command} {options} {name}"));
        assert_eq!((made.code, made.out.as_str(), made.err.as_str()), (0, "", ""), "{options}");
        assert_eq!(shown(&fs, &name), want, "{options}");
    }
    assert_eq!(fs.lfs("getdirstripe .").ok(), PLAIN);
    fs.lfs("mkdir -o 700 -c 1 mode").ok();
    assert_eq!(fs::metadata(fs.path("mode")).unwrap().permissions().mode(), 0o40700);
    assert_eq!(fs.sh("umask 077; mkdir usual; stat -c %a usual").ok(), "700\n");
    fs.sh(&format!("umask 027; '{}' lfs mkdir asked; stat -c %a asked | grep -x 750", sheen_tests::sheen().display()))
        .ok();
}

#[test]
fn refused_mkdir_and_setdirstripe_change_nothing() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    fs.lfs("mkdir d").ok();
    for (line, code, err) in [
        (
            "mkdir -i 1 e",
            19,
            "lfs mkdir: cannot find MDT sheen-MDT0001_UUID in system: No such device (19)
lfs setdirstripe: cannot create dir 'e': No such device\n",
        ),
        (
            "mkdir -i 0,1 e",
            19,
            "lfs mkdir: cannot find MDT sheen-MDT0001_UUID in system: No such device (19)
lfs setdirstripe: cannot create dir 'e': No such device\n",
        ),
        (
            "setdirstripe -D -i 1 d",
            19,
            "lfs setdirstripe: cannot find MDT sheen-MDT0001_UUID in system: No such device (19)
lfs setdirstripe: cannot set default stripe on dir 'd': No such device\n",
        ),
        (
            "setdirstripe -c 2 d",
            17,
            "lfs setdirstripe: dirstripe error on 'd': stripe already set
lfs setdirstripe: cannot create dir 'd': File exists\n",
        ),
        (
            "mkdir /proc/e",
            19,
            "lfs mkdir: '/proc/e' is not on a Lustre filesystem: No such device (19)
lfs setdirstripe: cannot create dir '/proc/e': No such device\n",
        ),
    ] {
        let ran = fs.lfs(line);
        assert_eq!((ran.code, ran.err.as_str()), (code, err), "{line}");
    }
    assert!(!fs.path("e").exists());
    assert_eq!(fs.sh("ls").ok(), "d\n");
}

#[test]
fn striped_directory_behaves_like_a_plain_one() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    fs.lfs("mkdir -C 5 -H crush d").ok();
    fs.sh("cd d && for i in $(seq 200); do echo $i > f$i; done && mkdir s && mv f1 s/f1 && ln f2 s/f2").ok();
    assert_eq!(fs.sh("ls d | wc -l; cat d/s/f1 d/s/f2 d/f200; find d -type f | wc -l").ok(), "200\n1\n2\n200\n201\n");
    // A directory that has entries keeps its striping.
    let value = LmvUser::new(1).encode();
    let refused = rustix::fs::setxattr(fs.path("d"), "lustre.lmv", &value, XattrFlags::empty());
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));
    let second = fs.second_mount();
    assert_eq!(fs::read_dir(second.path("d")).unwrap().count(), 200);
    fs.sh("rm -r d").ok();
    assert!(!second.path("d").exists());
}

#[test]
fn default_dirstripes_are_inherited_and_survive_a_restart() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    fs.sh("mkdir md1").ok();
    assert_eq!(
        fs.lfs("getdirstripe -D . md1").ok(),
        "lmv_stripe_count: 1 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: -1 lmv_max_inherit_rr: 3
lmv_stripe_count: 1 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: -1 lmv_max_inherit_rr: 2\n"
    );
    fs.lfs("setdirstripe -D -c 2 md1").ok();
    assert_eq!(
        fs.lfs("getdirstripe -D md1").ok(),
        "lmv_stripe_count: 2 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: 3 lmv_max_inherit_rr: 0\n"
    );
    fs.lfs("setdirstripe -D -i 0 -c 1 -X 3 md1").ok();
    fs.sh("mkdir md1/sub2").ok();
    assert_eq!(
        fs.lfs("getdirstripe -D md1/sub2").ok(),
        "lmv_stripe_count: 1 lmv_stripe_offset: 0 lmv_hash_type: none lmv_max_inherit: 2 lmv_max_inherit_rr: 0\n"
    );
    fs.lfs("setdirstripe -D -d md1").ok();
    assert_eq!(fs.lfs("getdirstripe -D --max-inherit-rr md1").ok(), "2\n", "the root's default again");
    fs.lfs("setdirstripe -D -C 4 md1").ok();
    fs.sh("mkdir -p md1/a/b/c").ok();
    // An explicit striping replaces the inherited one.
    fs.lfs("mkdir md1/asked").ok();
    let all = || {
        ["md1", "md1/a", "md1/a/b", "md1/a/b/c", "md1/asked"]
            .map(|d| fs.lfs(&format!("getdirstripe -c {d}")).ok() + &fs.lfs(&format!("getdirstripe -D -c {d}")).ok())
    };
    let want = ["0\n4\n", "4\n4\n", "4\n1\n", "0\n1\n", "0\n1\n"];
    assert_eq!(all(), want);
    let tree = fs.lfs("getdirstripe -r -c md1").ok();
    assert_eq!(tree.lines().count(), 2 * 6, "md1, sub2, a, b, c, asked: {tree}");
    fs.stop().ok();
    fs.start(&["--listen", "127.0.0.1:0"]).ok();
    assert_eq!(all(), want, "after a restart");
}

#[test]
fn lmv_xattrs_have_lustres_byte_format() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    if !is_root() {
        return println!("skipped: trusted attributes are root's");
    }
    fs.lfs("mkdir -C 3 d").ok();
    let fid: Fid = fs.lfs("path2fid d").ok().trim().parse().unwrap();
    let hash = HashType::FNV_1A_64.with(HashType::OVERSTRIPED);
    let stored = get(&fs, "d", "trusted.lmv").unwrap();
    assert_eq!(stored.len(), MDS_BYTES + 3 * MDS_STRIPE_BYTES);
    assert_eq!(stored, LmvMds::new(0, hash, vec![fid; 3]).encode());
    assert_eq!(get(&fs, "d", "trusted.dmv"), None);

    // A default from an archive, with bytes that this version does not use.
    let mut value = LmvUser { max_inherit: 7, ..LmvUser::new(-1) }.encode();
    value[28..32].copy_from_slice(b"pad!");
    rustix::fs::setxattr(fs.path("d"), "trusted.dmv", &value, XattrFlags::CREATE).unwrap();
    assert_eq!(get(&fs, "d", "trusted.dmv").unwrap(), value);
    assert_eq!(
        fs.lfs("getdirstripe -D -R d").ok(),
        "lmv_stripe_count: -1 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: 7 lmv_max_inherit_rr: 0\n"
    );
    // Stripes of another directory are accepted and have no effect.
    let other = LmvMds::new(1, HashType::DEFAULT, vec![Fid::new(0x2_4000_0400, 9); 2]);
    rustix::fs::setxattr(fs.path("d"), "trusted.lmv", &other.encode(), XattrFlags::empty()).unwrap();
    assert_eq!(get(&fs, "d", "trusted.lmv").unwrap(), stored);
    for (name, bytes) in [("trusted.dmv", &value[..47]), ("trusted.dmv", b"x"), ("lustre.lmv", b"")] {
        let refused = rustix::fs::setxattr(fs.path("d"), name, bytes, XattrFlags::empty());
        assert_eq!(refused, Err(rustix::io::Errno::INVAL), "{name} {bytes:?}");
    }
    assert_eq!(get(&fs, "d", "trusted.dmv").unwrap(), value);
}

#[test]
fn users_stripe_only_their_own_directories() {
    let Some(fs) = Fs::up_or_skip(1) else { return };
    if !is_root() {
        return println!("skipped: needs root to become another user");
    }
    let lfs = format!("'{}' lfs", sheen_tests::sheen().display());
    fs.sh("mkdir theirs roots; chmod 777 theirs").ok();
    let nobody = |script: &str| {
        let mut command = as_nobody(&script.replace("lfs", &lfs));
        command.current_dir(&fs.mnt);
        run_command(command)
    };
    let refused = nobody("lfs mkdir -C 2 theirs/d");
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (
            1,
            "lfs mkdir: dirstripe error on 'theirs/d': Operation not permitted
lfs setdirstripe: cannot create dir 'theirs/d': Operation not permitted\n"
        )
    );
    assert!(!fs.path("theirs/d").exists());
    sh(&format!("'{}' lctl set_param -n mdt.*.enable_remote_dir_gid=-1", sheen_tests::sheen().display())).ok();
    assert_eq!(nobody("lfs mkdir -C 2 theirs/d && lfs getdirstripe -c theirs/d").ok(), "2\n");
    assert_eq!(
        nobody("lfs setdirstripe -D -C 3 theirs/d && mkdir theirs/d/s && lfs getdirstripe -c theirs/d/s").ok(),
        "3\n"
    );
    assert_eq!(
        nobody("lfs mkdir -o 555 -C 2 theirs/shut && stat -c %a theirs/shut && lfs getdirstripe -c theirs/shut").ok(),
        "555\n2\n"
    );
    let refused = nobody("lfs setdirstripe -D -c 1 roots");
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (
            1,
            "lfs setdirstripe: default dirstripe error on 'roots': Operation not permitted
lfs setdirstripe: cannot set default stripe on dir 'roots': Operation not permitted\n"
        )
    );
    let refused = nobody("lfs mkdir roots/d");
    assert_eq!(refused.code, 13);
    assert!(!fs.path("roots/d").exists());
}
