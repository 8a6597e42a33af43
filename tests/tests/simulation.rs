//! Simulation of the whole system: clients, MGS, MDT and OSTs on a network that fails and on disks
//! that lose unsynced data.
//!
//! `SHEEN_SIM_SEED=n scripts/test.sh -E 'test(NAME)' --no-capture` repeats a seed and prints all
//! its events.

use sheen_tests::sim::{
    outage::read_through_outages,
    race::story::{race, race_beside_migrations, race_beside_swaps, race_for_mirrors, race_on_mdt},
    scenario::{
        bad_network, bad_network_as, lost_bytes, lost_component, lost_file, lost_layout, power_failure,
        power_failure_as, replays, seeds,
    },
};

/// Number of operations of a run.
const OPS: usize = 200;
/// Number of operations of each phase of a run with a crash.
const OPS_AROUND_A_CRASH: usize = 100;

#[test]
fn every_operation_is_done_exactly_once_however_the_network_breaks() {
    seeds("every_operation_is_done_exactly_once_however_the_network_breaks", 100, |seed, log| {
        bad_network(seed, OPS, log)
    });
}

#[test]
fn what_was_synced_survives_a_power_failure_and_nothing_is_mixed_up() {
    seeds("what_was_synced_survives_a_power_failure_and_nothing_is_mixed_up", 40, |seed, log| {
        power_failure(seed, OPS_AROUND_A_CRASH, log)
    });
}

/// Seed 29 of the power failures found the bug: writes and fsyncs succeeded on a file that the MDT
/// had lost.
#[test]
fn a_file_that_the_mdt_lost_is_not_called_safe() {
    seeds("a_file_that_the_mdt_lost_is_not_called_safe", 5, lost_file);
}

/// Seed 318 of the power failures found the bug: a client went on using a layout that the MDT had
/// lost, while the other clients used the new one.
#[test]
fn a_layout_that_the_mdt_lost_is_forgotten_by_all() {
    seeds("a_layout_that_the_mdt_lost_is_forgotten_by_all", 5, lost_layout);
}

#[test]
fn objects_of_a_component_that_the_mdt_lost_are_forgotten_by_all() {
    seeds("objects_of_a_component_that_the_mdt_lost_are_forgotten_by_all", 10, lost_component);
}

/// Seed 431 of the power failures found the bug.
#[test]
fn an_fsync_after_an_ost_lost_bytes_does_not_call_them_safe() {
    seeds("an_fsync_after_an_ost_lost_bytes_does_not_call_them_safe", 20, lost_bytes);
}

#[test]
fn migrations_are_done_once_or_not_at_all() {
    seeds("migrations_are_done_once_or_not_at_all", 20, |seed, log| bad_network_as(seed, OPS, log, true));
}

#[test]
fn what_was_synced_survives_a_power_failure_while_files_are_migrated() {
    seeds("what_was_synced_survives_a_power_failure_while_files_are_migrated", 20, |seed, log| {
        power_failure_as(seed, OPS_AROUND_A_CRASH, log, true)
    });
}

#[test]
fn clients_that_race_see_one_file_system() {
    seeds("clients_that_race_see_one_file_system", 800, race);
}

#[test]
fn clients_race_for_files_on_the_mdt() {
    seeds("clients_race_for_files_on_the_mdt", 80, race_on_mdt);
}

#[test]
fn clients_race_while_files_are_migrated() {
    seeds("clients_race_while_files_are_migrated", 120, race_beside_migrations);
}

#[test]
fn clients_race_for_files_with_mirrors() {
    seeds("clients_race_for_files_with_mirrors", 140, race_for_mirrors);
}

/// Seeds of `clients_race_for_files_with_mirrors` that failed.
///
/// * 909, 912: an append ran during a resync. The client retried it at an end of file that it had
///   read from the wrong mirror.
/// * 1795: a client truncated a file by a layout without mirrors, while the file got mirrors.
#[test]
fn what_new_mirrors_overtake_is_done_to_all_of_them() {
    for seed in [909, 912, 1795] {
        race_for_mirrors(seed, 0);
    }
}

/// Seeds of `clients_race_for_files_with_mirrors` that failed.
///
/// * 2415 (a read) and 5801 (a stat): the client used a mirror that a resync truncated at that
///   time.
/// * 12309: a stat that was retried held locks for which the MDT waited.
#[test]
fn who_looks_at_a_mirror_that_is_cut_looks_again() {
    for seed in [2415, 5801, 12309] {
        race_for_mirrors(seed, 0);
    }
}

#[test]
fn mirrored_files_are_read_and_written_while_an_ost_is_down() {
    seeds("mirrored_files_are_read_and_written_while_an_ost_is_down", 30, read_through_outages);
}

#[test]
fn clients_race_while_files_are_swapped() {
    seeds("clients_race_while_files_are_swapped", 100, race_beside_swaps);
}

/// Seed 646 of `clients_race_while_files_are_swapped` found the bug. A reader waited for another
/// client. That client had lost its connection and waited for the reader's locks. The server
/// evicted the reader.
#[test]
fn who_reads_is_not_given_up_for_whom_it_waits() {
    race_beside_swaps(646, 0);
}

#[test]
fn a_seed_replays() {
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
