//! The list of waiting requests.

use super::*;

#[test]
fn waiting_request_is_listed_with_its_holders_until_it_is_granted() {
    let mut s = Scene::new();
    let (first, second) = (id(s.extent(1, Mode::Pr, 0, EOF)), id(s.extent(2, Mode::Pr, 0, EOF)));
    assert!(s.ns.waits(10, 10).is_empty());
    let granted = s.now;
    s.pass(1000);
    let waiting = waits(s.extent(3, Mode::Pw, 0, 4095));
    s.pass(500);
    let listed = s.ns.waits(10, 10);
    assert_eq!((listed.len(), listed[0].info.lock.id, listed[0].info.lock.client), (1, waiting, 3));
    assert_eq!(s.now.since(listed[0].since), Duration::from_millis(500));
    let mut holders: Vec<_> = listed[0].blocking.iter().map(|b| (b.lock.id, b.granted, b.since)).collect();
    holders.sort_unstable();
    let mut want = vec![(first, true, granted), (second, true, granted)];
    want.sort_unstable();
    assert_eq!(holders, want);
    assert!(listed[0].blocking.iter().all(|b| b.asked == Some(listed[0].since)));
    assert_eq!(s.ns.waits(10, 1)[0].blocking.len(), 1);
    assert!(s.ns.waits(0, 10).is_empty());
    s.cancel(1, first);
    assert_eq!(s.ns.waits(10, 10)[0].blocking.len(), 1);
    s.cancel(2, second);
    assert!(s.ns.waits(10, 10).is_empty());
}

#[test]
fn request_behind_another_one_is_listed_with_that_one() {
    let mut s = Scene::new();
    s.ask(1, object(), Mode::Group, Policy::group(7));
    let writer = waits(s.extent(2, Mode::Pw, 0, 9));
    let reader = waits(s.extent(3, Mode::Pr, 0, 9));
    let listed = s.ns.waits(10, 10);
    let ids: Vec<LockId> = listed.iter().map(|wait| wait.info.lock.id).collect();
    assert_eq!(ids, [writer, reader], "the oldest is first");
    let ids: Vec<LockId> = s.ns.waits(1, 10).iter().map(|wait| wait.info.lock.id).collect();
    assert_eq!(ids, [writer], "the oldest are listed");
    assert!(listed.iter().all(|wait| wait.blocking[0].lock.client == 1));
    s.ns.evict(s.now, 2, &mut s.actions);
    s.ns.evict(s.now, 3, &mut s.actions);
    assert!(s.ns.waits(10, 10).is_empty());

    // Nothing that is granted conflicts with the last request.
    let mut s = Scene::new();
    s.bits(1, Mode::Pr, bits::LOOKUP);
    let change = waits(s.bits(2, Mode::Ex, bits::LOOKUP | bits::UPDATE));
    waits(s.bits(3, Mode::Pr, bits::UPDATE));
    let last = &s.ns.waits(10, 10)[1];
    assert_eq!((last.blocking[0].lock.id, last.blocking[0].granted), (change, false));
}
