//! An MDT whose store is lost does not start; one whose store is damaged becomes read-only.

use std::path::Path;
use std::time::Duration;

use crate::common::{Host, client::chmod, config, simulate, with_host};
use bytes::Bytes;
use sheen_lnet::Net;
use sheen_mds::{Mdt, MdtConfig, MdtError, RedbStore};
use sheen_namespace::StoreError;
use sheen_params::Params;
use sheen_rpc::Server;
use sheen_rt::{Disk, OpenOptions, Rt};
use sheen_wire::mds::{Reply, Request, flags};
use sheen_wire::{Cred, Errno, fid};

pub const STORE: &str = "/mdt/store.redb";
/// Size of redb's header, in bytes. Pages follow it.
const HEADER_BYTES: usize = 4096;
/// Number of directories. Their records need many pages.
const DIRS: usize = 300;

/// Configuration of an MDT that has no pages of its store in memory.
fn uncached() -> MdtConfig {
    MdtConfig { store_cache_bytes: 0, ..config() }
}

/// Starts an MDT with a committed tree, and waits until it is idle.
async fn filled(rt: &Rt, config: MdtConfig) -> Host {
    let host = Host::start(rt, config).await;
    for i in 0..DIRS {
        host.mkdir(&format!("d{i}")).await.unwrap();
    }
    host.sync().await.unwrap();
    rt.sleep(Duration::from_secs(1)).await;
    host
}

/// Overwrites all pages; returns the contents of the file.
pub fn overwrite_pages(disk: &Disk) -> Vec<u8> {
    let store = disk.open(STORE, OpenOptions::READ_WRITE).unwrap();
    let pages = store.len().unwrap() as usize - HEADER_BYTES;
    store.write_all_at(HEADER_BYTES as u64, &vec![0xA5; pages]).unwrap();
    disk.read(STORE).unwrap()
}

async fn look(host: &Host, name: &str) -> Result<(), Errno> {
    let name = Bytes::copy_from_slice(name.as_bytes());
    host.ask(Request::Lookup { cred: Cred::ROOT, parent: fid::ROOT, name }).await.map(drop)
}

/// Starts the MDT, which must fail; returns the error.
async fn refused(rt: &Rt) -> MdtError {
    let net = Net::new(rt.clone());
    let server = Server::new(net.clone());
    Mdt::start(rt.clone(), net, &server, config(), Params::new()).await.err().unwrap()
}

fn assert_says_what_to_do(error: &MdtError) {
    let text = error.to_string();
    assert!(text.contains(STORE) && text.contains("from one backup"), "{text}");
}

#[test]
fn a_read_that_meets_damage_fails_and_makes_the_mdt_read_only() {
    simulate(1, async |_, rt| {
        // Without a cache of inodes and entries either.
        let host = filled(&rt, MdtConfig { cache_bytes: 0, ..uncached() }).await;
        look(&host, "d7").await.unwrap();
        let damaged = overwrite_pages(&rt.disk());
        assert_eq!(look(&host, "d7").await, Err(Errno::EIO));
        assert_eq!(host.param("mdt.*.health"), "read-only: the store is damaged");
        assert_eq!(host.mkdir("new").await.map(drop), Err(Errno::EROFS));
        assert_eq!(host.unlink("d7").await, Err(Errno::EROFS));
        assert_eq!(look(&host, "d8").await, Err(Errno::EIO), "it continues to reply");
        host.ask(Request::StatFs).await.unwrap();
        assert_eq!(host.mdt.stop().await, Err(Errno::EIO), "uncommitted changes are lost");
        host.mgs.stop();
        assert!(rt.disk().read(STORE).unwrap() == damaged, "something was written to a damaged store");

        let error = refused(&rt).await;
        assert!(matches!(error, MdtError::StoreDamaged { .. }), "{error}");
        assert_says_what_to_do(&error);
    });
}

#[test]
fn a_commit_that_meets_damage_makes_the_mdt_read_only() {
    simulate(2, async |_, rt| {
        let host = filled(&rt, uncached()).await;
        overwrite_pages(&rt.disk());
        // The inode is in memory.
        host.ask(chmod(fid::ROOT, 0o711)).await.unwrap();
        assert_eq!(host.sync().await, Err(Errno::EIO));
        assert_eq!(host.param("mdt.*.health"), "read-only: the store is damaged");
        assert_eq!(host.sync().await, Err(Errno::EIO), "a second sync fails as well");
        assert_eq!(host.ask(chmod(fid::ROOT, 0o700)).await.map(drop), Err(Errno::EROFS));
        let open = |flags| Request::Open { cred: Cred::ROOT, fid: fid::ROOT, flags };
        assert!(host.ask(open(flags::RDONLY | flags::DIRECTORY)).await.is_ok(), "cached inodes can be opened");
        let getattr = Request::GetAttr { fid: fid::ROOT, layout_known: false };
        let Reply::Entry(root) = host.ask(getattr).await.unwrap().body.reply else { panic!() };
        assert_eq!(root.attr.perm, 0o711, "changes with a reply are visible until the MDT stops");
        assert_eq!(host.mdt.stop().await, Err(Errno::EIO));
    });
}

#[test]
fn start_with_lost_store_is_refused_and_changes_nothing() {
    with_host(3, config(), async |_, rt, host| {
        host.mkdir("a").await.unwrap();
        host.mdt.stop().await.unwrap();
        host.mgs.stop();
        let disk = rt.disk();
        let sound = disk.read(STORE).unwrap();

        disk.remove_file(STORE).unwrap();
        let error = refused(&rt).await;
        assert!(matches!(error, MdtError::StoreMissing(_)), "{error}");
        assert_says_what_to_do(&error);
        assert!(disk.metadata(STORE).is_err(), "a store was created");

        disk.write_atomic(STORE, b"").unwrap();
        let error = refused(&rt).await;
        assert!(matches!(error, MdtError::StoreEmpty(_)), "{error}");
        assert_says_what_to_do(&error);
        assert_eq!(disk.metadata(STORE).unwrap().len, 0);

        disk.remove_file(STORE).unwrap();
        drop(RedbStore::open(&disk, Path::new(STORE), 1 << 20).unwrap());
        let error = refused(&rt).await;
        let is_rootless = matches!(error, MdtError::StoreDamaged { error: StoreError::Incomplete(_), .. });
        assert!(is_rootless, "{error}");
        assert_says_what_to_do(&error);

        disk.write_atomic(STORE, &sound).unwrap();
        assert!(Host::start(&rt, config()).await.exists("a").await);
    });
}

#[test]
fn half_created_store_is_recreated_and_foreign_file_is_refused() {
    simulate(4, async |_, rt| {
        let disk = rt.disk();
        disk.create_dir_all("/mdt").unwrap();
        disk.write_atomic(STORE, b"something else").unwrap();
        let error = refused(&rt).await;
        assert!(matches!(error, MdtError::StoreDamaged { .. }), "{error}");
        assert_eq!(disk.read(STORE).unwrap(), b"something else");

        disk.write_atomic(STORE, &[0; 2 * HEADER_BYTES]).unwrap();
        let host = Host::start(&rt, config()).await;
        host.mkdir("a").await.unwrap();
        host.sync().await.unwrap();
    });
}
