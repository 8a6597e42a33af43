//! Simulation of the whole system: clients, MGS, MDT and OSTs on a network that fails and on disks
//! that lose unsynced data.
//!
//! `SHEEN_SIM_SEED=n scripts/test.sh -E 'test(NAME)' --no-capture` repeats a seed and prints all
//! its events.

use sheen_tests::sim::{
    client_death::{around_mds_crash, around_oss_crash, remounted},
    cluster::{as_host, as_user},
    crashes::{Crash, crashes, crashes_with_data},
    late_close::late_closes,
    lost_client::{shared_changes, without_mdt, without_ost},
    lost_load::lost_under_load,
    ost_crash::{
        appends_and_crashes, crash_in_recovery, late_writer, lost_writer, migration_and_crash, ost_crashes,
        waiting_requests,
    },
    outage::read_through_outages,
    race::story::{race, race_beside_migrations, race_beside_swaps, race_for_mirrors, race_on_mdt},
    scenario::{
        bad_network, bad_network_as, lost_bytes, lost_component, lost_file, lost_layout, power_failure,
        power_failure_as, replays, seeds,
    },
    user_outage,
};

/// Number of operations of a run.
const OPS: usize = 200;
/// Number of operations of each phase of a run with a crash.
const OPS_AROUND_A_CRASH: usize = 100;

#[test]
fn operations_execute_exactly_once_on_a_bad_network() {
    seeds("operations_execute_exactly_once_on_a_bad_network", 100, |seed, log| bad_network(seed, OPS, log));
}

#[test]
fn synced_data_survives_a_power_failure() {
    seeds("synced_data_survives_a_power_failure", 300, |seed, log| power_failure(seed, OPS_AROUND_A_CRASH, log));
}

#[test]
fn no_answered_change_is_lost_by_mds_crashes() {
    let run = |seed, log| crashes(seed, 3 * OPS, 4, Crash::Mds, log);
    seeds("no_answered_change_is_lost_by_mds_crashes", 300, run);
    // A truncate by handle was sent to three lives of the MDT. A client knew a layout that the MDT
    // had made for another client, which got no answer.
    run(1229, 0);
    run(1506, 0);
    // The MDT had committed an O_TMPFILE without an answer, and made it again when it was resent.
    run(4752, 0);
}

#[test]
fn no_answered_change_to_files_on_the_mdt_is_lost_by_crashes_of_any_server() {
    let run = |seed, log| crashes_with_data(seed, 3 * OPS, 6, Crash::Any, log);
    seeds("no_answered_change_to_files_on_the_mdt_is_lost_by_crashes_of_any_server", 300, run);
    // An O_TMPFILE was resent after its file had been deleted. It got the same object on the MDT.
    run(36, 0);
}

#[test]
fn no_answered_change_is_lost_by_crashes_of_several_servers_at_once() {
    let run = |seed, log| crashes_with_data(seed, 3 * OPS, 4, Crash::Several, log);
    seeds("no_answered_change_is_lost_by_crashes_of_several_servers_at_once", 200, run);
    // A power failure had undone a part of the removal of an object, and its replay failed.
    run(858, 0);
    // Of two operations that asked the MDT for a layout, the slower one had the older reply.
    run(927, 0);
    // A sync had answers of before the crash, and compared them with changes of after it.
    run(972, 0);
}

#[test]
fn no_answered_change_of_a_users_mount_is_lost_by_crashes_of_any_server() {
    let run = |seed, log| as_user(|| crashes(seed, 3 * OPS, 6, Crash::Any, log));
    seeds("no_answered_change_of_a_users_mount_is_lost_by_crashes_of_any_server", 150, run);
}

#[test]
fn appends_of_a_users_mount_are_made_once_although_the_ost_crashes() {
    let run = |seed, log| as_user(|| appends_and_crashes(seed, 100, 4, log));
    seeds("appends_of_a_users_mount_are_made_once_although_the_ost_crashes", 60, run);
}

#[test]
fn racing_clients_of_a_user_see_consistent_files_during_layout_swaps() {
    let run = |seed, log| as_user(|| race_beside_swaps(seed, log));
    seeds("racing_clients_of_a_user_see_consistent_files_during_layout_swaps", 60, run);
}

#[test]
fn no_answered_change_of_a_squashed_hosts_mount_is_lost_by_crashes_of_any_server() {
    let run = |seed, log| as_host(|| crashes(seed, 3 * OPS, 6, Crash::Any, log));
    seeds("no_answered_change_of_a_squashed_hosts_mount_is_lost_by_crashes_of_any_server", 60, run);
}

#[test]
fn users_mount_writes_while_the_mdt_is_stopped_and_loses_nothing() {
    let run = |seed, log| as_user(|| user_outage::without_mdt(seed, log));
    seeds("users_mount_writes_while_the_mdt_is_stopped_and_loses_nothing", 20, run);
}

#[test]
fn users_mount_replays_changes_to_an_ost_beside_those_of_removed_files() {
    let run = |seed, log| as_user(|| user_outage::without_ost(seed, log));
    seeds("users_mount_replays_changes_to_an_ost_beside_those_of_removed_files", 20, run);
}

#[test]
fn no_answered_change_is_lost_by_oss_crashes() {
    let run = |seed, log| crashes(seed, 3 * OPS, 4, Crash::Oss, log);
    seeds("no_answered_change_is_lost_by_oss_crashes", 300, run);
}

#[test]
fn no_answered_change_is_lost_by_remounts_of_local_file_systems_of_osts() {
    let run = |seed, log| crashes(seed, 3 * OPS, 4, Crash::Disk, log);
    seeds("no_answered_change_is_lost_by_remounts_of_local_file_systems_of_osts", 100, run);
}

#[test]
fn no_answered_change_is_lost_by_crashes_of_any_server() {
    let run = |seed, log| crashes(seed, 3 * OPS, 6, Crash::Any, log);
    seeds("no_answered_change_is_lost_by_crashes_of_any_server", 300, run);
}

#[test]
fn mdt_recovery_without_one_client_costs_only_that_client() {
    seeds("mdt_recovery_without_one_client_costs_only_that_client", 300, without_mdt);
}

#[test]
fn commit_on_sharing_protects_changes_from_the_loss_of_another_client() {
    seeds("commit_on_sharing_protects_changes_from_the_loss_of_another_client", 300, shared_changes);
}

#[test]
fn ost_recovery_without_one_client_costs_only_that_client() {
    seeds("ost_recovery_without_one_client_costs_only_that_client", 300, without_ost);
}

#[test]
fn mdt_recovery_without_one_client_replays_all_changes_of_the_others_under_load() {
    let test = "mdt_recovery_without_one_client_replays_all_changes_of_the_others_under_load";
    seeds(test, 200, lost_under_load);
}

#[test]
fn death_of_a_client_around_an_mds_crash_costs_only_its_unsynced_changes() {
    seeds("death_of_a_client_around_an_mds_crash_costs_only_its_unsynced_changes", 150, around_mds_crash);
}

#[test]
fn death_of_a_client_around_an_oss_crash_costs_only_its_unsynced_data() {
    seeds("death_of_a_client_around_an_oss_crash_costs_only_its_unsynced_data", 150, around_oss_crash);
}

#[test]
fn changes_of_a_remounted_client_survive_an_mds_crash() {
    seeds("changes_of_a_remounted_client_survive_an_mds_crash", 60, remounted);
}

#[test]
fn close_that_waits_for_a_restarted_mdt_sets_the_access_time_of_the_close() {
    seeds("close_that_waits_for_a_restarted_mdt_sets_the_access_time_of_the_close", 60, late_closes);
}

#[test]
fn dirty_data_reaches_a_restarted_ost_before_other_clients_use_the_file() {
    let run = |seed, log| ost_crashes(seed, 4, log);
    seeds("dirty_data_reaches_a_restarted_ost_before_other_clients_use_the_file", 300, run);
}

#[test]
fn replay_does_not_undo_synced_data_of_a_client_that_died() {
    seeds("replay_does_not_undo_synced_data_of_a_client_that_died", 300, lost_writer);
}

#[test]
fn appends_are_made_once_although_the_ost_crashes() {
    let run = |seed, log| appends_and_crashes(seed, 100, 4, log);
    seeds("appends_are_made_once_although_the_ost_crashes", 300, run);
}

#[test]
fn writer_that_a_restarted_ost_did_not_wait_for_discards_its_dirty_data() {
    seeds("writer_that_a_restarted_ost_did_not_wait_for_discards_its_dirty_data", 300, late_writer);
}

#[test]
fn ost_that_crashes_in_its_recovery_waits_for_the_same_clients_again() {
    seeds("ost_that_crashes_in_its_recovery_waits_for_the_same_clients_again", 200, crash_in_recovery);
}

#[test]
fn dirty_data_reaches_a_file_that_is_migrated_while_its_ost_crashes() {
    seeds("dirty_data_reaches_a_file_that_is_migrated_while_its_ost_crashes", 200, migration_and_crash);
}

#[test]
fn request_that_waits_for_a_lock_at_the_crash_of_the_ost_executes_once() {
    seeds("request_that_waits_for_a_lock_at_the_crash_of_the_ost_executes_once", 200, waiting_requests);
}

/// Seed 29 of the power failures found the bug: writes and fsyncs succeeded on a file that the MDT
/// had lost.
#[test]
fn fsync_fails_on_a_file_that_the_mdt_lost() {
    seeds("fsync_fails_on_a_file_that_the_mdt_lost", 300, lost_file);
}

/// Seed 318 of the power failures found the bug: a client went on using a layout that the MDT had
/// lost, while the other clients used the new one.
#[test]
fn clients_drop_a_layout_that_the_mdt_lost() {
    seeds("clients_drop_a_layout_that_the_mdt_lost", 300, lost_layout);
}

#[test]
fn clients_drop_objects_of_a_component_that_the_mdt_lost() {
    seeds("clients_drop_objects_of_a_component_that_the_mdt_lost", 300, lost_component);
}

/// Seed 431 of the power failures found the bug.
#[test]
fn fsync_reports_bytes_that_an_ost_lost() {
    seeds("fsync_reports_bytes_that_an_ost_lost", 300, lost_bytes);
}

#[test]
fn migrations_on_a_bad_network_execute_once_or_fail() {
    seeds("migrations_on_a_bad_network_execute_once_or_fail", 20, |seed, log| bad_network_as(seed, OPS, log, true));
}

#[test]
fn synced_data_survives_a_power_failure_during_migrations() {
    seeds("synced_data_survives_a_power_failure_during_migrations", 20, |seed, log| {
        power_failure_as(seed, OPS_AROUND_A_CRASH, log, true)
    });
    // A copy got back the objects that a file had taken from it, and its last close destroyed them.
    for seed in [264, 423, 428] {
        power_failure_as(seed, OPS_AROUND_A_CRASH, 0, true);
    }
}

#[test]
fn racing_clients_see_a_consistent_file_system() {
    seeds("racing_clients_see_a_consistent_file_system", 800, race);
}

#[test]
fn racing_clients_see_consistent_dom_files() {
    seeds("racing_clients_see_consistent_dom_files", 80, race_on_mdt);
}

#[test]
fn racing_clients_see_consistent_files_during_migrations() {
    seeds("racing_clients_see_consistent_files_during_migrations", 120, race_beside_migrations);
}

#[test]
fn racing_clients_see_consistent_mirrored_files() {
    seeds("racing_clients_see_consistent_mirrored_files", 140, race_for_mirrors);
}

/// Seeds of `racing_clients_see_consistent_mirrored_files` that failed.
///
/// * 909, 912: an append ran during a resync. The client retried it at an end of file that it had
///   read from the wrong mirror.
/// * 1795: a client truncated a file by a layout without mirrors, while the file got mirrors.
/// * 800155, 802125, 802992: a truncate of a mirror by one resync came after the copy by another
///   one.
#[test]
fn changes_during_resync_or_extend_reach_all_mirrors() {
    for seed in [909, 912, 1795, 800_155, 802_125, 802_992] {
        race_for_mirrors(seed, 0);
    }
}

/// Seeds of `racing_clients_see_consistent_mirrored_files` that failed when clients were cut off
/// from the MDT.
///
/// * 1115, 2089, 2761, 2873: an evicted client wrote to a mirror that was copied meanwhile.
/// * 1611: a truncate met the destroyed objects of a mirror that was split off.
#[test]
fn client_that_the_mdt_has_evicted_writes_to_no_ost() {
    for seed in [1115, 1611, 2089, 2761, 2873] {
        race_for_mirrors(seed, 0);
    }
}

/// Seeds of `racing_clients_see_consistent_mirrored_files` that failed.
///
/// * 2415 (a read) and 5801 (a stat): the client used a mirror that a resync truncated at that
///   time.
/// * 12309: a stat that was retried held locks for which the MDT waited.
#[test]
fn reads_and_stats_retry_when_a_resync_truncates_their_mirror() {
    for seed in [2415, 5801, 12309] {
        race_for_mirrors(seed, 0);
    }
}

#[test]
fn mirrored_files_stay_readable_and_writable_during_an_ost_outage() {
    seeds("mirrored_files_stay_readable_and_writable_during_an_ost_outage", 30, read_through_outages);
}

#[test]
fn racing_clients_see_consistent_files_during_layout_swaps() {
    seeds("racing_clients_see_consistent_files_during_layout_swaps", 100, race_beside_swaps);
}

/// Seed 646 of `racing_clients_see_consistent_files_during_layout_swaps` found the bug. A reader
/// waited for another client. That client had lost its connection and waited for the reader's
/// locks. The server evicted the reader.
#[test]
fn reader_waiting_for_a_disconnected_client_is_not_evicted() {
    race_beside_swaps(646, 0);
}

#[test]
fn equal_seeds_replay_equal_events() {
    for seed in 0..5 {
        replays(seed, race);
        replays(seed, race_beside_migrations);
        replays(seed, race_for_mirrors);
        replays(seed, race_beside_swaps);
        replays(seed, |seed, log| bad_network(seed, OPS, log));
        replays(seed, |seed, log| power_failure(seed, OPS_AROUND_A_CRASH, log));
    }
    assert_ne!(bad_network(7, OPS, 0).hash, bad_network(8, OPS, 0).hash);
}
