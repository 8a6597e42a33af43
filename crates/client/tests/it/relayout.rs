//! Files that another client migrates while this client requests the attributes of many files, over
//! fake servers.

use crate::fake::{Mounted, Object, ROOT, bulk, name, root, with};
use sheen_client::Seek;
use sheen_layout::{Layout, Stripe};
use sheen_wire::{
    Errno, Fid,
    mds::{SetAttr, flags},
};

/// Creates files with one byte each.
async fn files(m: &Mounted, count: usize) -> Vec<Fid> {
    let mut fids = Vec::new();
    for i in 0..count {
        let flags = flags::RDWR | flags::CREAT;
        let file = m.client.create(&ROOT, root(), &name(&format!("f{i:04}")), flags, 0o644, 0).await.unwrap().1;
        m.client.write(&file, 0, bulk(b"x")).await.unwrap();
        fids.push(file.fid());
        m.client.release(file).await.unwrap();
    }
    fids
}

fn layout(m: &Mounted, fid: Fid) -> Layout {
    Layout::decode(m.world.state.lock().nodes[&fid].layout.as_ref().unwrap()).unwrap()
}

/// Migrates a file to an object of 3 bytes on the second OST. A client with the old layout meets
/// sealed objects.
fn migrate(m: &Mounted, fid: Fid) {
    let (before, object) = (layout(m, fid), Fid::new(0x77, 1));
    let after = Layout::new(fid, 65536, None, vec![Stripe { object, ost: 1 }]).unwrap();
    let after = after.adopted(fid, before.generation() + 1).unwrap();
    let mut state = m.world.state.lock();
    state.habits.sealed.extend(before.stripes().iter().map(|s| s.object));
    state.objects.insert((1, object), Object { data: b"xyz".to_vec(), ..Object::default() });
    state.moving.insert(fid, after);
}

fn count(asked: &[String], what: &str) -> usize {
    asked.iter().filter(|a| a.contains(what)).count()
}

#[test]
fn readdir_repeats_query_only_for_migrated_file() {
    with(2, 65536, &[0], async |m| {
        let fids = files(&m, 60).await;
        for moved in [None, Some(fids[17])] {
            if let Some(fid) = moved {
                migrate(&m, fid);
            }
            let dir = m.client.opendir(&ROOT, root(), 0).await.unwrap();
            m.world.asked();
            let page = m.client.readdir(&dir, 0, 1 << 20, true).await.unwrap();
            assert!(page.eof);
            let found =
                page.entries.iter().filter_map(|item| item.attr.as_ref()).filter(|a| fids.contains(&a.attr.fid));
            let sizes: Vec<(Fid, u64)> = found.map(|a| (a.attr.fid, a.attr.size)).collect();
            let size = |fid: &Fid| if Some(*fid) == moved { 3 } else { 1 };
            assert_eq!(sizes, fids.iter().map(|fid| (*fid, size(fid))).collect::<Vec<_>>());
            let asked = m.world.asked();
            let times = moved.iter().count();
            assert_eq!(count(&asked, "mds readdir"), 1, "{asked:?}");
            assert_eq!(count(&asked, "mds layout_moved"), times, "{asked:?}");
            assert_eq!(count(&asked, "mds getattr"), times, "{asked:?}");
        }
    });
}

#[test]
fn scan_caches_no_layouts_and_takes_no_locks() {
    with(1, 65536, &[0], async |m| {
        let fids = files(&m, 60).await;
        m.world.state.lock().locks.on = true;
        let cached = || m.params.get("llite.*.cached_layouts").unwrap()[0].value.parse::<usize>().unwrap();
        assert_eq!(cached(), 0);
        let dir = m.client.opendir(&ROOT, root(), 0).await.unwrap();
        let locks = || m.world.state.lock().locks.held.len();
        let before = locks();
        let page = m.client.scan(&ROOT, &dir, 0, true, false).await.unwrap();
        let found: Vec<_> = page.after(0).iter().map(|item| (item.attr.unwrap().size, item.layout.clone())).collect();
        assert_eq!(found, fids.iter().map(|fid| (1, Some(layout(&m, *fid).encode().into()))).collect::<Vec<_>>());
        assert_eq!(cached(), 0);
        assert_eq!(locks(), before, "no locks either");
        // A lookup caches a layout.
        m.client.lookup(&ROOT, root(), &name("f0003")).await.unwrap();
        assert_eq!(cached(), 1);
    });
}

#[test]
fn change_of_destroyed_objects_is_repeated_once_with_the_present_layout() {
    with(2, 65536, &[0], async |m| {
        let flags = flags::RDWR | flags::CREAT;
        let file = m.client.create(&ROOT, root(), &name("f"), flags, 0o644, 0).await.unwrap().1;
        m.client.write(&file, 0, bulk(b"abc")).await.unwrap();
        migrate(&m, file.fid());
        {
            // The file left its objects long ago.
            let habits = &mut m.world.state.lock().habits;
            habits.destroyed = std::mem::take(&mut habits.sealed);
        }
        assert_eq!(m.client.write(&file, 0, bulk(b"ABC")).await, Ok(3));
        assert_eq!(m.world.state.lock().objects[&(1, Fid::new(0x77, 1))].data, b"ABC");
        m.world.state.lock().habits.destroyed.insert(Fid::new(0x77, 1));
        m.world.asked();
        assert_eq!(m.client.write(&file, 0, bulk(b"abc")).await, Err(Errno::ESTALE));
        assert_eq!(count(&m.world.asked(), "mds layout_moved"), 1);
    });
}

#[test]
fn operations_on_objects_that_stay_sealed_fail_with_eio() {
    with(1, 65536, &[0], async |m| {
        let flags = flags::RDWR | flags::CREAT;
        let file = m.client.create(&ROOT, root(), &name("f"), flags, 0o644, 0).await.unwrap().1;
        m.client.write(&file, 0, bulk(b"abc")).await.unwrap();
        let objects: Vec<Fid> = layout(&m, file.fid()).stripes().iter().map(|s| s.object).collect();
        m.world.state.lock().habits.sealed.extend(objects);
        let (client, fid) = (&m.client, file.fid());
        let eio = Err(Errno::EIO);
        assert_eq!(client.read(&file, 0, 3).await.map(drop), eio);
        assert_eq!(client.write(&file, 0, bulk(b"abc")).await.map(drop), eio);
        assert_eq!(client.write_as(&file, 0, bulk(b"abc"), true, false).await.map(drop), eio);
        assert_eq!(client.lseek(&file, 0, Seek::Data).await.map(drop), eio);
        assert_eq!(client.getattr(fid, Some(&file)).await.map(drop), eio);
        let cut = SetAttr { size: Some(1), ..SetAttr::default() };
        assert_eq!(client.setattr(&ROOT, fid, cut, Some(&file)).await.map(drop), eio);
        m.world.asked();
        assert_eq!(client.fsync(&file, false).await, eio);
        assert_eq!(count(&m.world.asked(), "mds layout_moved"), 32, "one request for each retry");
    });
}
