//! Tests of both sides together.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_params::{Device, Found, Param, Params, Snapshot, Stats, Value};
use sheen_wire::Time;

use super::*;
use crate::message::read_line;
use crate::serve::serve_one;

/// Time limit for greetings. Some tests let it pass; a process that runs greets sooner on any
/// machine.
const LIMIT: Duration = Duration::from_secs(3);

#[test]
fn control_socket_answers_requests_and_is_removed_on_drop() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("run");
    let params = Params::new();
    params.register("osc.a.max_dirty_mb", Param::atomic(1..=100, Arc::new(AtomicU64::new(8))));
    params.add_device("MGS", || Device::new("mgs", "MGS", "MGS"));
    params.add_nid("127.0.0.1@tcp");
    let control = Control::serve_in(&dir, &params).unwrap();
    let socket = control.path().to_path_buf();
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    assert_eq!(sockets_in(&dir), [control.path()]);

    let set = |value: &str| Request::Set { pattern: "osc.*.max_dirty_mb".into(), value: value.into() };
    let Reply::Results(results) = ask(&socket, &set("64"), LIMIT).unwrap() else { panic!() };
    assert_eq!(results[0].errno, 0);
    let Reply::Results(results) = ask(&socket, &set("101"), LIMIT).unwrap() else { panic!() };
    assert_eq!((results[0].errno, results[0].accepts.as_deref()), (34, Some("1 to 100")));
    let Reply::Values(values) = ask(&socket, &Request::Get { pattern: "osc.*.*".into() }, LIMIT).unwrap() else {
        panic!()
    };
    assert_eq!(values, [Found { name: "osc.a.max_dirty_mb".into(), value: "64".into(), writable: true }]);
    assert_eq!(ask(&socket, &Request::Get { pattern: "no".into() }, LIMIT).unwrap(), Reply::Error { errno: 2 });
    assert_eq!(ask(&socket, &Request::Nids, LIMIT).unwrap(), Reply::Nids(vec!["127.0.0.1@tcp".into()]));
    let Reply::Devices(devices) = ask(&socket, &Request::Devices, LIMIT).unwrap() else { panic!() };
    assert_eq!(devices[0].name, "MGS");

    drop(control);
    assert!(ask(&socket, &Request::Nids, LIMIT).is_err());
    assert!(sockets_in(&dir).is_empty());
}

#[test]
fn reply_that_is_too_long_becomes_emsgsize() {
    let dir = tempfile::tempdir().unwrap();
    let params = Params::new();
    // The length of the reply without the value.
    let frame = r#" {"values":[{"name":"a.long","value":"","writable":false}]}"#.len() + 1;
    let longest = REPLY_BYTES_MAX as usize - frame;
    params.register("a.long", Param::text(move || "x".repeat(longest)));
    params.register("b.long", Param::text(move || "x".repeat(longest + 1)));
    let control = Control::serve_in(&dir.path().join("run"), &params).unwrap();
    let get = |pattern: &str| ask(control.path(), &Request::Get { pattern: pattern.into() }, LIMIT).unwrap();
    let Reply::Values(values) = get("a.long") else { panic!() };
    assert_eq!(values[0].value.len(), longest);
    for pattern in ["b.long", "*.long"] {
        assert_eq!(get(pattern), Reply::Error { errno: 90 });
    }
}

#[test]
fn ask_joins_the_pages_of_values_beyond_one_reply() {
    let dir = tempfile::tempdir().unwrap();
    let params = Params::new();
    let long = REPLY_BYTES_MAX as usize / 5 * 2;
    for i in 0..5 {
        params.register(&format!("mdt.a-MDT000{i}.job_stats"), Param::text(move || i.to_string().repeat(long)));
    }
    let control = Control::serve_in(&dir.path().join("run"), &params).unwrap();
    let request = Request::Get { pattern: "mdt.*.job_stats".into() };
    let of = Request::Of { fsname: "a".into(), request: Box::new(request.clone()) };
    for request in [request, of] {
        let Reply::Values(found) = ask(control.path(), &request, LIMIT).unwrap() else { panic!() };
        let found: Vec<_> = found.iter().map(|f| (&*f.name, f.value.len(), &f.value[..1])).collect();
        let names: Vec<_> = (0..5).map(|i| format!("mdt.a-MDT000{i}.job_stats")).collect();
        let want: Vec<_> = names.iter().zip(["0", "1", "2", "3", "4"]).map(|(n, c)| (&**n, long, c)).collect();
        assert_eq!(found, want);
    }
}

#[test]
fn ask_joins_pages_of_another_users_process_only_within_one_reply() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can act as another user");
    }
    let (dir, params) = (tempfile::tempdir().unwrap(), Params::new());
    let long = REPLY_BYTES_MAX as usize / 5 * 2;
    for i in 0..5 {
        params.register(&format!("mdt.a-MDT000{i}.job_stats"), Param::text(move || "x".repeat(long)));
    }
    let request = Request::Get { pattern: "mdt.*.job_stats".into() };
    // The connections are the first request, and those of the pages that are requested.
    for (uid, connections) in [(0, 4), (65534, 3)] {
        let socket = dir.path().join(format!("{uid}.sock"));
        let listener = UnixListener::bind(&socket).unwrap();
        let (params, (listens, listening)) = (params.clone(), mpsc::channel());
        let serves = thread::spawn(move || {
            // The kernel reports the user who listens. Only this thread becomes another one.
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
            rustix::net::listen(&listener, 8).unwrap();
            listens.send(()).unwrap();
            for _ in 0..connections {
                serve_one(&listener.accept().unwrap().0, &params).unwrap();
            }
        });
        listening.recv().unwrap();
        let reply = ask_within(&socket, &request, STALL, STALL * 2).unwrap();
        serves.join().unwrap();
        match reply {
            Reply::Values(found) => assert_eq!((found.len(), uid), (5, 0)),
            reply => assert_eq!((reply, uid), (Reply::Error { errno: 90 }, 65534)),
        }
    }
}

#[test]
fn control_socket_survives_invalid_requests() {
    let dir = tempfile::tempdir().unwrap();
    let control = Control::serve_in(&dir.path().join("run"), &Params::new()).unwrap();
    let stream = UnixStream::connect(control.path()).unwrap();
    (&stream).write_all(b"{\"op\":\"explode\"}\n").unwrap();
    assert_eq!(read_line(&stream, 1000).unwrap(), " {\"error\":{\"errno\":71}}\n");
    drop(UnixStream::connect(control.path()).unwrap());
    let mut flood = UnixStream::connect(control.path()).unwrap();
    // The service stops reading at its limit, so the last bytes may meet a closed socket.
    let _ = flood.write_all(&vec![b'x'; 2 * REQUEST_BYTES_MAX as usize]);
    assert_eq!(ask(control.path(), &Request::Nids, LIMIT).unwrap(), Reply::Nids(vec![]));
}

#[test]
fn ask_all_reports_a_hung_process_and_returns_other_replies() {
    let dir = tempfile::tempdir().unwrap();
    let control = Control::serve_in(dir.path(), &Params::new()).unwrap();
    let (hung, full) = (dir.path().join("4000000001.sock"), dir.path().join("4000000002.sock"));
    // The kernel accepts connections for a stopped process until its queue is full.
    let listeners = [UnixListener::bind(&hung).unwrap(), UnixListener::bind(&full).unwrap()];
    rustix::net::listen(&listeners[1], 0).unwrap();
    let _waiting = UnixStream::connect(&full).unwrap();
    // The socket of a process that has ended.
    drop(UnixListener::bind(dir.path().join("4000000003.sock")).unwrap());
    let asked = ask_all(&sockets_in(dir.path()), &Request::Nids, LIMIT);
    assert_eq!(asked.replies, [Reply::Nids(vec![])]);
    let said: Vec<_> = asked.silent.iter().map(Silent::to_string).collect();
    let want = [4_000_000_001_u32, 4_000_000_002].map(|pid| format!("process {pid} does not answer within 3000 ms"));
    assert_eq!(said, want);
    drop((control, listeners));
}

#[test]
fn slow_set_gets_its_reply_and_does_not_block_other_requests() {
    let dir = tempfile::tempdir().unwrap();
    let params = Params::new();
    let control = Control::serve_in(dir.path(), &params).unwrap();
    let ((begins, begun), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel::<()>());
    let goes_on = Mutex::new(goes_on);
    let set = move |_: &str| {
        begins.send(()).unwrap();
        // A failing test drops the sender, which ends this wait.
        let _ = goes_on.lock().recv();
        Ok(())
    };
    params.register("llite.sheen-ff00.slow", Param::text_rw(String::new, set));
    let socket = control.path().to_path_buf();
    let slow =
        thread::spawn(move || ask(&socket, &Request::Set { pattern: "llite.*.slow".into(), value: "1".into() }, LIMIT));
    begun.recv_timeout(STALL).unwrap();
    let get = Request::Get { pattern: "version".into() };
    assert!(matches!(ask(control.path(), &get, LIMIT).unwrap(), Reply::Values(_)));
    // The greeting came in time; the reply may take longer.
    thread::sleep(LIMIT);
    go_on.send(()).unwrap();
    let Reply::Results(results) = slow.join().unwrap().unwrap() else { panic!() };
    assert_eq!((results[0].errno, &results[0].fsnames[..]), (0, &["sheen".to_owned()][..]));
}

#[test]
fn request_is_not_executed_after_its_sender_timed_out() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("1.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let set = Request::Set { pattern: "a.b".into(), value: "16".into() };
    assert!(matches!(ask(&socket, &set, LIMIT), Err(NoReply::Silent(waited)) if waited == LIMIT));
    let params = Params::new();
    params.register("a.b", Param::atomic(1..=100, Arc::new(AtomicU64::new(8))));
    // The process is resumed.
    let (peer, _) = listener.accept().unwrap();
    assert!(serve_one(&peer, &params).is_err());
    assert_eq!(params.get("a.b").unwrap()[0].value, "8");
}

#[test]
fn request_for_one_file_system_does_not_change_others() {
    let params = Params::new();
    for name in ["osc.a-OST0000-osc-ff00.max", "osc.b-OST0000-osc-ff00.max", "lnet.delay_us"] {
        params.register(name, Param::atomic(1..=100, Arc::new(AtomicU64::new(8))));
    }
    params.add_device("a-OST0000", || Device::new("obdfilter", "a-OST0000", "a-OST0000_UUID"));
    let of =
        |fsname: &str, request| answer(&Request::Of { fsname: fsname.into(), request: Box::new(request) }, &params);
    let set = |pattern: &str| Request::Set { pattern: pattern.into(), value: "16".into() };
    let Reply::Results(results) = of("b", set("*.*.max")) else { panic!() };
    assert_eq!((results.len(), &results[0].name[..]), (1, "osc.b-OST0000-osc-ff00.max"));
    assert_eq!(params.get("osc.a-*.max").unwrap()[0].value, "8");
    // The process has two file systems, so its own parameters belong to neither.
    assert_eq!(of("b", set("lnet.delay_us")), Reply::Error { errno: 2 });
    let Reply::Results(results) = answer(&set("lnet.delay_us"), &params) else { panic!() };
    assert_eq!(results[0].fsnames, ["a", "b"]);
    assert_eq!(of("b", Request::Devices), Reply::Devices(vec![]));
    assert_eq!(of("b", Request::Nids), Reply::Nids(vec![]));
    assert_eq!(of("c", Request::Nids), Reply::Error { errno: 2 });
    let twice = Request::Of { fsname: "a".into(), request: Box::new(Request::Nids) };
    assert_eq!(of("a", twice), Reply::Error { errno: 71 });
    let text = r#"{"op":"of","fsname":"a","request":{"op":"set","pattern":"p","value":"1"}}"#;
    let want =
        Request::Of { fsname: "a".into(), request: Box::new(Request::Set { pattern: "p".into(), value: "1".into() }) };
    assert_eq!(serde_json::from_str::<Request>(text).unwrap(), want);
}

#[test]
fn reply_without_a_greeting_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("1.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let old = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_line(&stream, REQUEST_BYTES_MAX).unwrap();
        stream.write_all(b"{\"nids\":[\"0@lo\"]}\n").unwrap();
    });
    assert_eq!(ask(&socket, &Request::Nids, LIMIT).unwrap(), Reply::Nids(vec!["0@lo".into()]));
    old.join().unwrap();
}

#[test]
fn stale_sockets_are_removed_and_writable_directories_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(UnixListener::bind(dir.path().join("1.sock")).unwrap());
    assert_eq!(sockets_in(dir.path()).len(), 1);
    let control = Control::serve_in(dir.path(), &Params::new()).unwrap();
    assert_eq!(sockets_in(dir.path()), [control.path()]);

    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let error = Control::serve_in(&open, &Params::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn control_socket_carries_typed_values() {
    let dir = tempfile::tempdir().unwrap();
    let params = Params::new();
    let stats = Arc::new(Stats::new(&[("open", "usecs")], Time::default()));
    stats.record("open", 1000);
    let snapshot = move || stats.snapshot(Time { sec: 1, nsec: 0 });
    params.register("mdt.a-MDT0000.md_stats", Param::counters(snapshot, Snapshot::stats_text, || Ok(())));
    params.register("mdt.a-MDT0000.share", Param::percent(|| 17, |_| Ok(())));
    params.register("mdt.a-MDT0000.most", Param::u64_ro(|| u64::MAX));
    params.register("mdt.a-MDT0000.least", Param::i64(i64::MIN..=0, || i64::MIN, |_| Ok(())));
    params.register("mdt.a-MDT0000.on", Param::bool(|| true, |_| Ok(())));
    params.register("mdt.a-MDT0000.uuid", Param::text(|| "a\nb".into()));
    let control = Control::serve_in(&dir.path().join("run"), &params).unwrap();
    let request = Request::GetTyped { pattern: "mdt.*.*".into() };
    let reply = ask(control.path(), &request, LIMIT).unwrap();
    assert_eq!(reply, answer(&request, &params), "nothing is lost on the way");
    let Reply::Typed(found) = reply else { panic!() };
    let values: Vec<_> = found.iter().map(|p| (p.name.rsplit('.').next().unwrap(), &p.value)).collect();
    assert_eq!(values[0], ("least", &Value::Number(i64::MIN.into())));
    assert!(matches!(values[1], ("md_stats", Value::Counters(s)) if s.samples[0].percentile(500) == Some(1000)));
    assert_eq!(values[2..4], [("most", &Value::Number(u64::MAX.into())), ("on", &Value::Flag(true))]);
    assert_eq!((values[4].1, found[4].unit.as_deref()), (&Value::Number(17), Some("%")));
    assert_eq!(found[5].labels.target.as_deref(), Some("a-MDT0000"));
}
