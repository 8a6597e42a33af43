//! The tree's own habits, enforced: sizes of files, the arrow of dependency between crates, no
//! leftovers.

mod layers;
mod prose;
mod rooms;

use std::{
    fs,
    path::{Path, PathBuf},
};

use sheen_lab::document::{names, rendered};

/// A file past this many lines is asking to be two.
const LINES_MAX: usize = 800;

/// Minimum number of rows in the table of topics of docs/architecture.md.
const TOPICS_MIN: usize = 40;

/// Which crates a crate uses: exactly these. A crate stands after those that it uses, as in the
/// picture in docs/architecture.md.
const ARROW: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("rt", &["wire"]),
    ("params", &["wire"]),
    ("control", &["wire", "params"]),
    ("metrics", &["wire", "rt", "params"]),
    ("layout", &["wire"]),
    ("namespace", &["wire", "layout"]),
    ("objects", &["wire"]),
    ("recovery", &[]),
    ("ldlm", &["wire", "rt"]),
    ("keys", &["wire"]),
    ("lnet", &["wire", "rt", "keys"]),
    ("rpc", &["wire", "rt", "params", "lnet", "recovery"]),
    ("lockd", &["wire", "rt", "rpc", "params", "ldlm"]),
    ("recoveryd", &["wire", "rt", "params", "recovery"]),
    ("failover", &["rt"]),
    ("mgc", &["wire", "rt", "lnet", "rpc"]),
    ("mgs", &["wire", "rt", "rpc", "params"]),
    (
        "mds",
        &[
            "wire",
            "rt",
            "lnet",
            "rpc",
            "params",
            "mgc",
            "layout",
            "namespace",
            "objects",
            "lockd",
            "recovery",
            "recoveryd",
        ],
    ),
    ("oss", &["wire", "rt", "lnet", "rpc", "params", "mgc", "objects", "lockd", "recovery", "recoveryd"]),
    ("client", &["wire", "rt", "lnet", "rpc", "params", "mgc", "layout", "ldlm"]),
    ("simulation", &["wire", "rt", "lnet", "rpc", "params", "layout", "mgc", "mgs", "mds", "oss", "client"]),
    ("fuse", &["wire"]),
    ("mount", &["wire", "rt", "fuse", "client"]),
    ("admin", &["wire", "layout"]),
    ("llapi", &["wire", "layout", "control", "admin"]),
    ("lab", &["wire", "rt", "lnet", "rpc", "layout", "control", "simulation"]),
    (
        "cli",
        &[
            "wire", "rt", "keys", "lnet", "rpc", "params", "layout", "mgc", "mgs", "mds", "oss", "client", "mount",
            "admin", "control", "metrics", "failover", "lab",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the project").to_owned()
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    files(dir, &["rs"], out);
}

/// The files below `dir` whose names end in one of `endings`.
fn files(dir: &Path, endings: &[&str], out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("readable").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && name != ".git" && name != "demo" {
            files(&path, endings, out);
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e)) {
            out.push(path);
        }
    }
}

#[test]
fn files_are_small_and_open_with_their_purpose() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    assert!(files.len() > 50, "found too few sources: {}", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("UTF-8");
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines; split it", file.display());
        assert!(
            text.starts_with("//!") || text.starts_with("#!"),
            "{} does not open with //! what it is for",
            file.display()
        );
        for leftover in ["todo!(", "unimplemented!(", "dbg!("] {
            let here = file.ends_with("tidy/main.rs");
            assert!(here || !text.contains(leftover), "{} contains {leftover}", file.display());
        }
    }
}

/// Where tests may look at a real clock: everything that waits for an outcome.
const CLOCKS: &[&str] = &[
    "tests/src/wait.rs",
    "tests/src/progress.rs",
    "tests/src/lib.rs",
    "crates/fuse/tests/it/memfs/mount.rs",
    "crates/rt/tests/sim.rs",
    // A reply that takes longer than the time limit for the greeting.
    "crates/control/src/tests.rs",
];

/// A pause or an upper limit of time makes a test fail on a slow machine. docs/testing.md says what
/// to use.
#[test]
fn tests_neither_pause_nor_assert_how_long_something_took() {
    let mut files = Vec::new();
    sources(&root().join("tests"), &mut files);
    for entry in fs::read_dir(root().join("crates")).expect("crates/").flatten() {
        for part in ["tests", "src"] {
            let part = entry.path().join(part);
            if part.exists() {
                sources(&part, &mut files);
            }
        }
    }
    for file in files {
        let name = file.strip_prefix(root()).expect("below the root").to_str().expect("UTF-8");
        if CLOCKS.contains(&name) || file.ends_with("tidy/main.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("UTF-8");
        // Tests in sources: a file `tests.rs`, or the module at the end of a file.
        let is_source = name.starts_with("crates/") && name.contains("/src/") && !name.ends_with("tests.rs");
        let begin = if is_source { text.find("#[cfg(test)]\nmod ").unwrap_or(text.len()) } else { 0 };
        let first = text[..begin].lines().count() + 1;
        for (number, line) in (first..).zip(text[begin..].lines()) {
            for refused in ["thread::sleep(", "elapsed() <", "Instant::now() <"] {
                assert!(
                    !line.contains(refused),
                    "{name}:{number} has {refused}…: use wait::eventually or wait::let_pass"
                );
            }
        }
    }
}

/// A stopped process makes servers wait for it, and the test depends on their time limits. So the
/// gate runs at most one test beside such a test.
#[test]
fn tests_that_stop_a_process_are_listed_in_nextest_toml() {
    let alone = fs::read_to_string(root().join(".config/nextest.toml")).expect("UTF-8");
    let mut files = Vec::new();
    sources(&root().join("tests/tests/it"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).expect("UTF-8");
        let module = file.file_stem().expect("a name").to_str().expect("UTF-8");
        let mut function = "";
        for line in text.lines() {
            if let Some((name, _)) = line.split_once("fn ").and_then(|(_, rest)| rest.split_once('(')) {
                function = name;
            }
            if ["freeze()", "Signal::STOP", "kill -STOP"].iter().any(|stop| line.contains(stop)) {
                let test = format!("test(={module}::{function})");
                assert!(alone.contains(&test), ".config/nextest.toml lacks {test}, which stops a process");
            }
        }
    }
}

#[test]
fn crates_use_exactly_the_crates_that_the_arrow_lists() {
    let mut wrong = Vec::new();
    for (place, (name, below)) in ARROW.iter().enumerate() {
        let used = dependencies(name);
        let code = code_of(name);
        for one in &used {
            if !below.contains(&one.as_str()) {
                wrong.push(format!("{name} uses {one}, which does not stand below it"));
            }
            if !code.contains(&format!("sheen_{one}::")) {
                wrong.push(format!("Cargo.toml of {name} names {one}, which no source of it uses"));
            }
        }
        for one in *below {
            if !used.iter().any(|used| used == one) {
                wrong.push(format!("{name} does not use {one}: its entry in ARROW is too long"));
            }
            if !ARROW[..place].iter().any(|(earlier, _)| earlier == one) {
                wrong.push(format!("{name} uses {one}, which does not stand before it in ARROW"));
            }
        }
    }
    for entry in fs::read_dir(root().join("crates")).expect("crates/").flatten() {
        let name = entry.file_name().into_string().expect("UTF-8");
        if !ARROW.iter().any(|(known, _)| *known == name) {
            wrong.push(format!("crate {name} has no place in the picture"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The crates of this tree that a crate's `Cargo.toml` names, without those of its tests alone.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = root().join("crates").join(name).join("Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap_or_else(|e| panic!("{}: {e}", manifest.display()));
    let section = text.split("[dev-dependencies]").next().unwrap_or(&text);
    let names = section.lines().filter_map(|line| line.strip_prefix("sheen-")?.split(['.', ' ', '=']).next());
    names.map(str::to_owned).collect()
}

/// The sources of a crate, without its tests in files of their own.
fn code_of(name: &str) -> String {
    let mut files = Vec::new();
    sources(&root().join("crates").join(name).join("src"), &mut files);
    files.retain(|file| !file.ends_with("tests.rs") && !file.components().any(|part| part.as_os_str() == "tests"));
    files.iter().map(|file| fs::read_to_string(file).expect("UTF-8")).collect()
}

/// Documents that name tests for statements.
const NAMING_TESTS: [&str; 5] = ["security.md", "semantics.md", "recovery.md", "recovery-tests.md", "failover.md"];

/// Returns the source of the tests that a document calls `file`: of a file below `tests`, or
/// `CRATE/FILE` of a crate.
fn tests_in(file: &str) -> String {
    let of_crate = file.split_once('/').filter(|(name, _)| root().join("crates").join(name).is_dir());
    let places = match of_crate {
        Some((name, file)) => {
            ["tests/it", "tests", "src"].map(|at| root().join("crates").join(name).join(at).join(file)).to_vec()
        }
        None if file == "simulation" || file.starts_with("soak/") => vec![root().join("tests/tests").join(file)],
        None => vec![root().join("tests/tests/it").join(file)],
    };
    let source = places.iter().map(|place| place.with_extension("rs")).find(|path| path.exists());
    let source = source.unwrap_or_else(|| panic!("{file} is named and does not exist"));
    let mut text = fs::read_to_string(&source).expect("a source file");
    // The parts of a long file are in a folder of its name.
    for part in fs::read_dir(source.with_extension("")).into_iter().flatten().flatten() {
        text += &fs::read_to_string(part.path()).unwrap_or_default();
    }
    text
}

/// A test that was renamed or removed must not stay in a document.
#[test]
fn the_tests_that_documents_name_exist() {
    let mut named = 0;
    for document in NAMING_TESTS {
        let text = fs::read_to_string(root().join("docs").join(document)).expect(document);
        for row in text.lines().filter(|l| l.starts_with("| ")) {
            for (file, test) in row.split('`').filter_map(|word| word.split_once("::")) {
                let is_there = || tests_in(file).contains(&format!("fn {test}("));
                assert!(test == "*" || is_there(), "{document}: {file}::{test} is named and does not exist");
                named += 1;
            }
        }
    }
    assert!(named > 20, "found too few: {named}");
}

/// Expands `a/{b,c}.rs` to `a/b.rs` and `a/c.rs`.
fn expand(path: &str) -> Vec<String> {
    let Some((before, (choices, after))) = path.split_once('{').and_then(|(b, rest)| Some((b, rest.split_once('}')?)))
    else {
        return vec![path.to_owned()];
    };
    choices.split(',').flat_map(|choice| expand(&format!("{before}{choice}{after}"))).collect()
}

/// Returns the paths of the source tree among the words in backticks of a line.
fn paths(line: &str) -> Vec<String> {
    let is_path = |word: &&str| {
        let top = word.split('/').next().unwrap_or_default();
        word.contains('/') && !word.contains([' ', '*', '<']) && root().join(top).is_dir()
    };
    line.split('`').skip(1).step_by(2).filter(is_path).flat_map(expand).collect()
}

#[test]
fn the_paths_in_the_table_of_topics_exist() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md");
    let rows = text.lines().skip_while(|line| *line != "| to change | look at |").skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() >= TOPICS_MIN, "docs/architecture.md has only {} topics", rows.len());
    let missing = |path: &String| !root().join(path).exists();
    let mut wrong = Vec::new();
    for row in rows {
        let named = paths(row);
        wrong.extend(named.is_empty().then(|| format!("no path: {row}")));
        wrong.extend(named.into_iter().filter(missing));
    }
    let guide = fs::read_to_string(root().join("docs/contributing.md")).expect("docs/contributing.md");
    wrong.extend(guide.lines().flat_map(paths).filter(missing));
    assert!(wrong.is_empty(), "docs/architecture.md or docs/contributing.md names files that do not exist: {wrong:#?}");
}

/// The tables of docs/performance.md are generated, and each stored record is shown there.
#[test]
fn generated_tables_are_those_of_the_stored_records() {
    let (document, records) = (root().join("docs/performance.md"), root().join("docs/measurements"));
    let text = fs::read_to_string(document).expect("UTF-8");
    let rendered = rendered(&text, &records).expect("records of all tables");
    let differs = (1..).zip(text.lines().zip(rendered.lines())).find(|(_, (is, should_be))| is != should_be);
    assert!(
        text == rendered,
        "docs/performance.md differs from its records ({differs:?}); `cargo run -p sheen-bench --bin performance` renders it"
    );
    let shown = names(&text);
    for entry in fs::read_dir(records).expect("docs/measurements").flatten() {
        let name = entry.path().file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
        assert!(shown.contains(&name.as_str()), "docs/performance.md does not show the record {name}");
    }
    let by_hand = tables_by_hand(&text);
    assert!(by_hand.is_empty(), "docs/performance.md has tables without a record in the lines {by_hand:?}");
}

/// Returns the numbers of the lines with tables outside of generated blocks.
fn tables_by_hand(document: &str) -> Vec<usize> {
    let (mut is_generated, mut found) = (false, Vec::new());
    for (number, line) in (1..).zip(document.lines()) {
        match line {
            "<!-- end -->" => is_generated = false,
            line if line.starts_with("<!-- table: ") => is_generated = true,
            line if line.starts_with('|') && !is_generated => found.push(number),
            _ => {}
        }
    }
    found
}

/// `make performance` knows how to measure each stored record again.
#[test]
fn every_stored_record_can_be_measured_again() {
    let script = fs::read_to_string(root().join("scripts/performance")).expect("UTF-8");
    let patterns =
        script.lines().filter_map(|line| line.split_once(") ").map(|(names, _)| names).or(line.strip_suffix(')')));
    let known: Vec<&str> = patterns.flat_map(|names| names.split('|')).map(str::trim).collect();
    for entry in fs::read_dir(root().join("docs/measurements")).expect("docs/measurements").flatten() {
        let name = entry.path().file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
        assert!(known.contains(&name.as_str()), "scripts/performance does not measure the record {name}");
    }
}

#[test]
fn comments_and_documents_follow_the_style() {
    let mut files_of_text = Vec::new();
    files(&root(), &["rs", "md"], &mut files_of_text);
    let mut left = 0;
    for file in files_of_text {
        // Captures of the real Lustre, and the file that lists what is banned.
        if file.starts_with(root().join("tests/reference")) || file.ends_with("tidy/prose.rs") {
            continue;
        }
        let names = if file.extension().is_some_and(|e| e == "rs") { prose::names(&file) } else { Vec::new() };
        for (number, what) in prose::findings(&file).into_iter().chain(names) {
            println!("{}:{number}: {what}", file.strip_prefix(root()).unwrap_or(&file).display());
            left += 1;
        }
    }
    assert_eq!(left, 0, "findings, listed above; docs/glossary.md has the words");
}
