//! Executed files: which clients may write a file that a program runs from.

use crate::common::*;
use sheen_namespace::ClientId;
use sheen_wire::{
    Cred, Errno, Fid,
    fid::ROOT,
    ldlm::bits,
    mds::flags::{EXEC, RDONLY, RDWR, TRUNC, WRONLY},
};

const OTHER: ClientId = ClientId(ME.0 + 1);

fn file(fs: &mut Fs) -> Fid {
    fs.touch(&Cred::ROOT, ROOT, "f", 0o755).unwrap()
}

#[test]
fn write_open_of_an_executed_file_returns_etxtbsy() {
    let mut fs = Fs::new();
    let f = file(&mut fs);
    let program = fs.open(&Cred::ROOT, f, EXEC).unwrap();
    let busy = Err(Errno::ETXTBSY);
    let tried = |fs: &mut Fs, flags| match fs.open(&Cred::ROOT, f, flags) {
        Ok(open) => fs.close(open),
        Err(errno) => Err(errno),
    };
    let created = |fs: &mut Fs, flags| match fs.create(&Cred::ROOT, ROOT, "f", flags, 0o644) {
        Ok(open) => fs.close(open),
        Err(errno) => Err(errno),
    };
    for (client, by_open) in [(OTHER, busy), (ME, Ok(()))] {
        fs.client = client;
        assert_eq!((tried(&mut fs, WRONLY), tried(&mut fs, RDWR | TRUNC)), (by_open, by_open));
        assert_eq!(fs.truncate(&Cred::ROOT, f, 1).map(drop), by_open);
        // In these cases the kernel does not check before the request.
        assert_eq!((tried(&mut fs, TRUNC), created(&mut fs, TRUNC), created(&mut fs, RDWR)), (busy, busy, busy));
        assert_eq!((tried(&mut fs, RDONLY), tried(&mut fs, EXEC), created(&mut fs, RDONLY)), (Ok(()), Ok(()), Ok(())));
    }
    fs.close(program).unwrap();
    fs.client = OTHER;
    assert_eq!((tried(&mut fs, TRUNC), created(&mut fs, RDWR)), (Ok(()), Ok(())));
    fs.check();
}

#[test]
fn exec_open_invalidates_open_to_find_writers() {
    let mut fs = Fs::new();
    let f = file(&mut fs);
    let program = fs.open(&Cred::ROOT, f, EXEC).unwrap();
    assert_eq!(fs.invalidations, [(f, bits::OPEN)]);
    assert!(!fs.ns.is_written_elsewhere(ME, f) && fs.ns.is_run_elsewhere(OTHER, f) && !fs.ns.is_run_elsewhere(ME, f));
    fs.close(program).unwrap();
    fs.client = OTHER;
    fs.open(&Cred::ROOT, f, WRONLY).unwrap();
    fs.client = ME;
    let (_, handle) = fs.open(&Cred::ROOT, f, EXEC).unwrap();
    // The writer's close may be delayed under its LAYOUT lock.
    assert_eq!(fs.invalidations, [(f, bits::OPEN | bits::LAYOUT)]);
    assert!(fs.ns.is_written_elsewhere(ME, f));
    fs.ns.refuse_run(ME, f, handle);
    assert!(!fs.ns.is_run_elsewhere(OTHER, f));
    fs.ns.disconnect(OTHER);
    assert!(!fs.ns.is_written_elsewhere(ME, f));
    fs.check();
}
