//! Repairs on a running MDT: those of findings that still hold, and refusals of those that clients
//! have changed since the check.

use crate::common::*;
use crate::fsck::{RandomChange, change, check, content, key, names, repair, revert, served, store, tree, two_states};
use proptest::prelude::*;
use sheen_namespace::{Check, Config, CountBudget, Place, Problem, Store};
use sheen_wire::{Errno, Fid, fid::ROOT, ldlm::bits, ost::StoredObject, quota::Owner};

/// The name of a problem, and the outcome of its repair.
type Outcome = (&'static str, Result<(), Errno>);

fn commit(fs: &mut Fs) {
    if let Some(batch) = fs.ns.seal() {
        fs.store.commit(&batch).unwrap();
        fs.ns.committed(batch.last());
    }
}

/// Returns the place for what has no name, as the MDT does.
fn place(fs: &mut Fs) -> Place {
    let fid = fs.fid();
    let known = fs.ns.lost_found().unwrap();
    let dir = known.unwrap_or_else(|| {
        let dir = fs.fid();
        fs.ns.make_lost_found(dir, &mut fs.env).unwrap();
        dir
    });
    Place { dir, fid }
}

fn apply(fs: &mut Fs, problem: &Problem) -> Result<(), Errno> {
    apply_within(fs, problem, &mut CountBudget::default())
}

fn apply_within(fs: &mut Fs, problem: &Problem, budget: &mut CountBudget) -> Result<(), Errno> {
    let place = problem.needs_lost_found().then(|| place(fs));
    fs.ns.repair(problem, place, budget, &mut fs.env).map(drop)
}

/// Repairs stage by stage, as the MDT does, until a round repairs nothing. `meanwhile` runs after
/// each check.
fn repair_online(fs: &mut Fs, mut meanwhile: impl FnMut(&mut Fs)) -> Vec<Outcome> {
    let mut all = Vec::new();
    for _ in 0..40 {
        fs.ns.begin_watch();
        commit(fs);
        let found = check(&fs.store);
        assert!(found.permits_online_repairs(), "{found:?}");
        fs.ns.watch_only(found.problems());
        meanwhile(fs);
        let mut outcomes: Vec<Outcome> = Vec::new();
        for stage in found.online_stages().into_values() {
            let is_permitted = |problem: &&Problem| found.knows_all_names() || !problem.needs_all_names();
            for problem in stage.into_iter().map(|n| &found.problems()[n]).filter(is_permitted) {
                outcomes.push((problem.name(), apply(fs, problem)));
            }
            if outcomes.iter().any(|(_, outcome)| outcome.is_ok()) {
                break;
            }
        }
        let has_repaired = outcomes.iter().any(|(_, outcome)| outcome.is_ok());
        all.extend(outcomes);
        fs.ns.end_watch();
        if !has_repaired {
            commit(fs);
            return all;
        }
    }
    panic!("the repair does not end: {:?}", check(&fs.store));
}

/// Asserts that the store has no problem, and that the tree is consistent.
fn assert_sound(fs: &mut Fs) {
    commit(fs);
    assert_eq!(check(&fs.store).problems(), []);
    fs.check();
}

/// Serves a store as it is.
fn running(fs: Fs) -> Fs {
    Fs::on(fs.store, Config::default())
}

#[test]
fn link_counts_are_repaired_while_clients_change_the_directory() {
    let (fs, _, f, before) = tree();
    for fid in [f, ROOT] {
        fs.store.put(key(b'i', fid), before[&key(b'i', fid)].clone());
    }
    let (mut fs, mut made) = (running(fs), 0);
    assert_eq!(fs.attr(f).nlink, 1);
    let outcomes = repair_online(&mut fs, |fs| {
        made += 1;
        fs.mkdir(&ROOT_CRED, ROOT, &format!("new{made}"), 0o755).unwrap();
    });
    assert_eq!(outcomes, [("entry_count", Ok(())), ("link_count", Ok(()))]);
    assert_eq!(fs.attr(f).nlink, 2);
    assert_sound(&mut fs);
}

#[test]
fn owner_of_objects_is_sent_again_unless_the_file_is_deleted() {
    let mut fs = Fs::new();
    let f = fs.touch(&ROOT_CRED, ROOT, "f", 0o644).unwrap();
    commit(&mut fs);
    let (ost, object) = fs.ns.charged(f).unwrap().unwrap().1[0];
    let stored = StoredObject { size: 0, owner: Some(Owner { uid: 5, ..Owner::default() }) };
    let problems = |fs: &mut Fs| -> Vec<Problem> {
        let expected = fs.ns.expected(f, ost, object).unwrap();
        expected.iter().flat_map(|expected| expected.problems(ost, object, &stored)).collect()
    };
    let wrong = problems(&mut fs);
    assert_eq!(wrong.iter().map(Problem::name).collect::<Vec<_>>(), ["inconsistent_owner"]);
    assert_eq!(apply(&mut fs, &wrong[0]), Ok(()));
    assert_eq!(problems(&mut fs), [], "the file is in the owner log, which is not durable yet");
    commit(&mut fs);
    assert_eq!(fs.ns.owner_changes(Fid::ZERO, 10).unwrap(), [f]);
    assert_eq!(problems(&mut fs), []);
    fs.ns.owners_sent(&[f]);
    assert_eq!(problems(&mut fs), wrong, "the OST has another owner all the same");
    fs.unlink(&ROOT_CRED, ROOT, "f").unwrap();
    assert_eq!(apply(&mut fs, &wrong[0]), Err(Errno::ESTALE));
    assert_eq!(problems(&mut fs), []);
}

#[test]
fn link_count_of_a_file_that_got_a_name_meanwhile_is_left_to_the_next_check() {
    let (fs, _, f, before) = tree();
    fs.store.put(key(b'i', f), before[&key(b'i', f)].clone());
    let mut fs = running(fs);
    let outcomes = repair_online(&mut fs, |fs| {
        fs.link(&ROOT_CRED, f, ROOT, "h").unwrap();
    });
    assert_eq!(outcomes, [("link_count", Err(Errno::ESTALE))]);
    assert_eq!(fs.attr(f).nlink, 2, "the client's link counted up a wrong number");
    assert_eq!(repair_online(&mut fs, |_| ()), [("link_count", Ok(()))]);
    assert_eq!(fs.attr(f).nlink, 3);
    assert_sound(&mut fs);
}

#[test]
fn attributes_that_a_client_changed_meanwhile_do_not_hinder_a_repair() {
    let (fs, _, f, before) = tree();
    fs.store.put(key(b'i', f), before[&key(b'i', f)].clone());
    let mut fs = running(fs);
    let outcomes = repair_online(&mut fs, |fs| {
        fs.chmod(&ROOT_CRED, f, 0o600).unwrap();
    });
    assert_eq!(outcomes, [("link_count", Ok(()))]);
    let attr = fs.attr(f);
    assert_eq!((attr.nlink, attr.perm), (2, 0o600));
    assert_sound(&mut fs);
}

#[test]
fn entries_of_a_lost_file_are_removed() {
    let (fs, d, f, _) = tree();
    fs.store.remove(&key(b'i', f));
    let mut fs = running(fs);
    assert_eq!(fs.lookup(&ROOT_CRED, ROOT, "g").unwrap_err(), Errno::ENOENT);
    let outcomes = repair_online(&mut fs, |_| ());
    assert_eq!(outcomes[..2], [("dangling_entry", Ok(())), ("dangling_entry", Ok(()))]);
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{outcomes:?}");
    assert!(["entry_count", "file_count", "quota_usage"].iter().all(|name| outcomes.iter().any(|(n, _)| n == name)));
    assert_eq!((fs.ls(ROOT), fs.ls(d)), (vec!["d".to_owned()], vec![]));
    assert_sound(&mut fs);
}

#[test]
fn entry_of_a_file_that_exists_is_not_removed() {
    let (mut fs, _, f, _) = tree();
    fs.ns.begin_watch();
    fs.store.remove(&key(b'i', f));
    // The MDT has the file in memory.
    let found = check(&fs.store);
    let dangling = found.problems().iter().find(|problem| problem.name() == "dangling_entry").unwrap();
    assert_eq!(apply(&mut fs, dangling), Err(Errno::ESTALE));
    assert_eq!(fs.lookup(&ROOT_CRED, ROOT, "g").unwrap().fid, f);
}

/// A tree whose files have lost all their entries.
fn without_entries() -> (Fs, Fid, Fid) {
    let (fs, d, f, _) = tree();
    content(&fs.store).keys().filter(|key| key[0] == b'e').for_each(|key| fs.store.remove(key));
    (running(fs), d, f)
}

#[test]
fn files_without_names_are_linked_in_lost_found() {
    let (mut fs, d, f) = without_entries();
    let outcomes = repair_online(&mut fs, |_| ());
    assert_eq!(outcomes[..2], [("file_without_name", Ok(())), ("file_without_name", Ok(()))]);
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{outcomes:?}");
    let lost = fs.ns.lost_found().unwrap().unwrap();
    let [d, f] = [d, f].map(|fid| fid.to_string().trim_matches(['[', ']']).to_owned());
    assert_eq!(fs.ls(lost), [d, f]);
    assert_sound(&mut fs);
}

#[test]
fn file_that_got_a_name_meanwhile_is_not_linked_in_lost_found() {
    let (mut fs, d, f) = without_entries();
    let mut is_first = true;
    let outcomes = repair_online(&mut fs, |fs| {
        if std::mem::take(&mut is_first) {
            fs.link(&ROOT_CRED, f, ROOT, "again").unwrap();
        }
    });
    assert!(outcomes.contains(&("file_without_name", Err(Errno::ESTALE))), "{outcomes:?}");
    assert!(outcomes.contains(&("wrong_links", Ok(()))), "{outcomes:?}");
    let lost = fs.ns.lost_found().unwrap().unwrap();
    assert_eq!(fs.ls(lost), [d.to_string().trim_matches(['[', ']']).to_owned()]);
    assert_eq!((fs.ls(ROOT), fs.attr(f).nlink), (vec!["again".to_owned(), "lost+found".to_owned()], 1));
    assert_sound(&mut fs);
}

#[test]
fn wrong_parent_of_a_directory_is_repaired_and_invalidated() {
    let mut fs = Fs::new();
    let d = fs.mkdir(&ROOT_CRED, ROOT, "d", 0o755).unwrap();
    let e = fs.mkdir(&ROOT_CRED, ROOT, "e", 0o755).unwrap();
    fs.commit();
    let before = content(&fs.store);
    fs.rename(&ROOT_CRED, (ROOT, "d"), (e, "d"), 0).unwrap();
    fs.commit();
    fs.store.put(key(b'i', d), before[&key(b'i', d)].clone());
    let mut fs = running(fs);
    fs.ns.begin_watch();
    commit(&mut fs);
    let found = check(&fs.store);
    assert_eq!(names(&found), ["wrong_links"]);
    assert_eq!(Check::path(&*fs.store, d).unwrap(), "/d");
    let done = fs.ns.repair(&found.problems()[0], None, &mut CountBudget::default(), &mut fs.env).unwrap();
    let invalidated = done.invalidations.iter().find(|(fid, _)| *fid == d).unwrap().1;
    assert_eq!(invalidated & (bits::LOOKUP | bits::UPDATE), bits::LOOKUP | bits::UPDATE);
    assert_sound(&mut fs);
    assert_eq!(Check::path(&*fs.store, d).unwrap(), "/e/d");
}

#[test]
fn lost_directory_is_made_again_and_found_in_its_place() {
    let (fs, d, _, _) = tree();
    fs.store.remove(&key(b'i', d));
    let mut fs = running(fs);
    let outcomes = repair_online(&mut fs, |_| ());
    assert_eq!(outcomes[0], ("no_directory", Ok(())));
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{outcomes:?}");
    assert_eq!((fs.ls(ROOT), fs.ls(d)), (vec!["d".to_owned(), "g".to_owned()], vec!["f".to_owned()]));
    assert_eq!(fs.attr(d).perm, 0o700);
    assert_sound(&mut fs);
}

/// Sets the stored number of files of each user, group and project. It is below 128.
fn set_usage(fs: &Fs, files: u8) {
    let keys = content(&fs.store).into_keys().filter(|key| key[0] == b'n');
    keys.for_each(|key| fs.store.put(key, vec![1, files]));
}

#[test]
fn numbers_of_files_of_owners_are_repaired_while_clients_create_and_delete() {
    let (fs, _, _, _) = tree();
    set_usage(&fs, 50);
    let (mut fs, mut made) = (running(fs), 0);
    let outcomes = repair_online(&mut fs, |fs| {
        made += 1;
        fs.mkdir(&ROOT_CRED, ROOT, &format!("new{made}"), 0o755).unwrap();
    });
    assert_eq!(outcomes, [("quota_usage", Ok(())); 3]);
    assert_sound(&mut fs);
}

#[test]
fn number_of_files_that_could_not_be_lowered_is_left_to_the_next_check() {
    let (fs, d, _, _) = tree();
    set_usage(&fs, 1);
    let mut fs = running(fs);
    let outcomes = repair_online(&mut fs, |fs| {
        fs.unlink(&ROOT_CRED, ROOT, "g").unwrap();
        fs.unlink(&ROOT_CRED, d, "f").unwrap();
        fs.rmdir(&ROOT_CRED, ROOT, "d").unwrap();
    });
    assert_eq!(outcomes, [("quota_usage", Err(Errno::ESTALE)); 3]);
    assert_eq!(repair_online(&mut fs, |_| ()), [("quota_usage", Ok(())); 3]);
    assert_sound(&mut fs);
}

#[test]
fn names_are_not_counted_while_a_directory_has_a_bad_entry() {
    let (fs, d, f, _) = tree();
    let all = content(&fs.store);
    let entry = all.keys().find(|entry| entry.starts_with(&key(b'e', d))).unwrap();
    let mut record = all[entry].clone();
    // The number of the entry follows the version of the record.
    record[1] = 0x80;
    fs.store.put(entry.clone(), record);
    let mut fs = running(fs);
    let found = check(&fs.store);
    assert!(!found.knows_all_names());
    for name in ["bad_entry", "link_count", "entry_count"] {
        assert!(names(&found).contains(&name), "{found:?}");
    }
    let outcomes = repair_online(&mut fs, |_| ());
    assert!(outcomes.is_empty(), "{outcomes:?}");
    assert_eq!((fs.lookup(&ROOT_CRED, d, "f").unwrap().fid, fs.attr(f).nlink), (f, 2));
    fs.unlink(&ROOT_CRED, ROOT, "g").unwrap();
    assert_eq!(fs.attr(f).nlink, 1, "the bad entry still names the file");
}

#[test]
fn repairs_of_a_step_count_a_bounded_number_of_entries() {
    const ENTRIES: usize = 9_000;
    let mut fs = Fs::new();
    let f = fs.touch(&ROOT_CRED, ROOT, "f", 0o644).unwrap();
    let dirs = ["d", "e"].map(|name| fs.mkdir(&ROOT_CRED, ROOT, name, 0o755).unwrap());
    fs.commit();
    let before = content(&fs.store);
    for dir in dirs {
        for n in 0..ENTRIES {
            fs.link(&ROOT_CRED, f, dir, &format!("{n}")).unwrap();
        }
    }
    fs.commit();
    dirs.iter().for_each(|dir| fs.store.put(key(b'i', *dir), before[&key(b'i', *dir)].clone()));
    let mut fs = running(fs);
    fs.ns.begin_watch();
    commit(&mut fs);
    let found = check(&fs.store);
    assert_eq!(names(&found), ["entry_count", "entry_count"]);
    fs.ns.watch_only(found.problems());
    for dir in &dirs {
        fs.mkdir(&ROOT_CRED, *dir, "new", 0o755).unwrap();
    }
    let (mut budget, problems) = (CountBudget::default(), found.problems());
    assert_eq!(apply_within(&mut fs, &problems[0], &mut budget), Ok(()));
    assert_eq!(apply_within(&mut fs, &problems[1], &mut budget), Err(Errno::EAGAIN));
    assert_eq!(apply_within(&mut fs, &problems[1], &mut budget), Err(Errno::EAGAIN));
    assert_eq!(apply(&mut fs, &problems[1]), Ok(()), "in the next step");
    fs.ns.end_watch();
    commit(&mut fs);
    assert_eq!(check(&fs.store).problems(), []);
}

#[test]
fn repair_without_a_watch_is_refused() {
    let (fs, _, f, before) = tree();
    fs.store.put(key(b'i', f), before[&key(b'i', f)].clone());
    let mut fs = running(fs);
    let found = check(&fs.store);
    assert_eq!(apply(&mut fs, &found.problems()[0]), Err(Errno::ESTALE));
    assert_eq!(fs.attr(f).nlink, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Repairs on a running MDT end, also while clients change the tree. Of any mixture of records
    /// they leave only what `sheen fsck` can repair.
    #[test]
    fn mixtures_of_two_states_are_repaired_under_load(
        first in prop::collection::vec(any::<RandomChange>(), 1..40),
        second in prop::collection::vec(any::<RandomChange>(), 1..40),
        load in prop::collection::vec(any::<RandomChange>(), 0..8),
        old in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        lost in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let (before, mut mixed, mut dirs) = two_states(first, second);
        let keys: Vec<Vec<u8>> = mixed.keys().chain(before.keys()).filter(|k| b"iexn".contains(&k[0])).cloned().collect();
        for key in old.iter().map(|index| index.get(&keys)) {
            revert(&mut mixed, &before, key);
        }
        // An MDT does not start without a root directory.
        for lost in lost.iter().map(|index| index.get(&keys)).filter(|lost| **lost != key(b'i', ROOT)) {
            mixed.remove(lost);
        }
        let mixed = store(&mixed);
        prop_assume!(check(&mixed).permits_online_repairs());
        let mut fs = Fs::on(mixed.clone(), Config::default());
        // New objects could need a commit of an inconsistent state.
        let mut load = load.into_iter().filter(|(op, ..)| ![1, 7].contains(&(op % 8)));
        repair_online(&mut fs, |fs| load.by_ref().take(2).for_each(|op| change(fs, &mut dirs, op)));
        repair_online(&mut fs, |_| ());
        commit(&mut fs);
        let found = check(&mixed);
        for problem in found.problems() {
            prop_assert!(!problem.is_repaired_online(), "{problem}");
        }
        drop(fs);
        let found = repair(&mixed);
        for problem in found.problems() {
            prop_assert!(matches!(problem, Problem::SharedObject { .. } | Problem::LayoutOfOther(..)), "{problem}");
        }
        if found.problems().is_empty() {
            served(mixed);
        }
    }
}
