//! Tests of getstripe's output against the captures of Lustre.

use sheen_layout::{Pool, Spec, Stripe};
use sheen_wire::seq::{MdtIndex, ost_seq};

use super::super::testing::{Fake, UNREADABLE, check_case, lfs};
use super::*;

const F3_TABLE: &str = "\tobdidx\t\t objid\t\t objid\t\t group
\t     1\t           645\t        0x285\t   0x2c0000401
\t     2\t           644\t        0x284\t   0x300000401
\t     3\t           656\t        0x290\t   0x340000401
";
const F3_HEAD: &str = "lmm_stripe_count:  3
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 1
";

fn layout(fid: Fid, size: u32, pool: Option<&str>, stripes: &[(u32, u32)]) -> Layout {
    let object = |ost, oid| Fid::new(ost_seq(MdtIndex::ZERO, ost), oid);
    let stripe = |(ost, oid): &(u32, u32)| Stripe { object: object(*ost, *oid), ost: *ost };
    let pool = pool.map(|p| Pool::new(p).unwrap());
    Layout::new(fid, size, pool, stripes.iter().map(stripe).collect()).unwrap()
}

/// A file system with the files of the captures.
fn lustre() -> Fake {
    let mut fake = Fake::new("/mnt/c1");
    let (f3, c2) = (Fid::new(0x200000402, 0x34), Fid::new(0x200000402, 3));
    let f3_layout = layout(f3, 1 << 20, None, &[(1, 645), (2, 644), (3, 656)]);
    fake.file("f3", &f3.to_string(), Some(&f3_layout));
    fake.file("c2", &c2.to_string(), Some(&layout(c2, 4 << 20, None, &[(2, 2), (3, 2)])));
    let pf = Fid::new(0x200000402, 0xbc);
    fake.file("pf", &pf.to_string(), Some(&layout(pf, 4 << 20, Some("p1"), &[(0, 670)])));
    fake.file("o9", "[0x200000402:0x50:0x0]", None);
    fake.node("sl", FileKind::Symlink, "f3");
    fake.node("dangling", FileKind::Symlink, "nowhere");
    fake.node("ff", FileKind::Fifo, "");
    fake.dir("d1");
    fake.attribute("d1", control::FID, b"[0x240000402:0x1:0x0]");
    fake
}

fn default_of(fake: &mut Fake, path: &str, spec: &Spec) {
    fake.attribute(path, "lustre.lov", &spec.encode());
}

#[test]
fn getstripe_prints_plain_file_in_all_formats() {
    let mut fake = lustre();
    let detail = "lmm_magic:         0x0BD10BD0\nlmm_seq:           0x200000402\nlmm_object_id:     0x34\n";
    let yaml = "lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x2c0000401:0x285:0x0
      - l_ost_idx: 2
        l_fid:     0x300000401:0x284:0x0
      - l_ost_idx: 3
        l_fid:     0x340000401:0x290:0x0
";
    for (options, want) in [
        ("", format!("f3\n{F3_HEAD}{F3_TABLE}\n")),
        ("-v", format!("f3\n{detail}lmm_fid:           [0x200000402:0x34:0x0]\n{F3_HEAD}{F3_TABLE}\n")),
        ("-v -c", format!("f3\n{detail}lmm_fid:           [0x200000402:0x34:0x0]\n{F3_HEAD}{F3_TABLE}\n")),
        ("-q", format!("f3\n{F3_TABLE}\n")),
        ("-q -c", format!("{F3_TABLE}\n")),
        ("-y", format!("{F3_HEAD}{yaml}")),
        ("-y -v", format!("{detail}lmm_fid:           0x200000402:0x34:0x0\n{F3_HEAD}{yaml}")),
        ("-d", format!("{F3_HEAD}{F3_TABLE}\n")),
        ("-r", format!("f3\n{F3_HEAD}{F3_TABLE}\n")),
        ("--raw", format!("f3\n{F3_HEAD}{F3_TABLE}\n")),
        ("--no-follow", format!("f3\n{F3_HEAD}{F3_TABLE}\n")),
        ("--mirror-id=1", format!("f3\n{F3_HEAD}{F3_TABLE}\n")),
        ("-I5", "f3\n  lcm_layout_gen:    0\n  lcm_mirror_count:  1\n  lcm_entry_count:   0\n".to_owned()),
        ("-c -S", "lmm_stripe_count:  3\nlmm_stripe_size:   1048576\n\n".to_owned()),
        ("-c -i", "lmm_stripe_count:  3\nlmm_stripe_offset: 1\n\n".to_owned()),
        ("-S -i -c -p", "lmm_stripe_count:  3\nlmm_stripe_size:   1048576\nlmm_stripe_offset: 1\n\n".to_owned()),
    ] {
        check_case(&mut fake, &format!("$ lfs getstripe {options} f3\n[exit 0]\n--- stdout\n{want}"));
    }
}

#[test]
fn getstripe_prints_single_field_without_label() {
    let mut fake = lustre();
    for (option, want) in [
        ("-c", "3\n\n"),
        ("--stripe-count", "3\n\n"),
        ("-S", "1048576\n\n"),
        ("-i", "1\n\n"),
        ("-p", "\n"),
        ("-L", "raid0\n\n"),
        ("-m", "0\n"),
        ("-F", "[0x200000402:0x34:0x0]\n\n"),
        ("-g", "0\n\n"),
        ("-I", "N/A\n\n"),
        ("--component-count", "0\n\n"),
        ("--component-start", "0\n\n"),
        ("-E", "EOF\n\n"),
        ("--component-flags", "init\n\n"),
        ("-N", "\n"),
        ("--extension-size", "\n"),
    ] {
        check_case(&mut fake, &format!("$ lfs getstripe {option} f3\n[exit 0]\n--- stdout\n{want}"));
    }
    check_case(&mut fake, "$ lfs getstripe -p pf\n[exit 0]\n--- stdout\np1\n\n");
    check_case(&mut fake, "$ lfs getstripe -c f3 c2\n[exit 0]\n--- stdout\n3\n\n2\n\n");
    check_case(&mut fake, "$ lfs getstripe f3 c2 -c\n[exit 0]\n--- stdout\n3\n\n2\n\n");
}

#[test]
fn getstripe_prints_hex_indices_and_pools() {
    let mut fake = lustre();
    check_case(
        &mut fake,
        "$ lfs getstripe --hex-idx f3\n[exit 0]\n--- stdout
f3
lmm_stripe_count:  3
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 0x1
\tobdidx\t\t objid\t\t objid\t\t group
\t   0x1\t           645\t        0x285\t   0x2c0000401
\t   0x2\t           644\t        0x284\t   0x300000401
\t   0x3\t           656\t        0x290\t   0x340000401

",
    );
    check_case(
        &mut fake,
        "$ lfs getstripe -v pf\n[exit 0]\n--- stdout
pf
lmm_magic:         0x0BD30BD0
lmm_seq:           0x200000402
lmm_object_id:     0xbc
lmm_fid:           [0x200000402:0xbc:0x0]
lmm_stripe_count:  1
lmm_stripe_size:   4194304
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 0
lmm_pool:          p1
\tobdidx\t\t objid\t\t objid\t\t group
\t     0\t           670\t        0x29e\t   0x280000401

",
    );
}

#[test]
fn getstripe_reports_paths_without_stripes() {
    let mut fake = lustre();
    for name in ["o9", "sl", "ff"] {
        check_case(&mut fake, &format!("$ lfs getstripe {name}\n[exit 0]\n--- stdout\n{name} has no stripe info\n"));
    }
    check_case(&mut fake, "$ lfs getstripe -c o9\n[exit 0]\n--- stdout\no9 has no stripe info\n");
    check_case(
        &mut fake,
        "$ lfs getstripe dangling\n[exit 2]\n--- stderr\nlfs: getstripe for 'dangling' failed: No such file or directory\n",
    );
    check_case(
        &mut fake,
        &format!(
            "$ lfs getstripe f3 nosuch\n[exit 2]\n--- stdout\nf3\n{F3_HEAD}{F3_TABLE}
--- stderr\nlfs: getstripe for 'nosuch' failed: No such file or directory\n"
        ),
    );
    check_case(
        &mut fake,
        "$ lfs getstripe /tmp\n[exit 25]\n--- stderr
lfs getstripe: cb_getstripe: '/tmp' not on a Lustre fs?: Inappropriate ioctl for device (25)
lfs: getstripe for '/tmp' failed: Inappropriate ioctl for device
",
    );
}

#[test]
fn getstripe_refuses_directories_that_the_caller_may_not_read() {
    let mut fake = lustre();
    fake.attribute("d1", UNREADABLE, b"");
    for options in ["", "-d ", "-d -c ", "-r "] {
        let refused = "[exit 13]\n--- stderr
lfs getstripe: llapi_semantic_traverse: Failed to open 'd1': Permission denied (13)
lfs: getstripe for 'd1' failed: Permission denied
";
        check_case(&mut fake, &format!("$ lfs getstripe {options}d1\n{refused}"));
    }
    let (code, out, err) = lfs(&mut fake, "lfs getstripe -c -r .");
    assert_eq!(code, 13, "the other entries are shown: {out}");
    assert!(!out.contains("d1") && out.contains("./f3\n3\n"), "{out}");
    let refused = "lfs getstripe: llapi_semantic_traverse: Failed to open './d1': Permission denied (13)\n";
    assert_eq!(err, format!("{refused}lfs: getstripe for '.' failed: Permission denied\n"));
}

#[test]
fn getstripe_refuses_bad_calls() {
    let mut fake = lustre();
    let usage = usage::GETSTRIPE;
    for option in ["-C", "-x", "-b", "-Z"] {
        let want = format!("[exit 4]\n--- stdout\n{usage}--- stderr\nlfs: unrecognized option '{option}'\n");
        check_case(&mut fake, &format!("$ lfs getstripe {option} f3\n{want}"));
    }
    check_case(&mut fake, &format!("$ lfs getstripe -h sl\n[exit 4]\n--- stdout\n{usage}"));
    check_case(
        &mut fake,
        &format!(
            "$ lfs getstripe -E 4G -c pfl\n[exit 4]\n--- stdout\n{usage}--- stderr
error: getstripe: filename|dirname must either precede options or follow options
"
        ),
    );
    check_case(
        &mut fake,
        "$ lfs getstripe -O 1 f3\n[exit 20]\n--- stderr
lfs getstripe: open f3 failed: Not a directory (20)
lfs: getstripe for 'f3' failed: Not a directory
",
    );
}

#[test]
fn getstripe_prints_directory_defaults() {
    let mut fake = lustre();
    let unset = "stripe_count:  1 stripe_size:   4194304 pattern:        stripe_offset: -1\n\n";
    check_case(&mut fake, &format!("$ lfs getstripe d1\n[exit 0]\n--- stdout\nd1\n{unset}"));
    check_case(&mut fake, &format!("$ lfs getstripe -d d1\n[exit 0]\n--- stdout\n{unset}"));
    check_case(
        &mut fake,
        "$ lfs getstripe -d --raw d1\n[exit 0]\n--- stdout
stripe_count:  0 stripe_size:   0 pattern:        stripe_offset: -1

",
    );
    default_of(&mut fake, "d1", &Spec { count: Some(sheen_layout::Count::Stripes(2)), ..Spec::default() });
    let two = "stripe_count:  2 stripe_size:   4194304 pattern:       raid0 stripe_offset: -1\n";
    check_case(&mut fake, &format!("$ lfs getstripe -d d1\n[exit 0]\n--- stdout\n{two}\n"));
    check_case(
        &mut fake,
        &format!("$ lfs getstripe -vd d1\n[exit 0]\n--- stdout\nd1\nlmm_fid:           [0x240000402:0x1:0x0]\n{two}\n"),
    );
    check_case(
        &mut fake,
        "$ lfs getstripe -y -d d1\n[exit 0]\n--- stdout
stripe_count:  2
stripe_size:   4194304
pattern:       raid0
stripe_offset: -1
",
    );
    check_case(
        &mut fake,
        "$ lfs getstripe --raw -d d1\n[exit 0]\n--- stdout
stripe_count:  2 stripe_size:   0 pattern:       raid0 stripe_offset: -1

",
    );
    for (options, want) in [("-c", "2\n\n"), ("-d -S", "4194304\n\n"), ("-d -i", "-1\n\n"), ("-d -p", "\n")] {
        check_case(&mut fake, &format!("$ lfs getstripe {options} d1\n[exit 0]\n--- stdout\n{want}"));
    }
    let all = Spec { count: Some(sheen_layout::Count::PerOst(2)), overstripe: true, ..Spec::default() };
    default_of(&mut fake, "d1", &all);
    check_case(
        &mut fake,
        "$ lfs getstripe -d d1\n[exit 0]\n--- stdout
stripe_count:  -2 stripe_size:   4194304 pattern:       raid0,overstriped stripe_offset: -1

",
    );
}

#[test]
fn getstripe_prints_the_roots_default_for_a_directory_without_its_own() {
    let mut fake = lustre();
    fake.attribute("/mnt/c1", control::FID, ROOT.to_string().as_bytes());
    check_case(&mut fake, "$ lfs setstripe -c 3 -S 1M /mnt/c1\n[exit 0]\n");
    let shown = "stripe_count:  3 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1\n";
    for raw in ["", " --raw"] {
        check_case(&mut fake, &format!("$ lfs getstripe -d{raw} d1\n[exit 0]\n--- stdout\n{shown}\n"));
    }
    check_case(&mut fake, "$ lfs setstripe -E 1M -c 1 -E -1 -c 2 /mnt/c1\n[exit 0]\n");
    check_case(
        &mut fake,
        "$ lfs getstripe -d d1\n[exit 0]\n--- stdout
  lcm_layout_gen:    0
  lcm_mirror_count:  1
  lcm_entry_count:   2
    lcme_id:             N/A
    lcme_mirror_id:      N/A
    lcme_flags:          0
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
      stripe_count:  1       stripe_size:   4194304       pattern:       raid0       stripe_offset: -1

    lcme_id:             N/A
    lcme_mirror_id:      N/A
    lcme_flags:          0
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   EOF
      stripe_count:  2       stripe_size:   4194304       pattern:       raid0       stripe_offset: -1

",
    );
    // A directory's own default hides it.
    default_of(&mut fake, "d1", &Spec { count: Some(sheen_layout::Count::Stripes(2)), ..Spec::default() });
    let own = "stripe_count:  2 stripe_size:   4194304 pattern:       raid0 stripe_offset: -1\n";
    check_case(&mut fake, &format!("$ lfs getstripe -d d1\n[exit 0]\n--- stdout\n{own}\n"));
    // Where a subdirectory is mounted, the root's default is not known.
    check_case(&mut fake, "$ lfs setstripe -d d1\n[exit 0]\n");
    fake.attribute("/mnt/c1", control::FID, b"[0x240000402:0x9:0x0]");
    let unset = "stripe_count:  1 stripe_size:   4194304 pattern:        stripe_offset: -1\n\n";
    assert_eq!(lfs(&mut fake, "lfs getstripe -d d1"), (0, unset.to_owned(), String::new()));
}

#[test]
fn getstripe_prints_directory_default_with_ost_list() {
    let mut fake = lustre();
    default_of(&mut fake, "d1", &Spec { osts: vec![1, 3], ..Spec::default() });
    check_case(
        &mut fake,
        "$ lfs getstripe -d d1\n[exit 0]\n--- stdout
stripe_count:  2 stripe_size:   4194304 pattern:       raid0 stripe_offset: 1
\tobdidx\t\t objid\t\t objid\t\t group
\t     1\t           N/A\t          N/A\t           N/A
\t     3\t           N/A\t          N/A\t           N/A

",
    );
    check_case(
        &mut fake,
        "$ lfs getstripe -dy d1\n[exit 0]\n--- stdout
stripe_count:  2
stripe_size:   4194304
pattern:       raid0
stripe_offset: 1
lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x100010000:0x0:0x0
      - l_ost_idx: 3
        l_fid:     0x100030000:0x0:0x0
",
    );
}

#[test]
fn getstripe_prints_trees() {
    let mut fake = lustre();
    fake.dir("d1/sub");
    for (name, ost) in [("d1/f", 1), ("d1/sub/g", 2)] {
        fake.file(
            name,
            "[0x200000402:0x60:0x0]",
            Some(&layout(Fid::new(0x200000402, 0x60), 1 << 20, None, &[(ost, 5)])),
        );
    }
    let unset = "stripe_count:  1 stripe_size:   4194304 pattern:        stripe_offset: -1\n";
    let file = |ost: u32| {
        format!(
            "lmm_stripe_count:  1
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: {ost}
\tobdidx\t\t objid\t\t objid\t\t group
\t     {ost}\t             5\t          0x5\t   {:#x}
",
            ost_seq(MdtIndex::ZERO, ost)
        )
    };
    let (f, g) = (file(1), file(2));
    check_case(
        &mut fake,
        &format!(
            "$ lfs getstripe d1\n[exit 0]\n--- stdout
d1\n{unset}\nd1/f\n{f}\nd1/sub\n{unset}\n"
        ),
    );
    check_case(
        &mut fake,
        &format!(
            "$ lfs getstripe -r d1\n[exit 0]\n--- stdout
d1\n{unset}\nd1/f\n{f}\nd1/sub\n{unset}\nd1/sub/g\n{g}\n"
        ),
    );
    check_case(&mut fake, "$ lfs getstripe -c d1\n[exit 0]\n--- stdout\n1\n\n");
    check_case(
        &mut fake,
        "$ lfs getstripe -r -c d1\n[exit 0]\n--- stdout\nd1\n1\n\nd1/f\n1\n\nd1/sub\n1\n\nd1/sub/g\n1\n\n",
    );
    let marked = g.replace("0x300000401\n", "0x300000401 *\n");
    check_case(
        &mut fake,
        &format!("$ lfs getstripe -r -O lustre-OST0002_UUID d1\n[exit 0]\n--- stdout\nd1/sub/g\n{marked}\n"),
    );
}

/// A file system with three files. `pfl` has three components, the last without objects; `mir` has
/// two mirrors; `dom` begins on the MDT.
fn composites() -> Fake {
    let mut fake = Fake::new("/mnt/c1");
    for line in [
        "-E 1M -o 1 -E 16M -S 2M -o 0,2,1,3 -E -1 -c -1 pfl",
        "-N -E 1M -o 1 -E -1 -o 2 -N -E 4M -o 3 -E -1 -o 0,1 mir",
        "-E 64K -L mdt -E 128M -z 64M -E -1 -c 2 dom",
    ] {
        assert_eq!(lfs(&mut fake, &format!("lfs setstripe {line}")).0, 0, "{line}");
    }
    fake.write("pfl", 0, 2 << 20);
    fake
}

/// Returns the ids of the components that are shown.
fn ids(fake: &mut Fake, options: &str) -> String {
    let (code, text, err) = lfs(fake, &format!("lfs getstripe {options}"));
    assert_eq!((code, err.as_str()), (0, ""), "{options}");
    let ids = text.lines().filter_map(|l| l.trim_start().trim_start_matches("- ").strip_prefix("lcme_id:"));
    ids.map(str::trim).collect::<Vec<_>>().join(" ")
}

#[test]
fn getstripe_prints_selected_components() {
    let fake = &mut composites();
    for (options, want) in [
        ("pfl", "1 2 3"),
        ("-I2 pfl", "2"),
        ("--component-id=3 pfl", "3"),
        ("-I0x1 pfl", "1"),
        ("--component-flags=init pfl", "1 2"),
        ("--component-flags=^init pfl", "3"),
        ("--component-start=16M pfl", "3"),
        ("--component-start=+0 pfl", "2 3"),
        ("--component-start=-16M pfl", "1 2"),
        ("-E16M pfl", "2"),
        ("-E-16M pfl", "1"),
        ("--component-end=+1M pfl", "2 3"),
        ("-EEOF pfl", "3"),
        ("--component-end=-1 pfl", "3"),
        ("--component-flags=init --component-start=+0 pfl", "2"),
        ("-I9 pfl", ""),
        ("mir", "65537 65538 131075 131076"),
        ("--mirror-id=2 mir", "131075 131076"),
        ("! --mirror-id=2 mir", "65537 65538"),
        ("--mirror-index=1 mir", "65537 65538"),
        ("--mirror-index=+1 mir", "131075 131076"),
        ("! --mirror-index=-2 mir", "131075 131076"),
        ("--mirror-id=1 --component-flags=init mir", "65537"),
        ("-y -I2 pfl", "2"),
    ] {
        assert_eq!(ids(fake, options), want, "{options}");
    }
    for (options, want) in [
        ("-c pfl", "4\n\n"),
        ("-I3 -c pfl", "-1\n\n"),
        ("-S -c pfl", "      lmm_stripe_count:  4\n      lmm_stripe_size:   2097152\n\n"),
        ("-z dom", "67108864\n\n"),
        ("-z pfl", "\n"),
        ("-L dom", "mdt\n\n"),
        ("-N mir", "2\n\n"),
        ("-I -E mir", "    lcme_id:             65537\n    lcme_extent.e_end:   1048576\n\n"),
    ] {
        check_case(fake, &format!("$ lfs getstripe {options}\n[exit 0]\n--- stdout\n{want}"));
    }
    let usage = usage::GETSTRIPE;
    for (options, want) in [
        ("-Ix", "lfs getstripe: bad component id 'x'"),
        ("--component-flags=bogus", "lfs: component flag 'bogus' not supported"),
        ("--component-start=x", "lfs getstripe: bad component start 'x'"),
        ("--mirror-id=0", "lfs getstripe: bad mirror id '0'"),
    ] {
        check_case(fake, &format!("$ lfs getstripe {options} pfl\n[exit 4]\n--- stdout\n{usage}--- stderr\n{want}\n"));
    }
}

#[test]
fn getstripe_ost_prints_and_marks_objects_of_that_ost() {
    let fake = &mut composites();
    fake.dir("d");
    for (name, options) in [("d/on", "-E 1M -o 1 -E -1 -o 2,2"), ("d/off", "-E 1M -o 0 -E -1 -o 2")] {
        assert_eq!(lfs(fake, &format!("lfs setstripe {options} {name}")).0, 0);
    }
    fake.write("d/on", 0, 4 << 20);
    let (code, text, _) = lfs(fake, "lfs getstripe -r -O 2 d");
    assert_eq!(code, 0);
    assert!(!text.contains("d/off") && !text.contains("l_ost_idx:   1"), "{text}");
    assert_eq!(text.matches("l_ost_idx:   2, l_fid: [0x300000401:0x2:0x0] } *").count(), 2, "{text}");
}

#[test]
fn getstripe_prints_plain_layout_as_component() {
    let mut fake = lustre();
    check_case(
        &mut fake,
        "$ lfs getstripe --component-flags=init -c -E f3\n[exit 0]\n--- stdout
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  3

",
    );
    check_case(
        &mut fake,
        "$ lfs getstripe -I -c f3\n[exit 0]\n--- stdout
    lcme_id:             N/A
      lmm_stripe_count:  3

",
    );
}

#[test]
fn getstripe_draw_prints_tables() {
    let fake = &mut composites();
    check_case(
        fake,
        "$ lfs getstripe --draw pfl\n[exit 0]\n--- stdout
pfl
component 1: from 0 to 1M, 1 stripe of 1M, raid0
  stripe   0
  OST      1
         ┌───┐
  from   │ 0 │
         └───┘

component 2: from 1M to 16M, 4 stripes of 2M, raid0
  stripe   0     1     2     3
  OST      0     2     1     3
         ┌─────┬─────┬─────┬─────┐
  from   │ 1M  │ 2M  │ 4M  │ 6M  │
         │ 8M  │ 10M │ 12M │ 14M │
         └─────┴─────┴─────┴─────┘

component 3: from 16M to EOF, stripes of 2M, raid0, no objects yet
  stripe count depends on the number of OSTs at the first write

",
    );
}

#[test]
fn getstripe_draw_writes_svg() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.svg");
    let fake = &mut composites();
    assert_eq!(lfs(fake, &format!("lfs getstripe --draw={} pfl", file.display())), (0, String::new(), String::new()));
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    for text in [">pfl<", ">component 2: from 1M to 16M, 4 stripes of 2M, raid0<", ">14M<"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    // An OST has the same colour in each component. The 1 + 8 cells have four colours.
    let colours: std::collections::BTreeSet<&str> =
        svg.split("fill=\"").filter(|f| f.starts_with("hsl")).map(|f| f.split('"').next().unwrap()).collect();
    assert_eq!((svg.matches("hsl").count(), colours.len()), (9, 4));
    let (code, _, err) = lfs(fake, "lfs getstripe --draw=x.svg pfl mir");
    assert_eq!((code, err.as_str()), (4, "error: getstripe: --draw=FILE draws one file or directory\n"));
    let (code, _, err) = lfs(fake, "lfs getstripe --draw=/nosuch/x.svg pfl");
    assert_eq!(code, 2);
    assert!(err.starts_with("lfs getstripe: cannot write '/nosuch/x.svg': "), "{err}");
}

#[test]
fn getstripe_draw_prints_every_kind_of_component() {
    let fake = &mut composites();
    let (_, text, _) = lfs(fake, "lfs getstripe --draw dom mir");
    for part in [
        "component 1: from 0 to 64K, with the metadata\n  stripe   0\n  MDT      0\n",
        "extension\n  extends the component before it, 64M at a time\n",
        "component 65538 of mirror 1: from 1M to EOF, ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    fake.dir("d");
    assert_eq!(lfs(fake, "lfs setstripe -C 2000 d").0, 0);
    let (_, text, _) = lfs(fake, "lfs getstripe --draw d");
    assert!(text.starts_with("d\n2000 stripes of 4M, raid0,overstriped\n"), "{text}");
    assert!(text.contains("and 1992 more\n") && text.contains("│ …"), "{text}");
}
