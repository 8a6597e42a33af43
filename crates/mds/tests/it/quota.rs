//! Quotas of space: owners of objects, division of limits, and answers to `lfs quota`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use sheen_wire::mds::{Reply, Request, SetAttr, flags};
use sheen_wire::mgs::PoolChange;
use sheen_wire::quota::{self, Answer, Change, Id, Kind, NewLimits, Owner, Query, Report};
use sheen_wire::{Cred, Errno, Fid, PoolName, Result, fid};

use crate::common::{FakeOst, Host, config, objects, slow_commits, with_host};
use crate::lfsck::ended;

const MIB: u64 = 1 << 20;
const USER: Id = Id { kind: Kind::User, id: 1000 };
const OWNER: Owner = Owner { uid: 1000, gid: 100, project: 0 };

impl Host {
    async fn set_quota(&self, change: Change) -> Result<()> {
        let (name, value) = (Bytes::from_static(quota::XATTR.as_bytes()), change.encode()?.into());
        self.ask(Request::SetXattr { cred: Cred::ROOT, fid: fid::ROOT, name, value, flags: 0 }).await.map(drop)
    }

    async fn limit(&self, soft: u64, hard: u64) {
        let space = NewLimits { soft: Some(soft), hard: Some(hard) };
        self.set_quota(Change::Limits { id: USER, pool: None, space, files: NewLimits::default() }).await.unwrap();
    }

    async fn quota(&self, uid: u32, query: Query) -> Result<Answer> {
        let (name, cred) = (query.name()?.into(), Cred { uid, gid: uid, groups: Some(Vec::new()) });
        match self.ask(Request::GetXattr { cred, fid: fid::ROOT, name }).await?.body.reply {
            Reply::Bytes(bytes) => Answer::decode(&bytes),
            other => panic!("{other:?}"),
        }
    }

    /// Creates a file of the user with an object; returns both.
    async fn make_owned(&self, name: &str) -> (Fid, Fid) {
        let (entry, handle) = self.create(name).await.unwrap();
        let fid = entry.attr.fid;
        self.ask(Request::close(fid, handle)).await.unwrap();
        self.chown(fid, OWNER).await;
        (fid, objects(&entry)[0].1)
    }

    async fn chown(&self, fid: Fid, owner: Owner) {
        let set = SetAttr { uid: Some(owner.uid), gid: Some(owner.gid), ..SetAttr::default() };
        self.ask(Request::SetAttr { cred: Cred::ROOT, fid, set, handle: None }).await.unwrap();
    }

    /// Checks the MDT and the objects. `order`: the parameter that requests it, such as `run`.
    async fn checked(&self, order: &str) -> String {
        assert_eq!(self.params.set(&format!("mdt.*.lfsck_namespace_{order}"), "1").unwrap()[0].result, Ok(()));
        ended(self).await
    }

    /// Long enough for commits and messages.
    async fn a_while(&self) {
        self.rt.sleep(Duration::from_secs(3)).await;
    }
}

fn used(osts: &[Arc<FakeOst>], bytes: &[u64]) {
    for (ost, bytes) in osts.iter().zip(bytes) {
        ost.quota.used.lock().insert(USER, *bytes);
    }
}

#[test]
fn ost_gets_owners_of_objects_that_belong_to_the_reported_files() {
    with_host(1, config(), async |_, _, host| {
        let ost = host.add_ost(0).await;
        let (file, object) = host.make_owned("f").await;
        host.a_while().await;
        ost.quota.owners.lock().clear();
        let (foreign, missing) = (host.new_fid(), host.new_fid());
        ost.quota.ask_owner(object, file);
        ost.quota.ask_owner(foreign, file);
        ost.quota.ask_owner(missing, missing);
        host.a_while().await;
        assert_eq!(ost.quota.owner(object), Some(OWNER));
        let nobody = Some(Owner::default());
        assert_eq!((ost.quota.owner(foreign), ost.quota.owner(missing)), (nobody, nobody), "charged to the superuser");
    });
}

#[test]
fn objects_without_a_file_get_their_owners_by_a_walk_over_all_files() {
    with_host(2, config(), async |_, _, host| {
        let ost = host.add_ost(0).await;
        let (_, object) = host.make_owned("f").await;
        host.a_while().await;
        ost.quota.owners.lock().clear();
        let stray = host.new_fid();
        ost.quota.ask_owner(object, Fid::ZERO);
        ost.quota.ask_owner(stray, Fid::ZERO);
        host.a_while().await;
        assert_eq!(ost.quota.owner(object), Some(OWNER));
        assert_eq!(ost.quota.owner(stray), Some(Owner::default()));
    });
}

#[test]
fn owners_that_changed_are_sent_also_after_a_crash() {
    with_host(3, config(), async |sim, _, host| {
        let ost = host.add_ost(0).await;
        let (file, object) = host.make_owned("f").await;
        host.a_while().await;
        assert_eq!(ost.quota.owner(object), Some(OWNER));
        ost.quota.silent.store(true, Relaxed);
        let other = Owner { uid: 2000, ..OWNER };
        host.chown(file, other).await;
        host.sync().await.unwrap();
        let host = host.crash(sim, config()).await;
        let ost = Arc::new(FakeOst::default());
        host.add_ost_again(0, &ost).await;
        host.rt.sleep(Duration::from_secs(20)).await;
        assert_eq!(ost.quota.owner(object), Some(other));
    });
}

#[test]
fn check_finds_another_owner_of_an_object_and_repairs_it_by_the_owner_log() {
    with_host(20, config(), async |_, _, host| {
        let ost = host.add_ost(0).await;
        let (file, object) = host.make_owned("f").await;
        host.a_while().await;
        ost.objects.lock().insert(object);
        let found = host.checked("run").await;
        assert!(found.contains("problems: 0\n") && found.contains("unchecked_osts: []\n"), "{found}");
        ost.quota.owners.lock().clear();
        let found = host.checked("run").await;
        assert!(found.contains("problems: 0\n"), "an owner that is unknown so far: {found}");
        ost.quota.owners.lock().insert(object, Owner { uid: 2000, ..OWNER });
        let line = format!(
            "- inconsistent_owner: object {object} on OST0000 of file {file} is charged to user 2000, group 100, \
             project 0, and should be to user 1000, group 100, project 0"
        );
        let found = host.checked("run").await;
        assert!(found.contains(&format!("problems: 1\nrepaired: 0\n{line}\n")), "{found}");
        let found = host.checked("repair").await;
        let repaired = format!("problems: 1\nrepaired: 1\n{line}; repaired: send the file's owner to its OSTs\n");
        assert!(found.contains(&repaired), "{found}");
        host.a_while().await;
        assert_eq!(ost.quota.owner(object), Some(OWNER));
        let found = host.checked("run").await;
        assert!(found.contains("problems: 0\n"), "{found}");
    });
}

#[test]
fn owners_that_an_ost_gets_later_or_before_they_are_durable_are_no_problem() {
    with_host(21, slow_commits(), async |_, _, host| {
        let ost = host.add_ost(0).await;
        let (file, object) = host.make_owned("f").await;
        host.sync().await.unwrap();
        // Until the log without the file is durable.
        host.rt.sleep(Duration::from_secs(15)).await;
        ost.objects.lock().insert(object);
        let other = Owner { uid: 2000, ..OWNER };
        host.chown(file, other).await;
        // As if the OST had asked for the owner just now.
        ost.quota.owners.lock().insert(object, other);
        let found = host.checked("run").await;
        assert!(found.contains("problems: 0\n"), "the chown is not durable: {found}");
        ost.quota.owners.lock().insert(object, OWNER);
        ost.quota.silent.store(true, Relaxed);
        host.sync().await.unwrap();
        let found = host.checked("run").await;
        assert!(found.contains("problems: 0\n"), "the OST does not answer to the new owner: {found}");
        assert_eq!(ost.quota.owner(object), Some(OWNER));
    });
}

#[test]
fn limit_is_divided_and_taken_back_from_other_osts() {
    with_host(4, config(), async |_, _, host| {
        let osts = host.add_osts(2).await;
        host.limit(0, 100 * MIB).await;
        host.a_while().await;
        assert_eq!([0, 1].map(|ost: usize| osts[ost].quota.allowance(USER)), [Some(Some(0)); 2], "they have to ask");
        osts[0].quota.want(USER, 90 * MIB);
        host.a_while().await;
        let allowed = osts[0].quota.allowance(USER).flatten().unwrap();
        assert!((90 * MIB..=100 * MIB).contains(&allowed));

        used(&osts, &[40 * MIB, 0]);
        osts[1].quota.want(USER, 50 * MIB);
        host.a_while().await;
        assert_eq!(osts[0].quota.allowance(USER), Some(Some(0)), "returned");
        assert!(osts[1].quota.allowance(USER).flatten().unwrap() >= 50 * MIB);

        used(&osts, &[40 * MIB, 50 * MIB]);
        osts[0].quota.want(USER, 20 * MIB);
        host.a_while().await;
        assert_eq!(osts[0].quota.allowance(USER), Some(Some(40 * MIB)), "40 + 20 MiB are too much");

        host.set_quota(Change::Delete { id: USER, pool: None }).await.unwrap();
        host.a_while().await;
        assert_eq!([0, 1].map(|ost: usize| osts[ost].quota.allowance(USER)), [Some(None); 2]);
    });
}

#[test]
fn limit_of_a_pool_applies_to_the_osts_that_the_pool_has() {
    with_host(9, config(), async |_, _, host| {
        let osts = host.add_osts(3).await;
        let change = async |change| {
            host.mgc.change_pool("sheen", "ssd", change).await.unwrap();
            host.a_while().await;
        };
        let allowances = || [0, 1, 2].map(|ost: usize| osts[ost].quota.allowance(USER));
        for first in [PoolChange::New, PoolChange::Add { ost: 0 }, PoolChange::Add { ost: 1 }] {
            change(first).await;
        }
        let limit = |name| {
            let space = NewLimits { soft: None, hard: Some(100 * MIB) };
            Change::Limits { id: USER, pool: PoolName::new(name).ok(), space, files: NewLimits::default() }
        };
        assert_eq!(host.set_quota(limit("other")).await, Err(Errno::ENOENT));
        host.set_quota(limit("ssd")).await.unwrap();
        host.a_while().await;
        assert_eq!(allowances(), [Some(Some(0)), Some(Some(0)), Some(None)]);
        osts[0].quota.want(USER, 90 * MIB);
        host.a_while().await;
        used(&osts, &[40 * MIB, 0, 70 * MIB]);
        osts[1].quota.want(USER, 50 * MIB);
        host.a_while().await;
        assert_eq!(allowances()[0], Some(Some(0)), "returned");
        assert!(allowances()[1].flatten().is_some_and(|bytes| (50 * MIB..=60 * MIB).contains(&bytes)));
        let query = |name| Query::Of { id: USER, pool: PoolName::new(name).ok(), targets: true };
        let Ok(Answer::Of { report, targets, .. }) = host.quota(0, query("ssd")).await else { panic!() };
        assert_eq!((report.space.used, report.space.limits.hard, targets.len()), (40 * MIB, 100 * MIB, 3));
        assert_eq!(host.quota(0, query("other")).await, Err(Errno::ENOENT));

        change(PoolChange::Add { ost: 2 }).await;
        osts[1].quota.want(USER, MIB);
        host.a_while().await;
        assert_eq!(allowances()[1..], [Some(Some(1)), Some(Some(0))], "40 + 70 MiB are too much");
        change(PoolChange::Remove { ost: 2 }).await;
        osts[1].quota.want(USER, MIB);
        host.a_while().await;
        assert!(allowances()[1].flatten() >= Some(MIB) && allowances()[2] == Some(None));
        change(PoolChange::Destroy).await;
        assert_eq!(allowances(), [Some(None); 3]);
        host.set_quota(Change::Delete { id: USER, pool: PoolName::new("ssd").ok() }).await.unwrap();
    });
}

#[test]
fn silent_ost_does_not_keep_another_one_waiting() {
    with_host(5, config(), async |_, rt, host| {
        let osts = host.add_osts(2).await;
        host.limit(0, 100 * MIB).await;
        host.a_while().await;
        osts[0].quota.want(USER, 90 * MIB);
        host.a_while().await;
        osts[0].quota.silent.store(true, Relaxed);
        osts[1].quota.allowed.lock().clear();
        osts[1].quota.want(USER, 50 * MIB);
        rt.sleep(Duration::from_millis(2500)).await;
        let allowed = osts[1].quota.allowance(USER).flatten().unwrap();
        assert!(allowed <= 10 * MIB, "what the other one has is not given twice");
    });
}

#[test]
fn new_owner_is_sent_after_the_default_limit_that_applies_to_it() {
    with_host(6, config(), async |_, _, host| {
        let ost = host.add_ost(0).await;
        let space = NewLimits { soft: None, hard: Some(MIB) };
        host.set_quota(Change::Default { kind: Kind::User, pool: None, space, files: NewLimits::default() })
            .await
            .unwrap();
        host.a_while().await;
        assert_eq!(ost.quota.allowance(USER), None);
        let (_, object) = host.make_owned("f").await;
        host.a_while().await;
        assert_eq!((ost.quota.owner(object), ost.quota.allowance(USER)), (Some(OWNER), Some(Some(0))));
    });
}

fn report(answer: Result<Answer>) -> (Report, bool) {
    match answer {
        Ok(Answer::Of { report, inexact, .. }) => (report, inexact),
        other => panic!("{other:?}"),
    }
}

#[test]
fn query_returns_sums_and_says_if_a_target_is_missing() {
    with_host(7, config(), async |_, _, host| {
        let osts = host.add_osts(2).await;
        used(&osts, &[3 * MIB, 4 * MIB]);
        host.limit(5 * MIB, 10 * MIB).await;
        host.a_while().await;
        let query = Query::Of { id: USER, pool: None, targets: true };
        let Ok(Answer::Of { report: sum, targets, inexact: false }) = host.quota(0, query).await else { panic!() };
        assert_eq!((sum.space.used, sum.space.limits.hard), (7 * MIB, 10 * MIB));
        assert!(sum.space.grace.is_some_and(|left| left > 0), "the soft limit is exceeded");
        let names: Vec<&str> = targets.iter().map(|target| target.target.as_str()).collect();
        assert_eq!(names, ["sheen-MDT0000", "sheen-OST0000", "sheen-OST0001"]);
        assert_eq!(targets[2].space, Some(4 * MIB));

        let Ok(Answer::All { ids, more: false, .. }) =
            host.quota(0, Query::All { kind: Kind::User, pool: None, first: 1 }).await
        else {
            panic!()
        };
        assert_eq!(ids.iter().map(|(id, report)| (*id, report.space.used)).collect::<Vec<_>>(), [(1000, 7 * MIB)]);

        osts[1].quota.silent.store(true, Relaxed);
        let (sum, inexact) = report(host.quota(1000, query).await);
        assert_eq!((sum.space.used, inexact), (3 * MIB, true));
        assert_eq!(host.quota(1001, query).await, Err(Errno::EPERM));
    });
}

#[test]
fn open_says_that_an_owner_is_near_its_limit() {
    with_host(8, config(), async |_, _, host| {
        let ost = host.add_ost(0).await;
        let (file, _) = host.make_owned("f").await;
        let open = async || {
            let open = Request::Open { cred: Cred::ROOT, fid: file, flags: flags::RDWR };
            let Reply::Opened { handle, tight, .. } = host.ask(open).await.unwrap().body.reply else { panic!() };
            host.ask(Request::close(file, handle)).await.unwrap();
            tight
        };
        assert!(!open().await);
        host.limit(0, 200 * MIB).await;
        host.a_while().await;
        assert!(!open().await);
        ost.quota.used.lock().insert(USER, 150 * MIB);
        ost.quota.want(USER, 0);
        host.a_while().await;
        assert!(open().await);
        // Deleted files make it notice by itself.
        ost.quota.used.lock().insert(USER, MIB);
        host.rt.sleep(Duration::from_secs(6)).await;
        open().await;
        host.a_while().await;
        assert!(!open().await);
    });
}
