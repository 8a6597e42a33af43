//! Time of operations of an MDT in memory, on one core, without locks and commits. `bench/calls.sh`
//! runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the tests' namespace, which is shared here, fails by panicking"
)]

#[path = "../tests/it/common/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use the other functions")]
mod common;
#[path = "../../../bench/calls/rounds.rs"]
mod rounds;

use common::{Fs, ROOT_CRED};
use sheen_wire::fid::ROOT;

/// Files of a round, in one directory.
const FILES: u32 = 10_000;
/// Bytes of a page of entries.
const PAGE_BYTES: u32 = 1 << 16;

fn main() {
    let mut fs = Fs::new();
    let names: Vec<String> = (0..FILES).map(|n| format!("file.{n:08}")).collect();
    let mut dirs = Vec::new();
    rounds::print("lookup of a missing name, create and close in the MDT", "", FILES, || {
        let dir = fs.mkdir(&ROOT_CRED, ROOT, &format!("dir{}", dirs.len()), 0o755).unwrap();
        for name in &names {
            assert!(fs.lookup(&ROOT_CRED, dir, name).is_err());
            fs.touch(&ROOT_CRED, dir, name, 0o644).unwrap();
        }
        dirs.push(dir);
    });
    rounds::print("lookup of a cached name in the MDT", "", FILES, || {
        for name in &names {
            fs.lookup(&ROOT_CRED, dirs[0], name).unwrap();
        }
    });
    rounds::print("entry of a readdir in the MDT", "", FILES, || {
        let mut cookie = 0;
        loop {
            let (entries, eof) = fs.readdir(dirs[0], cookie, PAGE_BYTES).unwrap();
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            if eof {
                break;
            }
        }
    });
}
