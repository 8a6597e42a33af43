//! Peers that send anything: random bytes, and frames of a recorded session with flipped bits, cut
//! or in another order. A thousand further connections send nothing. The server must live, its
//! memory stay bounded, and its mounts work, both with keys and without authentication, where the
//! frames reach the services.
//!
//! `SHEEN_SOAK_CYCLES` sets the number of hostile connections for each kind of server (2,000).
//! `SOAK_SEED` sets the seed.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use sheen_tests::{Fs, can_mount, run_command, sheen, wait::eventually};
use sheen_wire::{bulk::BULK_BYTES_MAX, frame::HEADER_LEN};

/// Connections that send nothing.
const IDLE: usize = 1000;
/// Largest growth of the server's memory, in KiB: its connections' buffers, and the idle buffers
/// that a process retains.
const GROWTH_MAX_KIB: u64 = 192 << 10;
/// Time in which a server must close the connection of a peer that sends nothing more. Longer than
/// its own limits, which are 5 s for a stranger.
const CLOSED_WITHIN: Duration = Duration::from_secs(90);

fn cycles() -> usize {
    std::env::var("SHEEN_SOAK_CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(2000)
}

fn memory_kib(fs: &Fs) -> u64 {
    let pid = fs.status()["pid"].as_u64().expect("it runs");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Copies what comes from one end to the other, and records it.
fn pass_on(mut from: TcpStream, mut to: TcpStream, record: Option<Arc<Mutex<Vec<u8>>>>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if let Some(record) = &record {
            record.lock().expect("no panic").extend(&bytes[..n]);
        }
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Records what `sheen lctl ping` and a mount send to the server at `addr`: their frames, in order.
fn recorded(fs: &Fs, addr: SocketAddr, options: &[&str]) -> Vec<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let near = listener.local_addr().expect("it listens");
    let record = Arc::new(Mutex::new(Vec::new()));
    let of_clients = record.clone();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(addr) else { return };
            let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { return };
            let record = of_clients.clone();
            thread::spawn(move || pass_on(from, to, Some(record)));
            thread::spawn(move || pass_on(server, client, None));
        }
    });
    let mut ping = Command::new(sheen());
    ping.args(["lctl", "ping", &format!("{near}@tcp"), "1"]);
    run_command(ping);
    let at = fs.base.join("recorded");
    let mut mount = Command::new(sheen());
    mount.arg("mount").args(options).arg(format!("{near}@tcp:/sheen")).arg(&at);
    if run_command(mount).code == 0 {
        let mut umount = Command::new(sheen());
        umount.arg("umount").arg(&at);
        run_command(umount).ok();
    }
    let bytes = record.lock().expect("no panic").clone();
    frames(&bytes)
}

/// Splits recorded bytes into frames. The streams of several connections may be mixed: the rest
/// after the first byte that begins no frame is one piece.
fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut frames, mut rest) = (Vec::new(), bytes);
    while let Some(head) = rest.first_chunk::<HEADER_LEN>() {
        let Ok((header, _)) = sheen_wire::frame::Header::decode(head) else { break };
        let len = HEADER_LEN + header.body_len as usize + header.bulk_len as usize;
        let Some((frame, after)) = rest.split_at_checked(len) else { break };
        frames.push(frame.to_vec());
        rest = after;
    }
    if !rest.is_empty() {
        frames.push(rest.to_vec());
    }
    frames
}

/// Returns the bytes of one hostile connection.
fn hostile(random: &mut fastrand::Rng, session: &[Vec<u8>]) -> Vec<u8> {
    let mut frames = session.to_vec();
    match random.u32(0..6) {
        0 => return (0..random.usize(0..8192)).map(|_| random.u8(..)).collect(),
        1 => random.shuffle(&mut frames),
        2 => frames.truncate(random.usize(0..=frames.len())),
        3 => frames.iter_mut().for_each(|frame| frame.truncate(random.usize(0..=frame.len()))),
        4 => frames.extend(session.to_vec()),
        _ => {
            // The largest lengths, behind a valid magic and version.
            let mut head = frames.first().cloned().unwrap_or_default();
            head.resize(HEADER_LEN, 0);
            let bulk = (BULK_BYTES_MAX as u32).to_le_bytes();
            head[36..40].copy_from_slice(&random.u32(..).to_le_bytes());
            head[40..44].copy_from_slice(&bulk);
            frames = vec![head];
        }
    }
    let mut bytes = frames.concat();
    for _ in 0..random.usize(0..4) {
        if !bytes.is_empty() {
            let at = random.usize(0..bytes.len());
            bytes[at] ^= 1 << random.u32(0..8);
        }
    }
    bytes
}

/// Sends the bytes, and waits until the server closes the connection.
fn attack(addr: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_read_timeout(Some(CLOSED_WITHIN)).expect("a valid time");
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = vec![0; 1 << 16];
    loop {
        match stream.read(&mut answer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock) => {
                panic!("the server has not closed a connection after {CLOSED_WITHIN:?}")
            }
            Err(_) => return,
        }
    }
}

/// Attacks one file system.
fn besiege(options: &[&str], mount_options: &[&str]) {
    let fs = Fs::up_in(Path::new("/dev/shm"), 2, options);
    let source = fs.source();
    let addr: SocketAddr = source.split("@tcp").next().and_then(|a| a.parse().ok()).expect("an address");
    fs.sh("echo mine > f").ok();
    let session = recorded(&fs, addr, mount_options);
    assert!(session.len() > 1, "too few frames to change: {}", session.len());
    let seed = std::env::var("SOAK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("SOAK_SEED={seed}, {} frames recorded", session.len());
    let before = memory_kib(&fs);
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..cycles() {
        attack(addr, &hostile(&mut random, &session));
    }
    // They take the places of all strangers for some seconds.
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(addr).expect("the server listens")).collect();
    for _ in 0..IDLE {
        attack(addr, &hostile(&mut random, &session));
    }
    let grown = memory_kib(&fs).saturating_sub(before);
    println!("{} idle and {} hostile connections: {grown} KiB", idle.len(), cycles());
    assert!(grown < GROWTH_MAX_KIB, "the server's memory has grown by {grown} KiB");
    drop(idle);
    assert_eq!(fs.sh("cat f; echo more >> f; cat f").ok(), "mine\nmine\nmore\n");
    eventually("a further mount succeeds", || {
        let at = fs.base.join("mnt2");
        let mut mount = Command::new(sheen());
        mount.arg("mount").args(mount_options).arg(&source).arg(&at);
        run_command(mount).code == 0 && fs::read_to_string(at.join("f")).is_ok_and(|text| text == "mine\nmore\n")
    });
    let mut umount = Command::new(sheen());
    umount.arg("umount").arg(fs.base.join("mnt2"));
    run_command(umount).ok();
}

#[test]
fn hostile_peers_do_not_disturb_a_server_with_a_key() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    besiege(&["--allow-relays"], &[]);
}

#[test]
fn hostile_peers_do_not_disturb_a_server_without_authentication() {
    if !can_mount() {
        return println!("skipped: /dev/fuse cannot be opened here");
    }
    besiege(&["--auth", "none"], &["-o", "auth=none"]);
}
