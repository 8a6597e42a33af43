//! The list of waits: who waits, and which clients hold the locks.

use sheen_params::{Wait, WaitKind};
use sheen_rt::operation;
use sheen_wire::{JobId, ldlm::*};

use crate::common::*;

fn waits(s: &Scene) -> Vec<Wait> {
    s.service.lockd.waits(TARGET)
}

#[test]
fn waiting_request_is_listed_with_job_and_holder_until_it_is_granted() {
    run(async |s| {
        for lo in [true, false] {
            let (a, b) = (s.client("a", lo, Answer::Never).await, s.client("b", lo, Answer::Never).await);
            let id = a.lock(Mode::Pw, 1).await;
            assert!(waits(&s).is_empty());
            let call = s.rt.spawn("waits", {
                let b = b.clone();
                operation::within(JobId::new(b"dd.1000"), async move { b.lock(Mode::Pr, 1).await })
            });
            s.until(|| a.asked() == [id]).await;
            let listed = waits(&s);
            let wait = &listed[0];
            assert_eq!((listed.len(), wait.kind, wait.target.as_str()), (1, WaitKind::Lock, TARGET));
            assert_eq!((wait.client.as_str(), wait.job.as_str(), wait.mode.as_str()), ("b", "dd.1000", "PR"));
            assert_eq!((wait.object.clone(), wait.part.as_str()), (object(1).fid.to_string(), "extent 0-EOF"));
            let holder = &wait.held_by[0];
            assert_eq!((wait.held_by.len(), holder.client.as_str(), holder.mode.as_str()), (1, "a", "PW"));
            assert!(holder.granted && holder.callback_secs.is_some(), "{holder:?}");
            a.cancel(id).await;
            let id = call.await.unwrap();
            assert!(waits(&s).is_empty());
            b.cancel(id).await;
        }
    });
}

#[test]
fn wait_of_the_server_is_listed_with_the_client_for_which_it_acts() {
    run(async |s| {
        let (a, b) = (s.client("a", true, Answer::Never).await, s.client("b", true, Answer::Never).await);
        let id = a.lock(Mode::Pr, 1).await;
        let local = s.local(1, Some(&b));
        let listed = waits(&s);
        assert_eq!((listed.len(), listed[0].kind, listed[0].client.as_str()), (1, WaitKind::Cancel, "b"));
        assert_eq!(listed[0].held_by[0].client, "a");
        drop(local);
        assert!(waits(&s).is_empty());
        let local = s.local(1, None);
        assert_eq!(waits(&s)[0].client, "");
        a.cancel(id).await;
        assert!(waits(&s).is_empty() && local.is_granted());
    });
}

#[test]
fn wait_ends_when_the_waiting_client_disconnects() {
    run(async |s| {
        let (a, b) = (s.client("a", false, Answer::Never).await, s.client("b", false, Answer::Never).await);
        let id = a.lock(Mode::Pw, 1).await;
        let flock = Flock { start: 0, end: EOF, owner: 1, pid: 17, kind: FlockKind::Flock };
        let file = Resource::flock(object(1).fid);
        let of_file = |client: &Client| client.ask(file, Mode::Pw, Policy::Flock(flock));
        granted(a.send(of_file(&a)).await);
        assert!(matches!(b.send(of_file(&b)).await, Enqueued::Waiting { .. }));
        let listed = waits(&s);
        assert_eq!((listed.len(), listed[0].part.as_str()), (1, "flock 0-EOF pid 17"));
        assert_eq!(listed[0].held_by[0].callback_secs, None, "flock locks get no blocking callbacks");
        b.import.close().await;
        s.until(|| waits(&s).is_empty()).await;
        a.cancel(id).await;
    });
}
