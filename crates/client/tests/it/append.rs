//! Appends, over fake servers that grant locks and send blocking callbacks.

use std::{sync::Arc, time::Duration};

use crate::fake::{Mounted, ROOT, bulk, name, root, with, with_tcp};
use sheen_client::OpenFile;
use sheen_layout::Layout;
use sheen_rt::JoinHandle;
use sheen_wire::{
    Errno, Fid, Result,
    ldlm::Resource,
    mds::{SetAttr, flags},
};

async fn create(m: &Mounted) -> Arc<OpenFile> {
    let flags = flags::RDWR | flags::CREAT | flags::APPEND;
    m.client.create(&ROOT, root(), &name("f"), flags, 0o644, 0).await.expect("create").1
}

async fn append(m: &Mounted, file: &OpenFile, len: usize) {
    assert_eq!(m.client.write(file, 0, bulk(&vec![7; len])).await, Ok(len));
}

/// Returns the requests to one OST.
fn of(log: &[String], ost: &str) -> Vec<String> {
    log.iter().filter_map(|line| line.strip_prefix(ost)).map(|line| line.trim().to_owned()).collect()
}

fn object(m: &Mounted, index: usize) -> Fid {
    m.world.state.lock().objects.keys().nth(index).expect("an object").1
}

#[test]
fn repeated_appends_reuse_their_locks() {
    with(2, 65536, &[1, 0, 1, 0], async |m| {
        m.world.state.lock().locks.on = true;
        let file = create(&m).await;
        m.world.asked();
        append(&m, &file, 262_144).await;
        let log = m.world.asked();
        let enqueues: Vec<_> = log.iter().filter(|line| line.contains("ldlm")).collect();
        assert_eq!(enqueues, ["ost0 ldlm_enqueue locks=2", "ost1 ldlm_enqueue locks=2"], "one OST after the other");
        let size = ["getattr objects=2", "write parts=2 len=131072 sync=false"];
        assert_eq!(of(&log, "ost0")[1..], size, "under the lock");
        append(&m, &file, 10).await;
        assert_eq!(m.world.asked(), ["ost1 write parts=1 len=10 sync=false"], "locks and end are cached");

        // One lock on an OST is revoked: both of this OST are requested together again, and those
        // of the other OST stay.
        assert_eq!(m.world.revoke(Resource::extent(object(&m, 0))), 1);
        m.net.rt().sleep(Duration::from_millis(50)).await;
        assert_eq!(m.world.asked(), ["ost0 ldlm_cancel locks=1"]);
        append(&m, &file, 10).await;
        let log = m.world.asked();
        assert_eq!(of(&log, "ost0")[0], "ldlm_enqueue locks=2");
        assert!(of(&log, "ost1").iter().all(|line| !line.contains("ldlm")), "{log:?}");
        assert_eq!(m.client.getattr(file.fid(), None).await.unwrap().attr.size, 262_164);
    });
}

/// The end is known as long as this client does not change the file otherwise.
#[test]
fn appends_after_other_changes_request_the_size_again() {
    with(1, 65536, &[0], async |m| {
        m.world.state.lock().locks.on = true;
        let file = create(&m).await;
        append(&m, &file, 10).await;
        let plain = m.client.open(&ROOT, file.fid(), flags::RDWR).await.unwrap();
        let (sized, known) = (["ost0 getattr objects=1", "ost0 write parts=1 len=10 sync=false"], 1);
        let steps: [(&str, u64); 4] = [("nothing", 20), ("a write", 40), ("a truncate", 15), ("nothing", 25)];
        for (change, want) in steps {
            match change {
                "a write" => drop(m.client.write(&plain, 25, bulk(&[8; 5])).await.unwrap()),
                "a truncate" => {
                    let set = SetAttr { size: Some(5), ..SetAttr::default() };
                    m.client.setattr(&ROOT, file.fid(), set, Some(&plain)).await.unwrap();
                }
                _ => {}
            }
            m.world.asked();
            append(&m, &file, 10).await;
            let from = if change == "nothing" { known } else { 0 };
            assert_eq!(m.world.asked(), sized[from..], "{change}");
            assert_eq!(m.client.getattr(file.fid(), None).await.unwrap().attr.size, want, "{change}");
        }
    });
}

#[test]
fn revoked_lock_is_cancelled_when_append_is_done() {
    with(1, 65536, &[0], async |m| {
        m.world.state.lock().locks.on = true;
        let file = create(&m).await;
        append(&m, &file, 10).await;
        m.world.state.lock().delay = Duration::from_millis(20);
        m.world.asked();
        let (client, tail, rt) = (m.client.clone(), file.clone(), m.net.rt().clone());
        let appending = rt.spawn("append", async move { client.write(&tail, 0, bulk(&[7; 10])).await });
        rt.sleep(Duration::from_millis(1)).await;
        assert_eq!(m.world.revoke(Resource::extent(object(&m, 0))), 1);
        assert_eq!(appending.await.unwrap(), Ok(10));
        rt.sleep(Duration::from_millis(200)).await;
        let order = ["ost0 write parts=1 len=10 sync=false", "ost0 ldlm_cancel locks=1"];
        assert_eq!(m.world.asked(), order);
    });
}

/// The end of the file was found under a lock that was lost. If the append were sent again to the
/// OST, it would overwrite what other clients have appended since.
#[test]
fn append_is_not_resent_after_eviction() {
    with_tcp(1, 65536, &[0], async |m| {
        m.world.state.lock().locks.on = true;
        let file = create(&m).await;
        append(&m, &file, 10).await;
        m.world.asked();
        m.world.state.lock().habits.hold = true;
        let (client, tail, rt) = (m.client.clone(), file.clone(), m.net.rt().clone());
        let appending = rt.spawn("append", async move { client.write(&tail, 0, bulk(&[8; 10])).await });
        rt.sleep(Duration::from_millis(50)).await;
        assert!(!appending.is_finished());
        let export = m.world.state.lock().locks.osts[&0].clone();
        export.evict("test");
        let other = m.client.open(&ROOT, file.fid(), flags::RDWR).await.unwrap();
        let client = m.client.clone();
        let writing = rt.spawn("write", async move { client.write(&other, 10, bulk(&[9; 5])).await });
        rt.sleep(Duration::from_secs(1)).await;
        m.world.state.lock().habits.hold = false;
        assert_eq!(appending.await.unwrap(), Err(Errno::EIO));
        assert_eq!(writing.await.unwrap(), Ok(5), "a write at an offset is sent again");
        // The OST had the append already, and executes it before the write.
        let writes = m.world.asked().into_iter().filter(|line| line.contains("write")).collect::<Vec<_>>();
        assert_eq!(writes, ["ost0 write parts=1 len=10 sync=false", "ost0 write parts=1 len=5 sync=false"]);
        let there = m.world.state.lock().objects.values().next().unwrap().data.clone();
        assert_eq!(there, [[7; 5], [7; 5], [9; 5], [8; 5]].concat());
    });
}

/// Found by seed 5818 of the simulated races beside swaps: an OST that had done its part of an
/// append evicted the client, because another OST was disconnected.
#[test]
fn append_releases_locks_of_osts_that_have_done_their_part() {
    with(2, 65536, &[0, 1], async |m| {
        m.world.state.lock().locks.on = true;
        let file = create(&m).await;
        append(&m, &file, 131_072).await;
        let locks = [object(&m, 0), object(&m, 1)].map(Resource::extent);
        let held = |n: usize| m.world.state.lock().locks.count(locks[n]);
        // One OST has done its part, or has none.
        for (len, disconnected) in [(131_072, 1), (10, 0)] {
            m.world.state.lock().habits.disconnected = Some(disconnected);
            let (client, tail, rt) = (m.client.clone(), file.clone(), m.net.rt().clone());
            let appending = rt.spawn("append", async move { client.write(&tail, 0, bulk(&vec![7; len])).await });
            rt.sleep(Duration::from_millis(50)).await;
            assert_eq!((held(0), held(1)), (1, 1));
            locks.iter().for_each(|lock| assert_eq!(m.world.revoke(*lock), 1));
            rt.sleep(Duration::from_millis(50)).await;
            let left = if disconnected == 1 { (0, 1) } else { (1, 0) };
            assert_eq!((held(0), held(1)), left, "no other client finds the end yet");
            m.world.state.lock().habits.disconnected = None;
            assert_eq!(appending.await.unwrap(), Ok(len));
            rt.sleep(Duration::from_millis(50)).await;
            assert_eq!((held(0), held(1)), (0, 0));
        }
        assert_eq!(m.client.getattr(file.fid(), None).await.unwrap().attr.size, 262_154);
    });
}

#[test]
fn append_blocked_on_size_query_releases_its_locks() {
    with(2, 65536, &[0, 1], async |m| {
        m.world.state.lock().locks.on = true;
        let file = create(&m).await;
        append(&m, &file, 131_072).await;
        // After another write the end is not known.
        let plain = m.client.open(&ROOT, file.fid(), flags::RDWR).await.unwrap();
        assert_eq!(m.client.write(&plain, 0, bulk(&[7; 10])).await, Ok(10));
        let locks = [object(&m, 0), object(&m, 1)].map(Resource::extent);
        let held = || locks.map(|lock| m.world.state.lock().locks.count(lock));
        m.world.state.lock().habits.blind = true;
        let (client, tail, rt) = (m.client.clone(), file.clone(), m.net.rt().clone());
        let appending = rt.spawn("append", async move { client.write(&tail, 0, bulk(&[7; 10])).await });
        rt.sleep(Duration::from_millis(50)).await;
        locks.iter().for_each(|lock| assert_eq!(m.world.revoke(*lock), 1));
        rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(held(), [1, 1], "in use");
        rt.sleep(Duration::from_secs(6)).await;
        assert_eq!(held(), [0, 0]);
        m.world.state.lock().habits.blind = false;
        assert_eq!(appending.await.unwrap(), Ok(10));
        assert_eq!(m.client.getattr(file.fid(), None).await.unwrap().attr.size, 131_082);
    });
}

/// Appends 20 bytes to a file on OSTs 0 and 1, optionally in a group. 6 bytes are written. The
/// object of the others is sealed for a moment, and the client waits for the MDT's reply about it.
async fn append_in_part(m: &Mounted, group: Option<u64>) -> JoinHandle<Result<usize>> {
    m.world.state.lock().locks.on = true;
    let file = create(m).await;
    append(m, &file, 65_530).await;
    if let Some(gid) = group {
        m.client.group_lock(&file, gid, false).await.expect("nobody else uses it");
    }
    m.world.state.lock().habits.hold = true;
    let (client, tail, rt) = (m.client.clone(), file.clone(), m.net.rt().clone());
    let appending = rt.spawn("append", async move { client.write(&tail, 0, bulk(&[8; 20])).await });
    rt.sleep(Duration::from_millis(50)).await;
    {
        let mut state = m.world.state.lock();
        let layout = Layout::decode(state.nodes[&file.fid()].layout.as_ref().unwrap()).unwrap();
        state.habits.sealed.insert(layout.stripes()[1].object);
        state.habits.late = Some("layout_moved");
        (state.habits.unseals, state.habits.hold) = (true, false);
    }
    rt.sleep(Duration::from_millis(50)).await;
    assert!(!appending.is_finished());
    m.world.asked();
    appending
}

/// Delivers the MDT's reply. Returns the result of the append, and the requests that followed.
async fn end_append(m: &Mounted, appending: JoinHandle<Result<usize>>) -> (Result<usize>, Vec<String>) {
    m.world.asked();
    m.world.state.lock().habits.late = None;
    let appended = appending.await.unwrap();
    (appended, m.world.asked())
}

/// Asserts that the whole append is in the objects.
fn check_appended(m: &Mounted) {
    let there: Vec<Vec<u8>> = m.world.state.lock().objects.values().map(|object| object.data.clone()).collect();
    assert_eq!(there, [[&[7; 65_530][..], &[8; 6]].concat(), vec![8; 14]]);
}

/// Restarts OST 1, and waits for the report of the client. From then on, other clients may append.
async fn restart_ost(m: &Mounted) {
    m.stop_ost(1);
    m.start_ost(1);
    let rt = m.net.rt();
    let reported = async {
        while !m.world.state.lock().log.iter().any(|line| line == "ost1 recovered") {
            rt.sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(rt.timeout(Duration::from_secs(4), reported).await.is_ok(), "the report does not wait for the MDT");
}

/// Found by seed 10023 of the simulated races beside migrations: a group on the same mount migrates
/// the file, seals some of its objects, and fails. An append that was executed in part was then
/// repeated as a whole, behind that part.
#[test]
fn append_that_met_sealed_object_completes_at_its_offset() {
    with(2, 65536, &[0, 1], async |m| {
        let appending = append_in_part(&m, None).await;
        assert_eq!(end_append(&m, appending).await.0, Ok(20));
        check_appended(&m);
    });
}

/// Other clients may have appended since the eviction.
#[test]
fn append_that_met_sealed_object_fails_after_an_eviction() {
    with_tcp(2, 65536, &[0, 1], async |m| {
        let appending = append_in_part(&m, None).await;
        let export = m.world.state.lock().locks.osts[&1].clone();
        export.evict("test");
        m.net.rt().sleep(Duration::from_secs(1)).await;
        let (appended, log) = end_append(&m, appending).await;
        assert_eq!(appended, Err(Errno::EIO));
        assert!(of(&log, "ost1").iter().all(|line| !line.starts_with("write")), "{log:?}");
    });
}

#[test]
fn append_that_met_sealed_object_fails_after_a_restart_of_its_ost() {
    with_tcp(2, 65536, &[0, 1], async |m| {
        let appending = append_in_part(&m, None).await;
        restart_ost(&m).await;
        let (appended, log) = end_append(&m, appending).await;
        assert_eq!(appended, Err(Errno::EIO));
        assert!(of(&log, "ost1").iter().all(|line| !line.starts_with("write")), "{log:?}");
    });
}

/// The group's locks exclude other clients also after the restart.
#[test]
fn append_in_a_group_that_met_sealed_object_completes_after_a_restart_of_its_ost() {
    with_tcp(2, 65536, &[0, 1], async |m| {
        let appending = append_in_part(&m, Some(7)).await;
        restart_ost(&m).await;
        assert_eq!(end_append(&m, appending).await.0, Ok(20));
        check_appended(&m);
    });
}

/// Occupies the only request slot with a read that the OST does not answer.
async fn occupy_slots(m: &Mounted, file: &Arc<OpenFile>) -> JoinHandle<()> {
    m.params.set("osc.*.max_rpcs_in_flight", "1").unwrap();
    m.world.state.lock().habits.blind = true;
    let (client, file) = (m.client.clone(), file.clone());
    let reading = m.net.rt().spawn("read", async move { drop(client.read(&file, 0, 10).await.unwrap()) });
    m.net.rt().sleep(Duration::from_millis(50)).await;
    reading
}

/// Appends to a file whose OST has stopped, and all its slots are occupied: the append has found
/// the end, and its write is not sent. Returns the file, the read that occupies the slots, and the
/// append.
async fn append_not_sent(m: &Mounted) -> (Arc<OpenFile>, JoinHandle<()>, JoinHandle<Result<usize>>) {
    m.world.state.lock().locks.on = true;
    let file = create(m).await;
    append(m, &file, 10).await;
    let reading = occupy_slots(m, &file).await;
    m.stop_ost(0);
    let (client, tail, rt) = (m.client.clone(), file.clone(), m.net.rt().clone());
    let appending = rt.spawn("append", async move { client.write(&tail, 0, bulk(&[8; 10])).await });
    rt.sleep(Duration::from_millis(50)).await;
    m.world.asked();
    (file, reading, appending)
}

/// Returns the requests that have to do with a recovery.
fn of_recovery(log: Vec<String>) -> Vec<String> {
    log.into_iter().filter(|line| line.contains(" write ") || line.contains("recover")).collect()
}

/// The end of the file was found under a lock that a restart of the OST loses, and the write is not
/// sent yet. The OST serves other clients after the report of this client. Requests that it answers
/// only then have all slots.
#[test]
fn report_to_a_restarted_ost_waits_for_appends_that_have_found_the_end() {
    with_tcp(1, 65536, &[0], async |m| {
        let (_, reading, appending) = append_not_sent(&m).await;
        m.world.state.lock().habits.hold = true;
        m.start_ost(0);
        m.net.rt().sleep(Duration::from_secs(5)).await;
        assert_eq!(of_recovery(m.world.asked()), ["ost0 recover"]);
        m.world.state.lock().habits.hold = false;
        assert_eq!(appending.await.unwrap(), Ok(10));
        m.net.rt().sleep(Duration::from_secs(1)).await;
        let order = ["ost0 write parts=1 len=10 sync=false", "ost0 recovered"];
        assert_eq!(of_recovery(m.world.asked()), order);
        m.world.state.lock().habits.blind = false;
        reading.await.unwrap();
        let there = m.world.state.lock().objects.values().next().unwrap().data.clone();
        assert_eq!(there, [[7; 10], [8; 10]].concat());
    });
}

/// Other clients may have appended meanwhile.
#[test]
fn unsent_append_fails_if_the_restarted_ost_did_not_wait_for_the_client() {
    with_tcp(1, 65536, &[0], async |m| {
        let (file, reading, appending) = append_not_sent(&m).await;
        m.world.state.lock().habits.forgetful = true;
        m.start_ost(0);
        assert_eq!(appending.await.unwrap(), Err(Errno::EIO));
        m.world.state.lock().habits.blind = false;
        reading.await.unwrap();
        m.net.rt().sleep(Duration::from_secs(1)).await;
        assert_eq!(of_recovery(m.world.asked()), ["ost0 recover", "ost0 recovered"]);
        append(&m, &file, 10).await;
        assert_eq!(m.client.getattr(file.fid(), None).await.unwrap().attr.size, 20);
    });
}
