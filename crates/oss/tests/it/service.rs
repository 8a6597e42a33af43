//! An OST as its clients see it: over lo and tcp, registered with an MGS, stopped and restarted.

use crate::common::{Client, OBJECT, Process, fid, part};
use bytes::Bytes;
use sheen_lnet::{Net, Nid};
use sheen_oss::{DataConfig, Ost, Sharing};
use sheen_rpc::Service;
use sheen_rt::operation;
use sheen_wire::{
    Bulk, Errno, Fid, JobId,
    ost::{Allocate, Grant, OBJECT_SIZE_MAX, PARTS_MAX, Part, Reply, Request, Seek},
};

/// Sends every request once and checks the reply.
fn exercise(client: &Client<'_>) {
    let data = vec![0xab; 3 << 20];
    assert!(matches!(client.write(&data, false).unwrap().body, Reply::Done { .. }));
    assert_eq!(client.read(8 << 20), data);
    assert!(matches!(client.write(b"cd", true).unwrap().body, Reply::Done { .. }));
    let ok = |request| match client.call(request, b"").unwrap().body {
        Reply::Ok | Reply::Done { .. } => {}
        other => panic!("{other:?}"),
    };
    ok(Request::Sync { objects: vec![OBJECT] });
    ok(Request::Sync { objects: vec![] });
    ok(Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, 1 << 20)] });
    ok(Request::Allocate { file: Fid::ZERO, mode: Allocate::PunchHole, runs: vec![(OBJECT, 0, 4096)] });
    match client.call(Request::Attrs { objects: vec![OBJECT, Fid::new(5, 5)] }, b"").unwrap().body {
        Reply::Attrs(attrs) => {
            assert_eq!((attrs[0].size, attrs[1].size, attrs[1].mtime), (1 << 20, 0, None));
            assert!(attrs[0].mtime.unwrap() <= client.process.net.rt().wall());
        }
        other => panic!("{other:?}"),
    }
    let seek = Request::Seek { object: OBJECT, offset: 0, what: Seek::Data };
    assert!(matches!(client.call(seek, b"").unwrap().body, Reply::Offset(Some(4096))));
    match client.call(Request::StatFs, b"").unwrap().body {
        Reply::StatFs(s) => assert!(s.blocks > s.bfree && s.bfree >= s.bavail && s.bavail > 0),
        other => panic!("{other:?}"),
    }
    ok(Request::Destroy { objects: vec![Fid::new(OBJECT.seq, 77)] });
    ok(Request::DestroyRange { seq: OBJECT.seq, first: 1, last: 100 });
    assert!(client.read(100).is_empty());
}

#[test]
fn ost_serves_every_request_over_lo_and_tcp() {
    let process = Process::real();
    let ost = process.start(None).unwrap();
    assert_eq!(ost.name(), "sheen-OST0007");
    exercise(&process.client(&process.net, "sheen-OST0007", Nid::Lo));
    let elsewhere = Net::new(process.net.rt().clone());
    exercise(&process.client(&elsewhere, "sheen-OST0007", process.listen()));
}

#[test]
fn data_service_serves_requests_without_mgs_registration() {
    let process = Process::real();
    let config = DataConfig {
        dir: process.dir.join("mdt/dom"),
        fsname: "sheen".into(),
        index: 0,
        mdt: "sheen-MDT0000".into(),
        uuid: "the MDT's".into(),
        incarnation: 1,
        sharing: Sharing::new(),
        open_files_max: 100,
    };
    let start = || {
        let started = Ost::start_data(&process.net, &process.server, config.clone(), process.params.clone());
        process.run(started).unwrap()
    };
    let data = start();
    assert_eq!((data.name(), data.uuid()), ("sheen-MDT0000-dom", "the MDT's"));
    let client = process.client(&process.net, "sheen-MDT0000-dom", Nid::Lo);
    exercise(&client);
    assert_eq!(process.value("dom.sheen-MDT0000-dom.uuid"), "sheen-MDT0000-dom_UUID");
    assert!(process.params.get("obdfilter.*.uuid").is_err() && process.mgs.found.lock().unwrap().is_empty());
    client.write(b"data", true).unwrap();
    process.run(data.stop());
    let again = start();
    assert_eq!(process.client(&process.net, "sheen-MDT0000-dom", Nid::Lo).read(10), "data");
    process.run(again.stop());
}

#[test]
fn list_returns_every_object_once() {
    let process = Process::real();
    let ost = process.start(None).unwrap();
    let client = process.client(&process.net, "sheen-OST0007", Nid::Lo);
    let list = |after| match client.call(Request::List { after }, b"").unwrap().body {
        Reply::Objects(objects) => objects,
        other => panic!("{other:?}"),
    };
    assert_eq!(list(Fid::ZERO), []);
    let mut made: Vec<Fid> = (1..=PARTS_MAX as u32 + 10).map(fid).collect();
    made.extend((1..70).map(|oid| Fid::new(0x2_0000_0402, oid)));
    for some in made.chunks(PARTS_MAX) {
        let objects = some.iter().map(|object| (*object, 1)).collect();
        client.call(Request::Truncate { file: Fid::ZERO, objects }, b"").unwrap();
    }
    let (mut found, mut after) = (Vec::new(), Fid::ZERO);
    loop {
        let some = list(after);
        let Some(last) = some.last() else { break };
        assert!(some.len() <= PARTS_MAX);
        after = *last;
        found.extend(some);
    }
    found.sort_unstable();
    made.sort_unstable();
    assert!(found == made, "{} of {}", found.len(), made.len());
    process.run(ost.stop());
}

#[test]
fn reply_bytes_sums_read_lengths_without_overflow() {
    let process = Process::real();
    let ost = process.start(None).unwrap();
    let bytes = |request| ost.reply_bytes(&request);
    assert_eq!(bytes(Request::Read { parts: vec![part(0, 4096), part(1 << 30, 100)] }), 4196);
    assert!(bytes(Request::Read { parts: vec![part(0, u32::MAX as usize); 3] }) > 16 << 20, "it does not wrap");
    assert_eq!(
        bytes(Request::Write {
            file: Fid::ZERO,
            parts: vec![part(0, 4096)],
            sync: false,
            mtime: None,
            grant: Grant::default(),
            held: false
        }),
        0
    );
}

#[test]
fn invalid_ost_requests_are_refused_and_change_nothing() {
    let process = Process::real();
    let ost = process.start(Some(0)).unwrap();
    let client = process.client(&process.net, ost.name(), Nid::Lo);
    let refused = |request, bulk: &[u8]| client.call(request, bulk).unwrap_err();
    let write = |parts| Request::Write {
        file: Fid::ZERO,
        parts,
        sync: false,
        mtime: None,
        grant: Grant::default(),
        held: false,
    };
    assert_eq!(refused(write(vec![part(0, 4)]), b"abc"), Errno::EPROTO);
    assert_eq!(refused(write(vec![part(OBJECT_SIZE_MAX, 3)]), b"abc"), Errno::EFBIG);
    assert_eq!(refused(write(vec![part(u64::MAX - 1, 3)]), b"abc"), Errno::EFBIG);
    assert_eq!(refused(write(vec![Part { object: Fid::ZERO, ..part(0, 3) }]), b"abc"), Errno::EINVAL);
    assert_eq!(refused(Request::Read { parts: vec![part(0, 1); PARTS_MAX + 1] }, b""), Errno::E2BIG);
    assert_eq!(refused(Request::Read { parts: vec![part(0, 16 << 20), part(0, 1)] }, b""), Errno::E2BIG);
    assert_eq!(refused(Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, u64::MAX)] }, b""), Errno::EFBIG);
    assert!(client.read(1).is_empty());
    assert!(!process.dir.join("ost/O/280000401").exists());
    assert!(client.write(b"fine", false).is_ok(), "the service still works");
}

#[test]
fn restarted_ost_has_its_index_and_data() {
    let process = Process::real();
    let ost = process.start(None).unwrap();
    let client = process.client(&process.net, ost.name(), Nid::Lo);
    client.write(b"data", false).unwrap();
    assert!(process.start(None).unwrap_err().to_string().contains("in use by another process"));
    process.run(ost.stop());
    process.run(ost.stop());
    assert!(process.params.get("obdfilter.*.stats").is_err());
    let again = process.start(None).unwrap();
    assert_eq!(again.index(), 7, "the index of its directory, not the next free one");
    let client = process.client(&process.net, again.name(), Nid::Lo);
    assert_eq!(client.read(9), &b"data"[..]);
}

#[test]
fn ost_refused_by_the_mgs_does_not_start() {
    let process = Process::real();
    let error = process.start(Some(99)).unwrap_err().to_string();
    assert!(error.contains("File exists") && error.contains("the MGS has another OST of this index"), "{error}");
    assert!(process.params.get("obdfilter.*.stats").is_err());
    let again = process.start(Some(99)).unwrap_err().to_string();
    assert_eq!(again, error, "its directory is not locked");
}

#[test]
fn ost_is_reachable_when_it_registers_with_the_mgs() {
    let process = Process::real();
    let ost = process.start(Some(3)).unwrap();
    process.run(ost.stop());
    process.start(None).unwrap();
    assert_eq!(*process.mgs.found.lock().unwrap(), [true, true]);
}

#[test]
fn obdfilter_parameters_show_stats_and_space() {
    let process = Process::real();
    let ost = process.start(Some(2)).unwrap();
    let client = process.client(&process.net, ost.name(), Nid::Lo);
    client.write(&[1; 4096], false).unwrap();
    client.write(&[1; 8192], false).unwrap();
    client.read(100);
    let stats = process.value("obdfilter.sheen-OST0002.stats");
    let line = |name: &str| stats.lines().find(|l| l.split(' ').next() == Some(name)).unwrap().to_owned();
    assert!(line("write_bytes").ends_with(" 2 samples [bytes] 4096 8192 12288 83886080"), "{stats}");
    assert!(line("read_bytes").ends_with(" 1 samples [bytes] 100 100 100 10000"), "{stats}");
    assert!(line("write").contains(" 2 samples [usecs] "), "{stats}");
    process.params.set("obdfilter.*.stats", "clear").unwrap();
    assert!(!process.value("obdfilter.sheen-OST0002.stats").contains("write_bytes"));
    assert_eq!(process.value("obdfilter.sheen-OST0002.num_exports"), "1");
    let number = |name: &str| process.value(&format!("obdfilter.sheen-OST0002.{name}")).parse::<u64>().unwrap();
    assert!(number("kbytestotal") > number("kbytesfree") && number("kbytesfree") >= number("kbytesavail"));
    assert!(number("filestotal") >= number("filesfree"));
    assert_eq!(number("brw_size"), 16);
    let devices = process.params.devices();
    assert!(devices.iter().any(|d| d.kind == "obdfilter" && d.name == "sheen-OST0002"));
}

#[test]
fn job_stats_count_bytes_and_time_of_each_read_and_write() {
    let (process, ost) = Process::with_ost();
    let client = process.client(&process.net, ost.name(), Nid::Lo);
    client.write(&[1; 512], false).unwrap();
    let of_job = |request, data: Vec<u8>| {
        let sent = client.import.request(request).bulk(Bulk::from(Bytes::from(data))).send();
        process.run(operation::within(JobId::new(b"dd.0"), sent)).unwrap()
    };
    for len in [4096, 8192] {
        let (parts, grant) = (vec![part(0, len)], Grant::default());
        of_job(Request::Write { file: Fid::ZERO, parts, sync: false, mtime: None, grant, held: false }, vec![1; len]);
    }
    of_job(Request::Read { parts: vec![part(0, 100), part(8000, 4096)] }, Vec::new());
    of_job(Request::Attrs { objects: vec![OBJECT] }, Vec::new());
    let stats = process.value("obdfilter.sheen-OST0000.job_stats");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = stats.lines().map(words).collect();
    let line = |name: &str| lines.iter().find(|line| line.starts_with(&format!("{name}: "))).unwrap().as_str();
    assert_eq!(lines[..2], ["job_stats:", "- job_id: dd.0"]);
    assert_eq!(stats.matches("job_id:").count(), 1, "the first write has no job: {stats}");
    let written =
        "{ samples: 2, unit: bytes, min: 4096, max: 8192, sum: 12288, sumsq: 83886080, hist: { 4K: 1, 8K: 1 } }";
    assert_eq!(line("write_bytes"), format!("write_bytes: {written}"));
    assert!(line("read_bytes").starts_with("read_bytes: { samples: 1, unit: bytes, min: 292, max: 292, "), "{stats}");
    for (name, samples) in [("write", 2), ("read", 1), ("getattr", 1), ("punch", 0)] {
        assert!(line(name).starts_with(&format!("{name}: {{ samples: {samples}, unit: usecs, ")), "{stats}");
    }
}

#[test]
fn obdfilter_parameters_show_block_io_and_the_requests_of_each_host() {
    let process = Process::real();
    let ost = process.start(Some(2)).unwrap();
    let client = process.client(&process.net, ost.name(), Nid::Lo);
    client.write(&[1; 8192], false).unwrap();
    client.read(100);
    let brw = process.value("obdfilter.sheen-OST0002.brw_stats");
    let size = brw.split("disk I/O size").nth(1).unwrap();
    assert!(size.contains("\n128:\t\t         1 100 100   |    0   0   0\n"), "{brw}");
    assert!(size.ends_with("\n8K:\t\t         0   0 100   |    1 100 100\n"), "{brw}");
    process.params.set("osd-*.*.brw_stats", "0").unwrap();
    assert!(!process.value("obdfilter.*.brw_stats").contains("8K:"), "it is the same statistic");
    let stats = process.value("obdfilter.*.exports.0@lo.stats");
    assert!(
        stats.contains("write_bytes                         1 samples [bytes] 8192 8192 8192 67108864\n"),
        "{stats}"
    );
    assert!(stats.contains("\nread                                1 samples [usecs] "), "{stats}");
    assert_eq!(process.value("obdfilter.*.exports.0@lo.uuid"), "client-1");
    process.params.set("obdfilter.*.exports.clear", "1").unwrap();
    assert_eq!(process.value("obdfilter.*.exports.0@lo.stats").lines().count(), 3);
    drop(client);
    process.wait_for(|| process.params.get("obdfilter.*.exports.0@lo.uuid").is_err().then_some(()));
    process.run(ost.stop());
    assert!(process.params.list("osd-*").is_err());
}

#[test]
fn oss_device_is_removed_with_the_last_ost() {
    let mut process = Process::new();
    let first = process.start(Some(1)).unwrap();
    process.dir = "/second".into();
    let second = process.start(Some(2)).unwrap();
    let devices = || process.params.devices().into_iter().map(|d| d.name).collect::<Vec<_>>();
    assert_eq!(devices(), ["OSS", "sheen-OST0001", "sheen-OST0002"]);
    process.run(first.stop());
    assert_eq!(devices(), ["OSS", "sheen-OST0002"]);
    process.run(second.stop());
    assert_eq!(devices(), [""; 0]);
}
