//! Jobs in simulated file systems.

use sheen_simulation::{DiskSpec, Hardware, Job, Locks, Striping, measure};

const HARDWARE: Hardware = Hardware {
    osts: 1,
    disk: DiskSpec { write: 1000, read: 1000, object: 0, latency_us: 0, seek_us: 0, cache: 0 },
    client_link: 400,
    server_link: 0,
    delay_us: 20,
};

fn job(nodes: u32, striping: Striping, locks: Locks) -> Job {
    Job { nodes, ppn: 1, record: 1 << 20, records: 8, striping, contiguous: false, locks, read: false }
}

#[test]
fn link_of_one_node_limits_it_and_the_disk_limits_many() {
    let one = measure(&HARDWARE, &job(1, Striping::Files, Locks::Growing), 1).unwrap();
    assert!((250.0..400.0).contains(&one.write), "{one:?}");
    let many = measure(&HARDWARE, &Job { read: true, ..job(16, Striping::Files, Locks::Growing) }, 1).unwrap();
    assert!((800.0..=1000.0).contains(&many.write), "{many:?}");
    assert!(many.read.is_some_and(|rate| (700.0..=1000.0).contains(&rate)), "{many:?}");
}

#[test]
fn nodes_that_take_turns_contend_unless_each_has_a_stripe() {
    let rate = |stripes, locks| measure(&HARDWARE, &job(8, Striping::Shared(stripes), locks), 1).unwrap();
    let (one, eight) = (rate(1, Locks::Growing), rate(8, Locks::Growing));
    assert!(one.callbacks > 0 && one.grants > eight.grants, "nodes revoke each other's locks: {one:?} {eight:?}");
    assert_eq!(eight.callbacks, 0, "each stripe has one writer: {eight:?}");
    assert!(eight.write > 1.1 * one.write, "{one:?} {eight:?}");
}

#[test]
fn equal_seeds_give_equal_results() {
    let job = job(4, Striping::Shared(2), Locks::Adaptive);
    assert_eq!(measure(&HARDWARE, &job, 7), measure(&HARDWARE, &job, 7));
}
