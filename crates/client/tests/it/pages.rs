//! Pages of mapped files that the kernel writes back, over fake servers. They never extend a file,
//! whatever size the kernel assumes.

use std::{sync::Arc, time::Duration};

use crate::fake::{Kernel, Mounted, ROOT, bulk, name, root, with, with_tcp, world::Habits};
use sheen_client::OpenFile;
use sheen_layout::{Count, Spec, Template, TemplateComponent};
use sheen_wire::{
    Errno, Fid,
    ldlm::Resource,
    mds::{SetAttr, flags},
};

const RDWR_CREATE: u32 = flags::RDWR | flags::CREAT;
const PAGE: usize = 4096;
const STRIPE: usize = 65536;

/// Creates a file of `len` bytes, and sets a kernel that caches pages.
async fn file(m: &Mounted, len: usize) -> Arc<OpenFile> {
    m.client.set_kernel(Arc::new(Kernel));
    m.world.state.lock().locks.on = true;
    let file = m.client.create(&ROOT, root(), &name("f"), RDWR_CREATE, 0o644, 0).await.expect("create").1;
    assert_eq!(m.client.write(&file, 0, bulk(&vec![1; len])).await, Ok(len));
    m.client.fsync(&file, false).await.expect("fsync");
    file
}

async fn size(m: &Mounted, file: &OpenFile) -> usize {
    m.client.getattr(file.fid(), Some(file)).await.expect("stat").attr.size as usize
}

/// Writes back one or more pages.
async fn page(m: &Mounted, file: &OpenFile, at: usize, len: usize) {
    assert_eq!(m.client.write_page(file, at as u64, bulk(&vec![2; len])).await, Ok(len), "all of it counts as written");
}

/// Returns the range of bytes from pages that are in the file.
async fn written(m: &Mounted, file: &OpenFile) -> (usize, usize) {
    let bytes = m.client.read_as(file, 0, 1 << 20, false).await.expect("read").into_bytes();
    let (first, last) = (bytes.iter().position(|b| *b == 2), bytes.iter().rposition(|b| *b == 2));
    first.zip(last).map_or((0, 0), |(first, last)| (first, last + 1))
}

fn asked(m: &Mounted, of: &str) -> usize {
    m.world.asked().iter().filter(|line| line.contains(of)).count()
}

fn object(m: &Mounted, index: usize) -> Fid {
    m.world.state.lock().objects.keys().nth(index).expect("an object").1
}

fn cut_elsewhere(m: &Mounted, index: usize, len: usize) {
    m.world.state.lock().objects.values_mut().nth(index).expect("an object").data.truncate(len);
}

#[test]
fn page_write_is_cut_at_end_of_file() {
    with(1, STRIPE as u32, &[0], async |m| {
        let f = file(&m, 5000).await;
        page(&m, &f, PAGE, PAGE).await;
        assert_eq!((size(&m, &f).await, written(&m, &f).await), (5000, (PAGE, 5000)));
        m.world.asked();
        page(&m, &f, 2 * PAGE, PAGE).await;
        assert_eq!(asked(&m, "write"), 0, "the page is beyond the end");
        page(&m, &f, 0, 4 * PAGE).await;
        assert_eq!((size(&m, &f).await, written(&m, &f).await), (5000, (0, 5000)));
    });
}

#[test]
fn page_write_is_cut_at_size_of_all_objects() {
    with(2, STRIPE as u32, &[0, 1], async |m| {
        let f = file(&m, STRIPE + 10).await;
        page(&m, &f, STRIPE - PAGE, 3 * PAGE).await;
        assert_eq!((size(&m, &f).await, written(&m, &f).await), (STRIPE + 10, (STRIPE - PAGE, STRIPE + 10)));
        // The first object ends early, but the file does not.
        cut_elsewhere(&m, 0, 100);
        page(&m, &f, 8 * PAGE, PAGE).await;
        assert_eq!((m.size_of_object(0), size(&m, &f).await), (Some(9 * PAGE), STRIPE + 10));
        // Now the file ends early.
        cut_elsewhere(&m, 1, 0);
        page(&m, &f, 10 * PAGE, PAGE).await;
        assert_eq!((m.size_of_object(0), size(&m, &f).await), (Some(9 * PAGE), 9 * PAGE));
    });
}

#[test]
fn page_write_counts_own_dirty_data_as_file_content() {
    with(1, STRIPE as u32, &[0], async |m| {
        m.world.state.lock().habits.grants_space = true;
        let f = file(&m, 10).await;
        assert_eq!(m.client.write(&f, 10, bulk(&[1; 90])).await, Ok(90));
        assert_eq!(m.size_of_object(0), Some(10), "the write was cached");
        page(&m, &f, 0, PAGE).await;
        m.client.fsync(&f, false).await.unwrap();
        assert_eq!((size(&m, &f).await, written(&m, &f).await), (100, (0, 100)));
    });
}

#[test]
fn page_writes_query_size_once_under_lock() {
    with(1, STRIPE as u32, &[0], async |m| {
        let f = file(&m, 4 * PAGE).await;
        m.client.read_as(&f, 0, 4 * PAGE, true).await.expect("a page fault");
        m.world.asked();
        page(&m, &f, 0, PAGE).await;
        assert_eq!(asked(&m, "getattr"), 1);
        for at in 0..4 {
            page(&m, &f, at * PAGE, PAGE).await;
        }
        assert_eq!(asked(&m, "getattr"), 0, "it is known under the lock");
        // This client itself can change the size.
        let set = SetAttr { size: Some(100), ..SetAttr::default() };
        m.client.setattr(&ROOT, f.fid(), set, Some(&f)).await.expect("truncate");
        page(&m, &f, 0, PAGE).await;
        assert_eq!((size(&m, &f).await, m.size_of_object(0)), (100, Some(100)));
        // So can another client, after it has revoked the lock.
        assert_eq!(m.client.write(&f, 100, bulk(&[1; 8000])).await, Ok(8000));
        m.client.fsync(&f, false).await.unwrap();
        m.client.read_as(&f, 0, PAGE, true).await.expect("a page fault");
        page(&m, &f, 0, PAGE).await;
        assert!(m.world.revoke(Resource::extent(object(&m, 0))) > 0);
        m.net.rt().sleep(Duration::from_millis(50)).await;
        cut_elsewhere(&m, 0, 50);
        page(&m, &f, 0, PAGE).await;
        assert_eq!((size(&m, &f).await, m.size_of_object(0)), (50, Some(50)));
    });
}

#[test]
fn page_write_behind_end_requests_no_objects() {
    with(2, STRIPE as u32, &[0], async |m| {
        let spec = |n| Spec { count: Some(Count::Stripes(n)), stripe_size: Some(STRIPE as u32), ..Spec::default() };
        let end = 2 * STRIPE as u64;
        let steps = [TemplateComponent::striped(0, end, spec(1)), TemplateComponent::striped(end, u64::MAX, spec(2))];
        m.world.state.lock().template = Some(Template::new(steps.into()));
        let f = file(&m, 2 * STRIPE - 100).await;
        m.world.asked();
        page(&m, &f, 2 * STRIPE, PAGE).await;
        page(&m, &f, 2 * STRIPE - PAGE, 2 * PAGE).await;
        assert_eq!(m.world.asked().iter().filter(|line| line.starts_with("mds")).count(), 0);
        assert_eq!((size(&m, &f).await, written(&m, &f).await.1), (2 * STRIPE - 100, 2 * STRIPE - 100));
        // If the file extends into that component, it gets objects.
        let set = SetAttr { size: Some(2 * end), ..SetAttr::default() };
        m.client.setattr(&ROOT, f.fid(), set, Some(&f)).await.expect("truncate");
        page(&m, &f, 2 * STRIPE, PAGE).await;
        assert_eq!((size(&m, &f).await, written(&m, &f).await.1), (4 * STRIPE, 2 * STRIPE + PAGE));
    });
}

/// Writes a page back, and evicts the client while the OST has the habit of delaying a request of
/// that write. The write must fail.
async fn evict_during_page_write(m: &Mounted, file: &Arc<OpenFile>, habit: fn(&mut Habits) -> &mut bool) {
    *habit(&mut m.world.state.lock().habits) = true;
    let (client, mapped, rt) = (m.client.clone(), file.clone(), m.net.rt().clone());
    let writing = rt.spawn("page", async move { client.write_page(&mapped, 0, bulk(&[2; PAGE])).await });
    rt.sleep(Duration::from_millis(50)).await;
    assert!(!writing.is_finished());
    let export = m.world.state.lock().locks.osts[&0].clone();
    export.evict("test");
    rt.sleep(Duration::from_secs(1)).await;
    *habit(&mut m.world.state.lock().habits) = false;
    assert_eq!(writing.await.unwrap(), Err(Errno::EIO));
}

/// Other clients may have written the page since.
#[test]
fn page_write_is_not_resent_after_eviction() {
    with_tcp(1, STRIPE as u32, &[0], async |m| {
        let f = file(&m, 5000).await;
        evict_during_page_write(&m, &f, |habits| &mut habits.hold).await;
        page(&m, &f, 0, PAGE).await;
    });
}

#[test]
fn page_write_is_accepted_by_an_ost_in_recovery() {
    with(1, STRIPE as u32, &[0], async |m| {
        let f = file(&m, 5000).await;
        m.world.asked();
        m.world.state.lock().habits.only_held = true;
        page(&m, &f, 0, PAGE).await;
        assert_eq!(asked(&m, "write"), 1);
        m.world.state.lock().habits.only_held = false;
        assert_eq!(written(&m, &f).await, (0, PAGE));
    });
}

/// The client requests the size first. The reply comes after the eviction.
#[test]
fn page_write_that_requests_size_during_eviction_fails() {
    with_tcp(1, STRIPE as u32, &[0], async |m| {
        let f = file(&m, 5000).await;
        m.world.asked();
        evict_during_page_write(&m, &f, |habits| &mut habits.blind).await;
        assert_eq!(asked(&m, "write"), 0, "no byte may overwrite later data");
        page(&m, &f, 0, PAGE).await;
    });
}
