//! Tests of the options against the answers of a captured Lustre, and of the predicates against
//! in-memory entries.

use std::collections::BTreeMap;

use sheen_admin::find::{
    facts::{Facts, Stat, Striping},
    test::Targets,
};
use sheen_layout::{
    Layout, Pool, Stripe,
    lmv::{HashType, LmvUser},
};
use sheen_wire::{Fid, FileKind};

use super::{
    super::{
        host,
        testing::{Fake, check_case},
    },
    *,
};

const NOW: i64 = 1_795_290_605;
const DAY: i64 = 24 * 3600;

/// An in-memory entry that records the requests for its properties.
#[derive(Default)]
struct FakeEntry {
    name: &'static str,
    kind: Option<FileKind>,
    stat: Stat,
    striping: Option<Striping>,
    dir_striping: Option<LmvUser>,
    attributes: BTreeMap<&'static str, Vec<u8>>,
    asked: Vec<&'static str>,
}

impl Facts for FakeEntry {
    fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn write_path(&self, out: &mut Vec<u8>) {
        out.extend([b"./", self.name.as_bytes()].concat());
    }

    fn kind(&mut self) -> Result<FileKind> {
        Ok(self.kind.unwrap_or(FileKind::Regular))
    }

    fn stat(&mut self) -> Result<&Stat> {
        self.asked.push("stat");
        Ok(&self.stat)
    }

    fn striping(&mut self) -> Result<&Striping> {
        self.asked.push("layout");
        Ok(self.striping.as_ref().unwrap_or(&Striping::None))
    }

    fn dir_striping(&mut self) -> Result<Option<&LmvUser>> {
        Ok(self.dir_striping.as_ref())
    }

    fn mdt(&mut self) -> Result<Option<u32>> {
        Ok(Some(0))
    }

    fn fid(&mut self) -> Result<String> {
        Ok("0x200000402:0xa7:0x0".to_owned())
    }

    fn xattr(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.attributes.get(name).cloned())
    }
}

fn search(words: &[&str]) -> Result<Search, OptionError> {
    let args: Vec<OsString> = words.iter().map(OsString::from).collect();
    let mut search = Search::new(NOW);
    let mut negated = false;
    for word in options::parse(&args) {
        match word {
            Word::Option(id, value) => search.option(id, value.as_deref(), std::mem::take(&mut negated))?,
            Word::Not => negated = true,
            other => panic!("{other:?}"),
        }
    }
    Ok(search)
}

fn striped(osts: &[u32], pool: Option<&str>) -> Striping {
    let stripes = osts.iter().map(|ost| Stripe { object: Fid::new(7, 1), ost: *ost }).collect();
    let layout = Layout::new(Fid::new(1, 1), 4 << 20, pool.map(|p| Pool::new(p).unwrap()), stripes).unwrap();
    Striping::decode(&layout.encode_xattr(), false)
}

/// A component of a `lov_comp_md_v1`: start, end, flags, pattern, stripe size and OSTs.
type Part<'a> = (u64, u64, u32, u32, u32, &'a [u32]);

fn composite(flags: u16, mirrors: u16, parts: &[Part<'_>]) -> Striping {
    let mut entries = Vec::new();
    let mut bodies = Vec::new();
    let first = 32 + 48 * parts.len();
    for (i, (start, end, flags, pattern, size, osts)) in parts.iter().enumerate() {
        let mut body = Vec::new();
        body.extend(0x0BD1_0BD0u32.to_le_bytes());
        body.extend(pattern.to_le_bytes());
        body.extend([0; 16]);
        body.extend(size.to_le_bytes());
        body.extend((osts.len().max(usize::from(*pattern == 1)) as u16).to_le_bytes());
        body.extend(0u16.to_le_bytes());
        for ost in *osts {
            body.extend([0; 20]);
            body.extend(ost.to_le_bytes());
        }
        let head = [i as u32 + 1, *flags].map(u32::to_le_bytes).concat();
        entries.extend([head, [*start, *end].map(u64::to_le_bytes).concat()].concat());
        entries.extend([(first + bodies.len()) as u32, body.len() as u32].map(u32::to_le_bytes).concat());
        entries.extend([0; 16]);
        bodies.extend(body);
    }
    let mut bytes = [0x0BD6_0BD0u32, (first + bodies.len()) as u32, 1].map(u32::to_le_bytes).concat();
    bytes.extend([flags, parts.len() as u16, mirrors - 1].map(u16::to_le_bytes).concat());
    bytes.extend([0; 14]);
    let striping = Striping::decode(&[bytes, entries, bodies].concat(), false);
    assert!(matches!(striping, Striping::Layout(_)), "the bytes are those of a layout");
    striping
}

/// The tree of the captured case, as far as it is known.
fn tree() -> Vec<FakeEntry> {
    const M: u64 = 1 << 20;
    let file = |name, mode: u32, size, striping| {
        let recent = (NOW - 100, 5);
        let times = Stat { atime: recent, mtime: recent, ctime: recent, btime: Some(recent), ..Stat::default() };
        let stat = Stat { mode: 0o100000 | mode, size, blocks: size / 512, links: 1, ..times };
        FakeEntry { name, stat, striping: Some(striping), ..FakeEntry::default() }
    };
    let other = |name, kind: FileKind, size, links| {
        let mut paper = file(name, 0, size, Striping::None);
        paper.kind = Some(kind);
        paper.stat = Stat { mode: kind.mode_bits() | 0o755, links, blocks: size / 512, ..paper.stat };
        paper
    };
    let init = 0x10;
    let mut one = file("one", 0o644, 0, striped(&[0], None));
    one.stat.mtime = (NOW - 3 * DAY - 50, 0);
    let mut two = file("two", 0o4755, 0, striped(&[1, 2], None));
    (two.stat.uid, two.stat.gid, two.stat.ino) = (1000, 1000, 144_115_205_289_279_655);
    vec![
        other(".", FileKind::Dir, 4096, 3),
        file("comp", 0o644, 0, composite(0, 1, &[(0, M, init, 1, 1 << 20, &[3]), (M, u64::MAX, 0, 1, 4 << 20, &[])])),
        file(
            "domx",
            0o644,
            0,
            composite(0, 1, &[(0, M, init, 0x100, 1 << 20, &[]), (M, u64::MAX, 0, 1, 4 << 20, &[])]),
        ),
        file("over", 0o644, 0, striped(&[0, 1, 2, 3, 0, 1, 2, 3], None)),
        two,
        one,
        file("pooled", 0o644, 0, striped(&[0, 1], Some("findp"))),
        file(
            "mir",
            0o644,
            0,
            composite(1, 2, &[(0, u64::MAX, init, 1, 4 << 20, &[0]), (0, u64::MAX, init, 1, 4 << 20, &[1])]),
        ),
        file("four", 0o644, 0, striped(&[0, 1, 2, 3], None)),
        file("big", 0o644, 5 * M, striped(&[1], None)),
        other("sl", FileKind::Symlink, 3, 1),
        other("nod", FileKind::Fifo, 0, 1),
    ]
}

fn found(words: &str) -> String {
    let query = search(&words.split(' ').map(|w| w.trim_matches('"')).collect::<Vec<_>>()).unwrap().query;
    let mut tree = tree();
    let names = tree.iter_mut().filter_map(|paper| query.matches(paper).unwrap().then_some(paper.name));
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn find_returns_same_entries_as_lustre() {
    for (words, want) in [
        ("-type d", "."),
        ("-type l", "sl"),
        ("-type p", "nod"),
        ("! -type f", ". sl nod"),
        ("-name o*", "over one"),
        ("! -name o* -type f", "comp domx two pooled mir four big"),
        ("-size +1M", "big"),
        ("-size 0", "comp domx over two one pooled mir four nod"),
        ("-size 5M", "big"),
        ("-size 5242880c", "big"),
        ("-size +4M -size -6M", ". comp domx over two one pooled mir four big sl nod"),
        ("-c 2", "two pooled"),
        ("-c +2", "over four"),
        ("-c -2", ". comp domx one mir big sl nod"),
        ("-stripe_count 4", "four"),
        ("-C 8", ""),
        ("-S +1M", "over two one pooled mir four big"),
        ("-S 1M", "comp domx"),
        ("-i 0", "over one pooled mir four"),
        ("--stripe-index 1,2", "over two pooled mir four big"),
        ("-O 3-9", "comp over four"),
        ("-O 9", ""),
        ("-m 0 -type d", "."),
        ("-m 1", ""),
        ("-T 1", ""),
        ("--mdt-hash crush", ""),
        ("-L raid0", "comp domx over two one pooled mir four big"),
        ("-L mdt", "domx"),
        ("-L overstriping", "over"),
        ("-L released", ""),
        ("--comp-count 2", "comp domx mir"),
        ("--comp-count +1", "comp domx mir"),
        ("--component-count 1", ""),
        ("-E 1M", "comp domx"),
        ("--comp-start 1M", "comp domx"),
        ("-E eof -N 2", "mir"),
        ("--component-flags init", "comp domx over two one pooled mir four big sl nod"),
        ("--component-flags ^init", ". comp domx"),
        ("-N 2", "mir"),
        ("-N +1", "mir"),
        ("--mirror-state=ro", "mir"),
        ("! --mirror-state=ro", "comp domx"),
        ("--mirror-state=^ro", "comp domx"),
        ("! --mirror-state=^ro", "mir"),
        ("--mirror-state=wp", ""),
        ("! --mirror-state=wp", "comp domx mir"),
        ("--pool findp", "pooled"),
        ("! --pool findp -type f", "comp domx over two one mir four big"),
        ("--user 1000", "two"),
        ("-u root -type d", "."),
        ("-gid 1000", "two"),
        ("-mtime +2", "one"),
        ("-mtime 3", "one"),
        ("-mtime -1 -name t*", "two"),
        ("-btime -1 -name one", "one"),
        ("-newermt @1795290000 -size +1M", "big"),
        ("-perm 4755", "two"),
        ("-perm /4000", "two"),
        ("-perm /u+s", "two"),
        ("-perm -755 -type f", "two"),
        ("-perm u=rwx,go=rx -type d", "."),
        ("-links +1", "."),
        ("-blocks +1", ". big"),
        ("-b 5M", "big"),
        ("-z 64M", ""),
        ("--foreign", ""),
        ("--attrs Immutable", ""),
        ("-projid 0 -name big", "big"),
        ("-projid 1", ""),
        ("-not -name one -type f", "one"),
    ] {
        assert_eq!(found(words), want, "{words}");
    }
    assert_eq!(search(&["--pool", ""]).map(|s| s.query.matches(&mut tree()[6]).unwrap()), Ok(false));
    assert_eq!(search(&["--pool", ""]).map(|s| s.query.matches(&mut tree()[0]).unwrap()), Ok(true));
}

#[test]
fn find_matches_extension_sizes_and_xattrs() {
    let extending =
        composite(0, 1, &[(0, 1 << 30, 0x10, 1, 1 << 20, &[0]), (1 << 30, u64::MAX, 0x40, 1, 64 << 10, &[])]);
    let mut file = FakeEntry { name: "sel", striping: Some(extending), ..FakeEntry::default() };
    file.attributes.insert("user.kind", b"raw data".to_vec());
    for (words, want) in [
        (&["-z", "64M"][..], true),
        (&["-z", "+64M"], false),
        (&["--comp-flags", "extension,^init"], true),
        (&["-c", "1"], true),
        (&["--xattr", "user.kind"], true),
        (&["--xattr", "user.kind=raw*"], true),
        (&["--xattr", "user.kind=raw"], false),
        (&["!", "--xattr", "user.none"], true),
        (&["--xattr", "user.kind", "--xattr", "user.none"], false),
    ] {
        assert_eq!(search(words).unwrap().query.matches(&mut file), Ok(want), "{words:?}");
    }
}

#[test]
fn find_matches_striped_directories() {
    let spread = |count, hash: Option<&str>| {
        let mut lmv = LmvUser::new(count);
        lmv.hash = hash.map_or(HashType::NONE, |hash| HashType::parse(hash).unwrap());
        FakeEntry { name: "d", kind: Some(FileKind::Dir), dir_striping: Some(lmv), ..FakeEntry::default() }
    };
    for (words, want) in [
        ("-T 2", [true, false, false, false]),
        ("! -T 2", [false, true, true, false]),
        ("--mdt-count +1", [true, true, false, false]),
        ("-H crush", [true, false, false, false]),
        ("-H crush,fnv_1a_64", [true, true, false, false]),
        ("-H ^crush", [false, true, false, false]),
        ("-H ^m,crush", [true, false, false, false]),
        ("-H migrating", [false, false, false, false]),
    ] {
        let query = search(&words.split(' ').collect::<Vec<_>>()).unwrap().query;
        let file = FakeEntry::default();
        let entries = [spread(2, Some("crush")), spread(4, Some("fnv_1a_64")), spread(0, None), file];
        assert_eq!(entries.map(|mut entry| query.matches(&mut entry).unwrap()), want, "{words}");
    }
}

#[test]
fn find_fetches_costly_properties_last() {
    let of = |words: &[&str], i: usize| {
        let mut paper = tree().swap_remove(i);
        let passed = search(words).unwrap().query.matches(&mut paper).unwrap();
        (passed, paper.asked.join(" "))
    };
    let words = ["-c", "1", "-size", "+1M", "-name", "b*"];
    assert_eq!(of(&words, 1), (false, String::new()), "comp has another name");
    assert_eq!(of(&["-c", "1", "-size", "+1M"], 1), (false, "stat".to_owned()), "comp is too small");
    assert_eq!(of(&words, 9), (true, "stat layout".to_owned()));
    let needs = |words: &[&str]| search(words).map(|s| s.query.needs() | s.format.needs()).unwrap();
    assert!(needs(&["-name", "x", "-type", "f"]).nothing());
    assert!(!needs(&["-name", "x", "-ls"]).nothing());
    assert!(needs(&["-btime", "1"]).birth && !needs(&["-mtime", "1"]).birth);
}

#[test]
fn find_printf_prints_formats() {
    let two = |words: &[&str]| {
        let search = search(words).unwrap();
        let mut out = Vec::new();
        search.format.write(&mut tree().swap_remove(4), &mut out).unwrap();
        (String::from_utf8(out).unwrap(), search.unknown)
    };
    let format = "%p %s %Lc %LS %Li %Lo %Lp %LF %Lh %LP %La %Ls\\n";
    let want = "./two 0 2 4194304 1 [1,2]  0x200000402:0xa7:0x0  0 --- %Ls\n";
    assert_eq!(two(&["-printf", format]), (want.to_owned(), vec!["%Ls".to_owned()]));
    let format = "%p %f %y %m %M %U %G %n %i %k %b %A@ %W\\n";
    let want = "./two %f f 4755 -rwsr-xr-x 1000 1000 1 144115205289279655 0 0 1795290505 %W\n";
    assert_eq!(two(&["-printf", format]), (want.to_owned(), vec!["%f".to_owned(), "%W".to_owned()]));
    let day = host::ctime(NOW - 100);
    let want = format!("144115205289279655\t0\t-rwsr-xr-x\t1\t1000\t1000\t0\t{day}\t./two\n");
    assert_eq!(two(&["-ls"]).0, want);
    assert_eq!(two(&["-print0"]).0, "./two\0");
    assert_eq!(two(&["-printf", "100%%\\t\\101\\q%"]), ("100%\tA\\q%".to_owned(), vec!["%".to_owned()]));
}

#[test]
fn find_refuses_bad_values() {
    for (words, want) in [
        (&["-bogus"][..], "error: bad blocks 'ogus'"),
        (&["-L", "bogus"], "error: bad layout 'bogus'"),
        (&["-type", "x"], "error: bad type 'x'"),
        (&["-size", "big"], "error: bad size 'big'"),
        (&["-maxdepth", "-1"], "error: bad maxdepth '-1'"),
        (&["-delete"], "error: bad mindepth 'elete'"),
        (&["-perm", "8"], "error: bad perm '8'"),
        (&["-perm", "-"], "error: bad perm '-'"),
        (&["-perm", "é"], "error: bad perm 'é'"),
        (&["-perm", "u"], "error: bad perm 'u'"),
        (&["-perm", "u+é"], "error: bad perm 'u+é'"),
        (&["-user", "no such user"], "error: bad user 'no such user'"),
        (&["-mtime", "1q"], "error: bad mtime '1q'"),
        (&["--comp-flags", "init,"], "error: bad component-flags 'init,'"),
        (&["--mirror-state", "xx"], "error: bad mirror-state 'xx'"),
        (&["-H", "md5"], "error: bad mdt-hash 'md5'"),
        (&["--threads", "0"], "error: bad threads '0'"),
        (&["--skip", "101"], "error: bad skip '101'"),
        (&["-O", ""], "error: bad stripe-index ''"),
        (
            &["-newermt", "1 day ago"],
            "lfs: invalid time '1 day ago'\nsupported formats are:\n  '%Y-%m-%d %H:%M:%S', '%Y-%m-%d %H:%M', '%Y-%m-%d', '%H:%M:%S', '%H:%M', '@%s', '%s', ",
        ),
        (&["-newer", "/no/such"], "error: find: cannot stat '/no/such': No such file or directory"),
    ] {
        assert_eq!(search(words).map(|_| ()).map_err(|wrong| wrong.0), Err(want.to_owned()), "{words:?}");
    }
}

/// Gives every option random values of meaningful letters. Each value is accepted or refused, and
/// an accepted one is applied.
#[test]
fn find_survives_random_option_values() {
    const LETTERS: [&str; 24] = [
        "+", "-", "/", "0", "7", "9", "x", "M", "E", "d", "y", ":", "=", ",", "^", "u", "[", "]", "*", "%", "\\", "L",
        "@", "é",
    ];
    let mut seed = 7u32;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize % below
    };
    let mut tree = tree();
    let mut taken = 0;
    for round in 0..20_000 {
        let value: String = (0..next(7)).map(|_| LETTERS[next(LETTERS.len())]).collect();
        let (_, _, id) = options::LONG[round % options::LONG.len()];
        let mut search = Search::new(NOW);
        if search.option(id, Some(value.as_ref()), next(2) == 0).is_ok() {
            taken += 1;
            let entry = &mut tree[next(12)];
            search.query.matches(entry).unwrap();
            search.format.write(entry, &mut Vec::new()).unwrap();
        }
    }
    assert!(taken > 2000, "{taken} were taken");
}

#[test]
fn find_refuses_bad_calls_like_lustre() {
    let mut fake = Fake::new("/mnt/c1");
    let case = |command: &str, err: &str| format!("$ {command}\n[exit 4]\n--- stdout\n{USAGE}--- stderr\n{err}\n");
    check_case(&mut fake, &case("lfs find", "error: find: no filename|pathname"));
    check_case(&mut fake, &case("lfs find . -empty -type f", "lfs: unrecognized option '-empty'"));
    check_case(&mut fake, &case("lfs find . -mmin -10 -name two", "lfs: unrecognized option '-10'"));
    check_case(&mut fake, &case("lfs find . -name one -o -name two", "lfs: unrecognized option '-o'"));
    check_case(
        &mut fake,
        &case("lfs find . -iname O*", "err: find: filename|dirname must either precede options or follow options"),
    );
    check_case(&mut fake, "$ lfs find . -bogus\n[exit 22]\n--- stderr\nerror: bad blocks 'ogus'\n");
    check_case(&mut fake, &format!("$ lfs find . --help\n[exit 4]\n--- stdout\n{USAGE}"));
    check_case(&mut fake, "$ lfs find . --ost nosuch\n[exit 22]\n--- stderr\nerror: find: unknown obduuid: 'nosuch'\n");
    check_case(
        &mut fake,
        "$ lfs find no/such -maxdepth 0\n[exit 2]\n--- stderr\nlfs: failed for 'no/such': No such file or directory\n",
    );
}

#[test]
fn find_resolves_targets_by_full_and_short_names() {
    let fake = Fake::new("/mnt/c1");
    let mut targets = Targets {
        names: ["OST0001", "lustre-OST0002", "lustre-OST0003_UUID"].map(String::from).to_vec(),
        ..Targets::default()
    };
    let known: Vec<TargetInfo> =
        Tool { fs: &fake, out: &mut Vec::new(), err: &mut Vec::new() }.ask(Path::new("/mnt/c1"), control::DF).unwrap();
    targets.look_up(known.iter().filter(|t| t.kind == TargetKind::Ost)).unwrap();
    assert_eq!(targets.indices, [1..=1, 2..=2, 3..=3]);
    assert!(targets.names.is_empty());
}
