//! Tests of walks over real directories.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use sheen_wire::{Errno, FileKind, Result, glob::Glob};

use super::*;
use crate::find::{
    Needs, Range, Side,
    entry::Entry,
    facts::Facts,
    test::{Property, Test},
};

/// Collects paths, each with a NUL at its end.
struct Paths;

impl Collect for Paths {
    type Item = u8;

    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn add(&self, entry: &mut Entry<'_>, items: &mut Vec<u8>) -> Result<()> {
        entry.write_path(items);
        items.push(0);
        Ok(())
    }
}

fn all() -> Query {
    Query::new(0)
}

fn with(mut query: Query, property: Property) -> Query {
    query.add(Test { property, negated: false });
    query
}

fn of_type(kind: FileKind) -> Query {
    with(all(), Property::Type(kind))
}

fn named(pattern: &str) -> Query {
    with(all(), Property::Name(Glob::of_names(pattern.as_bytes())))
}

fn skipping(mut query: Query, skip: u64) -> Query {
    query.skip = skip;
    query
}

fn between(min_depth: u32, max_depth: u32) -> Query {
    let mut query = all();
    (query.min_depth, query.max_depth) = (min_depth, max_depth);
    query
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).unwrap()
}

/// Walks with this many threads. Returns the collected bytes and the failures.
fn walked(roots: &[&Path], query: &Query, threads: usize) -> (Vec<u8>, Vec<Failure>) {
    let roots = roots.iter().map(|root| c_string(root)).collect();
    let (mut bytes, mut failures) = (Vec::new(), Vec::new());
    walk(query, &Paths, roots, threads, |event| {
        match event {
            Event::Found(more) => {
                assert_eq!(more.last(), Some(&0), "the items of an entry come together");
                bytes.extend(more);
            }
            Event::Failed(failure) => failures.push(failure),
        }
        true
    });
    (bytes, failures)
}

fn paths(root: &Path, query: &Query, threads: usize) -> Vec<PathBuf> {
    let (bytes, failures) = walked(&[root], query, threads);
    assert!(failures.is_empty(), "{failures:?}");
    let paths = bytes.split(|b| *b == 0).filter(|path| !path.is_empty());
    paths.map(|path| PathBuf::from(OsString::from_vec(path.to_vec()))).collect()
}

/// Creates 20 directories, nested and side by side, with 10 files each, and one with more files
/// than a batch.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..20 {
        let below = dir.path().join(format!("d{}/e{i:02}", i % 4));
        fs::create_dir_all(&below).unwrap();
        for k in 0..10 {
            fs::write(below.join(format!("f{k}")), vec![0; k * 100]).unwrap();
        }
    }
    let wide = dir.path().join("wide");
    fs::create_dir(&wide).unwrap();
    for k in 0..1000 {
        fs::write(wide.join(format!("w{k}")), vec![0; k % 3]).unwrap();
    }
    dir
}

#[test]
fn walk_visits_every_entry_once_with_any_number_of_threads() {
    let dir = tree();
    let of_one_byte = with(of_type(FileKind::Regular), Property::Size(Range { side: Side::Equal, value: 1, unit: 1 }));
    for (query, count) in
        [(all(), 1 + 4 + 20 + 200 + 1 + 1000), (of_one_byte, 333), (of_type(FileKind::Dir), 26), (named("w1*"), 111)]
    {
        for threads in [1, 2, 7] {
            let found = paths(dir.path(), &query, threads);
            let different: BTreeSet<&PathBuf> = found.iter().collect();
            assert_eq!((found.len(), different.len()), (count, count), "{query:?} by {threads}");
            assert!(found.iter().all(|path| path.exists()));
        }
    }
}

#[test]
fn walk_by_one_thread_sends_in_name_order() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b/y", "b/x/q", "a", "b.c", "c/z"] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let found = paths(dir.path(), &between(1, u32::MAX), 1);
    let names: Vec<_> = found.iter().map(|path| path.strip_prefix(dir.path()).unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "b/x", "b/x/q", "b/y", "b.c", "c", "c/z"]);
    let count = |min_depth, max_depth| paths(dir.path(), &between(min_depth, max_depth), 1).len();
    assert_eq!((count(0, 0), count(0, 1), count(3, u32::MAX)), (1, 5, 1));
}

#[test]
fn walk_returns_paths_that_begin_with_the_root_as_given() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "").unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("lost")).unwrap();
    let with_slash = PathBuf::from(format!("{}/", dir.path().display()));
    let (file, lost) = (dir.path().join("f"), dir.path().join("lost"));
    let links = of_type(FileKind::Symlink);
    assert_eq!(paths(&with_slash, &named("f"), 2), std::slice::from_ref(&file));
    assert_eq!(paths(&file, &all(), 2), std::slice::from_ref(&file));
    assert_eq!(paths(&lost, &links, 2), std::slice::from_ref(&lost));
    // A root that links to a directory is followed. A link below it is not.
    let link = dir.path().join("link");
    assert_eq!(paths(&link, &named("f"), 2), [link.join("f")]);
    assert_eq!(paths(&link, &links, 1), [link.join("link"), link.join("lost")]);
    let missing = dir.path().join("missing");
    let (found, failures) = walked(&[&missing, &file], &all(), 3);
    assert_eq!(found, [file.to_str().unwrap().as_bytes(), b"\0"].concat());
    assert_eq!(failures, [Failure::new(Step::ExamineRoot, &missing, Errno::ENOENT)]);
}

#[test]
fn walk_skips_the_same_percentage_every_time() {
    let dir = tree();
    let half = paths(dir.path(), &skipping(of_type(FileKind::Regular), 50), 3);
    assert!((400..800).contains(&half.len()), "{} of 1200", half.len());
    let again: BTreeSet<PathBuf> =
        paths(dir.path(), &skipping(of_type(FileKind::Regular), 50), 1).into_iter().collect();
    assert_eq!(half.into_iter().collect::<BTreeSet<_>>(), again);
    assert!(paths(dir.path(), &skipping(all(), 100), 2).is_empty());
}

#[test]
fn walk_ends_when_the_caller_stops_it() {
    let dir = tree();
    let mut taken = 0;
    walk(&all(), &Paths, vec![c_string(dir.path()); 50], 4, |_| {
        taken += 1;
        false
    });
    assert_eq!(taken, 1);
}
