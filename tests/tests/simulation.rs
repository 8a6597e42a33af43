//! The whole system, simulated: three clients, MGS and MDT, four OSTs over a network that breaks, on disks that forget.
//!
//! A seed that fails is run again, with all its events printed, by `SHEEN_SIM_SEED=n cargo test -p sheen-tests --test simulation NAME --
//! --nocapture`.

use sheen_tests::sim::scenario::{bad_network, power_failure, seeds};

/// Operations of a run.
const OPS: usize = 200;
/// Operations of each part of a run with a crash.
const OPS_AROUND_A_CRASH: usize = 60;

#[test]
fn every_operation_is_done_exactly_once_however_the_network_breaks() {
    seeds("every_operation", 100, |seed, log| bad_network(seed, OPS, log));
}

#[test]
fn what_was_synced_survives_a_power_failure_and_nothing_is_mixed_up() {
    seeds("what_was_synced", 30, |seed, log| power_failure(seed, OPS_AROUND_A_CRASH, log));
}

#[test]
fn a_seed_replays() {
    let events = 1000;
    assert_eq!(bad_network(7, 60, events), bad_network(7, 60, events));
    assert_eq!(power_failure(7, 30, events), power_failure(7, 30, events));
    assert_ne!(bad_network(7, 60, 0).hash, bad_network(8, 60, 0).hash);
}
