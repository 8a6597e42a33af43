//! A tree of files and symbolic links that one mount makes and the other one looks at: for tests of
//! what that costs.

use std::{fs, os::unix::fs::symlink};

use crate::{
    mounts::{Two, TwoMounts},
    noise,
};

/// Files of the tree; every fifth is [`LEN`] bytes long, over several stripes, the others
/// [`SHORT`].
pub const FILES: usize = 50;
/// Subdirectories of the tree, which have the files by turns.
pub const DIRS: usize = 5;
/// Bytes of a file of several stripes.
pub const LEN: usize = 300_000;
/// Bytes of the other files.
pub const SHORT: usize = 100;

/// Of a file of the tree.
pub fn name(i: usize) -> String {
    format!("tree/sub{}/f{i}", i % DIRS)
}

/// Bytes of a file of the tree.
pub fn len(i: usize) -> usize {
    if i.is_multiple_of(5) { LEN } else { SHORT }
}

/// A makes the tree. Its requests are over afterwards.
#[track_caller]
pub fn plant(two: &TwoMounts, at: &Two) {
    for i in 0..DIRS {
        fs::create_dir_all(at.a(&format!("tree/sub{i}"))).expect("a directory");
    }
    for i in 0..FILES {
        fs::write(at.a(&name(i)), noise(i as u64, len(i))).expect("a file");
        symlink(format!("f{i}"), at.a(&format!("{}.link", name(i)))).expect("a symbolic link");
    }
    two.quiet();
}

/// B looks at all files and links.
#[track_caller]
pub fn stat_all(at: &Two) {
    for i in 0..FILES {
        assert_eq!(fs::metadata(at.b(&name(i))).expect("a file").len(), len(i) as u64);
        assert!(fs::symlink_metadata(at.b(&format!("{}.link", name(i)))).expect("a link").is_symlink());
    }
}

/// B reads the long files.
#[track_caller]
pub fn read_all(at: &Two) {
    for i in (0..FILES).step_by(5) {
        assert!(fs::read(at.b(&name(i))).expect("a file") == noise(i as u64, LEN));
    }
}
