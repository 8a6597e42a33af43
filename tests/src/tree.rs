//! A tree of files and symbolic links that mount A creates and mount B reads. Tests count the
//! requests that this costs.

use std::{fs, os::unix::fs::symlink};

use crate::{
    mounts::{Two, TwoMounts},
    noise,
};

/// Number of files in the tree. Every fifth has [`LEN`] bytes on several stripes, the others
/// [`SHORT`] bytes.
pub const FILES: usize = 50;
/// Number of subdirectories of the tree. Files are spread over them round-robin.
pub const DIRS: usize = 5;
/// Size in bytes of a file on several stripes.
pub const LEN: usize = 300_000;
/// Size in bytes of the other files.
pub const SHORT: usize = 100;

/// Returns the path of file number `i`.
pub fn name(i: usize) -> String {
    format!("tree/sub{}/f{i}", i % DIRS)
}

/// Returns the size in bytes of file number `i`.
pub fn len(i: usize) -> usize {
    if i.is_multiple_of(5) { LEN } else { SHORT }
}

/// Creates the tree through mount A and waits until the mounts send no more requests.
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

/// Calls stat on all files and links through mount B.
#[track_caller]
pub fn stat_all(at: &Two) {
    for i in 0..FILES {
        assert_eq!(fs::metadata(at.b(&name(i))).expect("a file").len(), len(i) as u64);
        assert!(fs::symlink_metadata(at.b(&format!("{}.link", name(i)))).expect("a link").is_symlink());
    }
}

/// Reads the long files through mount B.
#[track_caller]
pub fn read_all(at: &Two) {
    for i in (0..FILES).step_by(5) {
        assert!(fs::read(at.b(&name(i))).expect("a file") == noise(i as u64, LEN));
    }
}
