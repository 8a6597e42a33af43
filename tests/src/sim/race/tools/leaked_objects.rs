//! Asserts that after the race only objects of files exist.

use std::{collections::BTreeSet, time::Duration};

use sheen_wire::{Errno, Fid};

use crate::sim::{
    perform::entries,
    race::stage::Stage,
    striping::layout,
    tree::{data_objects, objects},
};

/// Time within which objects of deleted files are removed. Files that dead clients had open are
/// closed when these clients are evicted.
const CLEANUP: Duration = Duration::from_secs(120);
/// Size in bytes of a readdir page, which holds all entries.
const PAGE: u32 = 4000;

/// Waits until only objects of files exist.
///
/// # Panics
/// If other objects are not removed in time.
pub async fn check_objects(stage: &Stage) {
    let client = &stage.client_hosts[*stage.living().first().expect("one lives")].client;
    let mut files: BTreeSet<Fid> = stage.files.iter().copied().chain([stage.log, stage.counter]).collect();
    for dir in &stage.dirs {
        let found = entries(client, *dir, PAGE, false).await.expect("the race is over");
        files.extend(found.iter().filter(|(name, _)| !name.starts_with('.')).map(|(_, entry)| entry.0));
    }
    let mut known = BTreeSet::new();
    for fid in files {
        match layout(client, fid).await {
            Ok(layout) => known.extend(layout.all_objects().map(|s| (s.ost, s.object))),
            Err(errno) => assert_eq!(errno, Errno::ENODATA, "the layout of {fid}"),
        }
    }
    let end = stage.world.now() + CLEANUP;
    loop {
        let there = objects(&stage.world).into_iter().chain(data_objects(&stage.world));
        let left: Vec<_> = there.filter(|object| !known.contains(object)).collect();
        if left.is_empty() {
            return;
        }
        assert!(stage.world.now() < end, "objects that belong to no file: {left:?}; {:?}", stage.plan);
        stage.control_rt().sleep(Duration::from_millis(200)).await;
    }
}
