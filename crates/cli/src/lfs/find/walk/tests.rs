//! Tests of walks over real directories.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use super::{
    super::options::{self, Word},
    *,
};

/// Walks with this many threads. Returns the printed output and the failures.
fn walked(roots: &[&Path], words: &str, threads: usize) -> (Vec<u8>, Vec<String>) {
    let mut query = Query::new(0);
    let args: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
    for word in options::parse(&args) {
        let Word::Option(id, value) = word else { panic!("{word:?}") };
        query.option(id, value.as_deref(), false).unwrap();
    }
    let roots = roots.iter().map(|root| CString::new(root.as_os_str().as_encoded_bytes()).unwrap()).collect();
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    walk(&query, roots, threads, |output| {
        match output {
            Output::Lines(more) => {
                assert!(more.last().is_some_and(|end| matches!(end, b'\n' | 0)), "lines come whole");
                lines.extend(more);
            }
            Output::Failed(text, _) => failures.push(text),
        }
        true
    });
    (lines, failures)
}

fn lines(root: &Path, words: &str, threads: usize) -> Vec<PathBuf> {
    let (out, failures) = walked(&[root], words, threads);
    assert!(failures.is_empty(), "{failures:?}");
    let paths = out.split(|b| *b == b'\n').filter(|line| !line.is_empty());
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
    for (words, count) in
        [("", 1 + 4 + 20 + 200 + 1 + 1000), ("-size 1 -type f", 333), ("-type d", 26), ("-name w1*", 111)]
    {
        for threads in [1, 2, 7] {
            let found = lines(dir.path(), words, threads);
            let different: BTreeSet<&PathBuf> = found.iter().collect();
            assert_eq!((found.len(), different.len()), (count, count), "{words} by {threads}");
            assert!(found.iter().all(|path| path.exists()));
        }
    }
}

#[test]
fn walk_by_one_thread_prints_in_name_order() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b/y", "b/x/q", "a", "b.c", "c/z"] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let found = lines(dir.path(), "-mindepth 1", 1);
    let names: Vec<_> = found.iter().map(|path| path.strip_prefix(dir.path()).unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "b/x", "b/x/q", "b/y", "b.c", "c", "c/z"]);
    let depths = |words| lines(dir.path(), words, 1).len();
    assert_eq!((depths("-maxdepth 0"), depths("-maxdepth 1"), depths("-mindepth 3")), (1, 5, 1));
}

#[test]
fn walk_prints_operands_as_given() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "").unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("lost")).unwrap();
    let with_slash = PathBuf::from(format!("{}/", dir.path().display()));
    let (file, lost) = (dir.path().join("f"), dir.path().join("lost"));
    assert_eq!(lines(&with_slash, "-name f", 2), std::slice::from_ref(&file));
    assert_eq!(lines(&file, "", 2), std::slice::from_ref(&file));
    assert_eq!(lines(&lost, "-type l", 2), std::slice::from_ref(&lost));
    // An operand that links to a directory is followed. A link below it is not.
    let link = dir.path().join("link");
    assert_eq!(lines(&link, "-name f", 2), [link.join("f")]);
    assert_eq!(lines(&link, "-type l", 1), [link.join("link"), link.join("lost")]);
    let missing = dir.path().join("missing");
    let (out, failures) = walked(&[&missing, &file], "-print0", 3);
    assert_eq!(out, [file.to_str().unwrap().as_bytes(), b"\0"].concat());
    assert_eq!(failures, [format!("lfs: failed for '{}': No such file or directory", missing.display())]);
}

#[test]
fn walk_skips_the_same_percentage_every_time() {
    let dir = tree();
    let half = lines(dir.path(), "-type f -skip 50", 3);
    assert!((400..800).contains(&half.len()), "{} of 1200", half.len());
    let again: BTreeSet<PathBuf> = lines(dir.path(), "-type f -skip 50", 1).into_iter().collect();
    assert_eq!(half.into_iter().collect::<BTreeSet<_>>(), again);
    assert!(lines(dir.path(), "-skip 100", 2).is_empty());
}

#[test]
fn walk_ends_when_output_is_closed() {
    let dir = tree();
    let mut taken = 0;
    let roots = vec![CString::new(dir.path().to_str().unwrap()).unwrap(); 50];
    walk(&Query::new(0), roots, 4, |_| {
        taken += 1;
        false
    });
    assert_eq!(taken, 1);
}
