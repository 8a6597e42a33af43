//! A file that a rename replaced.

use std::sync::Arc;

use crate::common::*;
use sheen_namespace::{Config, MemStore};
use sheen_wire::{
    Cred, Errno, Fid, Time,
    fid::ROOT,
    mds::{Reply, Request},
};

#[test]
fn replaced_file_can_be_opened_until_its_time_expires() {
    let mut fs = Fs::on(Arc::new(MemStore::new()), Config { keep_replaced_ms: 200, ..Config::default() });
    let me = user(1);
    let d = fs.mkdir(&Cred::ROOT, ROOT, "d", 0o777).unwrap();
    fs.chmod(&Cred::ROOT, d, 0o777).unwrap();
    let (old, new) = (fs.touch(&me, d, "name", 0o644).unwrap(), fs.touch(&me, d, "new", 0o644).unwrap());
    fs.rename(&me, (d, "new"), (d, "name"), 0).unwrap();
    assert_eq!(fs.lookup(&me, d, "name").unwrap().fid, new);
    let open = |fs: &mut Fs, fid: Fid| fs.call(Request::Open { cred: user(1), fid, flags: 0 });
    let Ok(Reply::Opened { handle, .. }) = open(&mut fs, old) else { panic!("looked up before") };
    let later = |fs: &Fs| Time { sec: fs.env.now.sec + 1, ..fs.env.now };
    let now = later(&fs);
    assert!(!fs.ns.drop_replaced(now));
    assert!(open(&mut fs, old).is_ok(), "the file is still open");
    fs.call(Request::close(old, handle)).unwrap();
    fs.ns.disconnect(ME);
    assert!(matches!(open(&mut fs, old), Err(Errno::ENOENT)));
    // A file that is only unlinked is deleted at once, as its name does not exist any more either.
    fs.unlink(&me, d, "name").unwrap();
    assert!(matches!(open(&mut fs, new), Err(Errno::ENOENT)));
    fs.check();
}
