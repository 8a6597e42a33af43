//! readdir for a kernel, and statahead, over fake servers that log their requests.

use std::{sync::Arc, time::Duration};

use crate::fake::{Kernel, Mounted, ROOT, bulk, name, root, with};
use sheen_client::{DirItem, OpenDir};
use sheen_wire::{Errno, mds::flags};

/// Creates `files` files with one byte each. Opens their directory, with nothing cached.
async fn directory(m: &Mounted, files: usize) -> Arc<OpenDir> {
    for i in 0..files {
        let flags = flags::RDWR | flags::CREAT;
        let file = m.client.create(&ROOT, root(), &name(&format!("f{i:04}")), flags, 0o644, 0).await.unwrap().1;
        m.client.write(&file, 0, bulk(b"x")).await.unwrap();
        m.client.release(file).await.unwrap();
    }
    m.world.state.lock().locks.on = true;
    m.client.set_kernel(Arc::new(Kernel));
    let dir = m.client.opendir(&ROOT, root(), 0).await.unwrap();
    m.world.asked();
    dir
}

async fn settle(m: &Mounted) {
    m.net.rt().sleep(Duration::from_millis(50)).await;
}

/// Lists a directory as `ls -l` does, a few names at a time.
async fn list_and_look(m: &Mounted, dir: &OpenDir, plus: bool) -> Vec<DirItem> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let page = m.client.list(dir, cookie, 640, plus).await.unwrap();
        let Some(last) = page.entries.last() else { return all };
        cookie = last.cookie;
        for item in page.entries {
            if item.cookie > 2 {
                let found = m.client.lookup(&ROOT, root(), &item.name).await.unwrap();
                assert_eq!((found.attr.fid, found.attr.size), (item.fid, 1));
                assert_eq!(m.client.getattr(item.fid, None).await.unwrap().attr.size, 1);
                for xattr in ["security.selinux", "system.posix_acl_access"] {
                    assert_eq!(m.client.getxattr(&ROOT, item.fid, &name(xattr)).await.unwrap_err(), Errno::ENODATA);
                }
            }
            all.push(item);
        }
    }
}

fn count(asked: &[String], what: &str) -> usize {
    asked.iter().filter(|a| a.contains(what)).count()
}

#[test]
fn listing_with_attributes_lets_lookups_send_no_request() {
    with(2, 65536, &[0, 1], async |m| {
        let dir = directory(&m, 300).await;
        let all = list_and_look(&m, &dir, true).await;
        assert_eq!(all.len(), 302);
        let asked = m.world.asked();
        assert_eq!(count(&asked, "mds readdir"), 1, "{asked:?}");
        assert_eq!(count(&asked, "mds lookup"), 0, "{asked:?}");
        assert!(asked.len() <= 4, "and one request per OST: {asked:?}");
        let stats = m.params.get("llite.*.statahead_stats").unwrap()[0].value.clone();
        assert!(stats.contains("hit_total: 300\nmiss_total: 0\n"), "{stats}");
        let names: Vec<&str> = stats.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
        let of_lustre = ["statahead total", "agl total", "list_total", "hit_total", "miss_total"];
        assert_eq!(names[..5], of_lustre, "in the order of Lustre's 063-statahead");
    });
}

#[test]
fn lookups_in_listing_order_trigger_statahead() {
    with(1, 65536, &[0], async |m| {
        let dir = directory(&m, 1000).await;
        assert_eq!(list_and_look(&m, &dir, false).await.len(), 1002);
        let asked = m.world.asked();
        assert_eq!(count(&asked, "mds lookup"), 1, "the first: {asked:?}");
        assert!(asked.len() < 40, "{} {asked:?}", asked.len());
        assert_eq!(count(&asked, "getxattr"), 0);
        list_and_look(&m, &dir, false).await;
        assert_eq!(m.world.asked(), ["mds readdir"], "everything is cached");

        m.params.set("llite.*.statahead_max", "0").unwrap()[0].result.clone().unwrap();
        m.params.set("ldlm.namespaces.*.lru_size", "clear").unwrap();
        settle(&m).await;
        m.world.asked();
        list_and_look(&m, &dir, true).await;
        assert_eq!(count(&m.world.asked(), "mds lookup"), 1000, "switched off");
    });
}

#[test]
fn statahead_batch_max_bounds_the_names_of_a_request() {
    with(1, 65536, &[0], async |m| {
        let dir = directory(&m, 1000).await;
        let mut requests = Vec::new();
        for batch in ["4096", "10"] {
            m.params.set("llite.*.statahead_batch_max", batch).unwrap()[0].result.clone().unwrap();
            m.params.set("ldlm.namespaces.*.lru_size", "clear").unwrap();
            settle(&m).await;
            m.world.asked();
            assert_eq!(list_and_look(&m, &dir, false).await.len(), 1002);
            requests.push(count(&m.world.asked(), "mds readdir"));
        }
        assert!(requests[1] > 3 * requests[0], "{requests:?}");
    });
}

#[test]
fn statahead_agl_0_leaves_sizes_to_each_stat() {
    with(1, 65536, &[0], async |m| {
        let dir = directory(&m, 100).await;
        m.params.set("llite.*.statahead_agl", "0").unwrap()[0].result.clone().unwrap();
        assert_eq!(list_and_look(&m, &dir, true).await.len(), 102);
        let asked = m.world.asked();
        assert!(count(&asked, "ost0 ") >= 100, "{asked:?}");
        let stats = m.params.get("llite.*.statahead_stats").unwrap()[0].value.clone();
        assert!(stats.contains("agl total: 0\n"), "{stats}");
    });
}

#[test]
fn statahead_timeout_ends_statahead_of_an_idle_directory() {
    with(1, 65536, &[0], async |m| {
        let dir = directory(&m, 100).await;
        m.params.set("llite.*.statahead_timeout", "2").unwrap()[0].result.clone().unwrap();
        let requests_after = async |idle: Duration| {
            m.params.set("ldlm.namespaces.*.lru_size", "clear").unwrap();
            settle(&m).await;
            let page = m.client.list(&dir, 0, 1 << 20, false).await.unwrap();
            m.net.rt().sleep(idle).await;
            m.world.asked();
            for item in page.entries.iter().filter(|item| item.cookie > 2) {
                m.client.lookup(&ROOT, root(), &item.name).await.unwrap();
            }
            count(&m.world.asked(), "mds lookup")
        };
        assert_eq!(requests_after(Duration::from_secs(1)).await, 1, "the first");
        assert_eq!(requests_after(Duration::from_secs(3)).await, 100);
        let refused = m.params.set("llite.*.statahead_timeout", "0").unwrap().remove(0).result.unwrap_err();
        assert_eq!(refused.accepts.as_deref(), Some("1 to 3600"));
    });
}

#[test]
fn listing_stays_the_same_until_rewind() {
    with(1, 65536, &[0], async |m| {
        let dir = directory(&m, 100).await;
        let first = m.client.list(&dir, 0, 640, false).await.unwrap();
        assert!(!first.eof && first.entries.len() < 30);
        m.client.unlink(&ROOT, root(), &name("f0099")).await.unwrap();
        m.world.asked();
        let (mut rest, mut cookie) = (Vec::new(), first.entries.last().unwrap().cookie);
        loop {
            let page = m.client.list(&dir, cookie, 640, false).await.unwrap();
            cookie = page.entries.last().map_or(cookie, |e| e.cookie);
            rest.extend(page.entries);
            if page.eof {
                break;
            }
        }
        assert_eq!(first.entries.len() + rest.len(), 102, "the directory as of its first read");
        assert!(m.world.asked().is_empty(), "one reply was enough");
        let again = m.client.list(&dir, 0, 1 << 20, false).await.unwrap();
        assert_eq!((again.entries.len(), again.eof), (101, true));
        let from_the_middle = m.client.list(&dir, rest[0].cookie, 1 << 20, false).await.unwrap();
        assert_eq!(from_the_middle.entries[0].name, rest[1].name, "seekdir");
        m.client.lookup(&ROOT, root(), &name("f0099")).await.expect_err("a listing proves nothing");
    });
}
