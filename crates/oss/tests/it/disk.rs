//! A modelled disk (`obdfilter.*.disk_model`), in virtual time.

use std::time::Duration;

use sheen_params::ParamError;
use sheen_wire::{Errno, ost::Request};

use crate::common::{OBJECT, Process};

const MODEL: &str = "obdfilter.sheen-OST0000.disk_model";
const SURVEY: &str = "obdfilter.sheen-OST0000.survey";
const MIB: usize = 1 << 20;

fn set(process: &Process, name: &str, value: &str) -> Result<(), ParamError> {
    process.params.set(name, value).unwrap().remove(0).result
}

/// Returns the virtual milliseconds that `act` takes.
fn millis<T>(process: &Process, act: impl FnOnce() -> T) -> u128 {
    let start = process.net.rt().now();
    act();
    process.net.rt().now().since(start).as_millis()
}

#[test]
fn requests_wait_for_a_modelled_disk() {
    let (process, ost) = Process::with_ost();
    let client = process.client(&process.net, ost.name(), sheen_lnet::Nid::Lo);
    let write = |sync| client.write(&vec![1; MIB], sync).unwrap();
    let sync = || client.call(Request::Sync { objects: vec![OBJECT] }, b"").unwrap();
    assert_eq!((process.value(MODEL).as_str(), millis(&process, || write(true)) < 100), ("none", true));
    set(&process, MODEL, "write=10 cache=2").unwrap();
    assert_eq!(process.value(MODEL), "write=10 read=10 object=0 latency_us=0 seek_us=0 cache=2");
    // 100 ms for each MiB; two of them fit in memory.
    let took: Vec<u128> = (0..4).map(|_| millis(&process, || write(false)) / 100).collect();
    assert_eq!(took, [0, 0, 1, 1]);
    assert_eq!(millis(&process, sync) / 100, 2, "the rest");
    assert_eq!(millis(&process, || client.read(MIB)) / 100, 0, "memory has it");
    assert_eq!(millis(&process, || write(true)) / 100, 1);
    set(&process, MODEL, "write=10 latency_us=500000").unwrap();
    assert_eq!(millis(&process, || client.read(MIB)) / 100, 6, "from the disk");
    set(&process, MODEL, "none").unwrap();
    assert!(millis(&process, || (write(true), client.read(MIB))) < 100);
}

#[test]
fn invalid_properties_of_a_disk_are_refused() {
    let (process, _ost) = Process::with_ost();
    for text in ["", "fast", "read=10", "write=0", "write=10 color=3"] {
        assert_eq!(set(&process, MODEL, text), Err(ParamError::from(Errno::EINVAL)), "{text}");
    }
    assert_eq!(process.value(MODEL), "none");
}

#[test]
fn survey_measures_the_modelled_disk() {
    let (process, _ost) = Process::with_ost();
    set(&process, MODEL, "write=10 read=20 object=5").unwrap();
    let survey = |order: &str| {
        set(&process, SURVEY, order).unwrap();
        loop {
            process.run(process.net.rt().sleep(Duration::from_millis(10)));
            let status = process.value(SURVEY);
            if let Some(micros) = status.lines().find_map(|line| line.strip_prefix("microseconds: "))
                && status.starts_with("state: done")
            {
                return micros.parse::<u64>().unwrap() / 100_000;
            }
            assert!(status.starts_with("state: running"), "{status}");
        }
    };
    assert_eq!(survey("write 1 1 1048576 4194304"), 8, "5 MiB/s of one object");
    assert_eq!(survey("write 4 4 1048576 4194304"), 4, "10 MiB/s of the disk");
    assert_eq!(survey("read 4 4 1048576 4194304"), 2, "20 MiB/s");
}
