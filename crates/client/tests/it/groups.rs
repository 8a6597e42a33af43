//! Group locks, over fake OSTs that are restarted or evict the client.

use std::{sync::Arc, time::Duration};

use crate::fake::{Mounted, ROOT, bulk, name, root, with_tcp};
use sheen_client::OpenFile;
use sheen_wire::{Errno, ldlm::Resource, mds::flags};

const LEN: usize = 4096;

/// Creates a file of one block, and joins a group.
async fn member(m: &Mounted) -> Arc<OpenFile> {
    {
        let mut state = m.world.state.lock();
        (state.locks.on, state.habits.grants_space) = (true, true);
    }
    let flags = flags::RDWR | flags::CREAT;
    let file = m.client.create(&ROOT, root(), &name("f"), flags, 0o644, 0).await.expect("create").1;
    assert_eq!(write(m, &file, 0).await, Ok(LEN));
    m.client.group_lock(&file, 7, false).await.expect("nobody else uses it");
    file
}

async fn write(m: &Mounted, file: &OpenFile, at: usize) -> Result<usize, Errno> {
    m.client.write(file, at as u64, bulk(&[1; LEN])).await
}

/// Returns the number of locks on the only object.
fn locks(m: &Mounted) -> usize {
    let state = m.world.state.lock();
    let object = state.objects.keys().next().expect("an object").1;
    state.locks.count(Resource::extent(object))
}

/// Returns the requests to the OST since the last call.
fn asked(m: &Mounted) -> Vec<String> {
    m.world.asked().into_iter().filter(|line| line.starts_with("ost0")).collect()
}

/// Waits until the client has received and answered all.
async fn settle(m: &Mounted) {
    m.net.rt().sleep(Duration::from_secs(2)).await;
}

#[test]
fn group_lock_is_requested_again_from_a_restarted_ost_before_data_is_sent() {
    with_tcp(1, 65536, &[0], async |m| {
        let file = member(&m).await;
        for turn in 1..3 {
            m.stop_ost(0);
            assert_eq!(write(&m, &file, turn * LEN).await, Ok(LEN), "dirty data of the group");
            m.world.asked();
            m.start_ost(0);
            settle(&m).await;
            let write = "ost0 write parts=1 len=4096 sync=false";
            assert_eq!(asked(&m), ["ost0 recover", "ost0 ldlm_enqueue locks=1", write, "ost0 recovered"]);
            assert_eq!(locks(&m), 1);
        }
        assert_eq!(m.client.group_unlock(&file, 7), Ok(()));
        settle(&m).await;
        assert_eq!(asked(&m), ["ost0 ldlm_cancel locks=1"]);
        assert_eq!(locks(&m), 0);
    });
}

/// The OST is down when the program leaves the group.
#[test]
fn group_lock_that_was_left_meanwhile_is_cancelled_at_the_restarted_ost() {
    with_tcp(1, 65536, &[0], async |m| {
        let file = member(&m).await;
        m.stop_ost(0);
        assert_eq!(write(&m, &file, LEN).await, Ok(LEN), "dirty data of the group");
        assert_eq!(m.client.group_unlock(&file, 7), Ok(()));
        settle(&m).await;
        m.start_ost(0);
        settle(&m).await;
        assert_eq!(locks(&m), 0);
        assert_eq!(m.size_of_object(0), Some(2 * LEN));
    });
}

#[test]
fn members_of_a_lost_group_get_eio_until_they_leave() {
    for evicted in [true, false] {
        with_tcp(1, 65536, &[0], async move |m| {
            let file = member(&m).await;
            if evicted {
                let export = m.world.state.lock().locks.osts[&0].clone();
                export.evict("test");
            } else {
                m.stop_ost(0);
                m.world.state.lock().habits.forgetful = true;
                m.start_ost(0);
            }
            settle(&m).await;
            assert_eq!(write(&m, &file, 0).await, Err(Errno::EIO));
            assert_eq!(m.client.read(&file, 0, LEN).await.err(), Some(Errno::EIO));
            let other = m.client.open(&ROOT, file.fid(), flags::RDWR).await.unwrap();
            assert_eq!(write(&m, &other, 0).await, Ok(LEN), "it is in no group");
            assert_eq!(m.client.group_unlock(&file, 7), Ok(()));
            assert_eq!(write(&m, &file, 0).await, Ok(LEN));
            assert_eq!(m.client.group_lock(&file, 7, false).await, Ok(()));
            assert_eq!(write(&m, &file, 0).await, Ok(LEN));
        });
    }
}
