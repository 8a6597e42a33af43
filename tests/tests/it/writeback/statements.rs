//! The statements about write-back.

use super::*;

/// 10,000 writes of 4 KiB, and records of 47,008 bytes, are sent in few requests. The other mount
/// reads all of the data at once.
pub fn small_writes_are_sent_in_few_requests(on: &Stage<'_>) {
    for (i, layout) in LAYOUTS.into_iter().enumerate() {
        for (piece, count) in [(PIECE, 10_000), (RECORD, 500)] {
            let (data, name) = (noise(i as u64, piece * count), format!("f{i}.{piece}"));
            let file = on.create(&name, layout);
            let (start, begun) = (SystemTime::now(), Instant::now());
            let asked = on.costs(" ost_write", || on.write_in(piece, &file, &data, 0));
            let aged = aged(begun);
            let end = SystemTime::now();
            let seen = fs::metadata(on.b(&name)).unwrap();
            assert_eq!(seen.len() as usize, data.len(), "{layout}: the size as B sees it");
            let slack = Duration::from_millis(20);
            let written = seen.modified().unwrap();
            assert!(start - slack <= written && written <= end + slack, "{layout}: {start:?} {written:?} {end:?}");
            same(&all(&on.b(&name)), &data, layout);
            assert!(asked < 100 + aged, "{layout}: {asked} requests for {count} writes of {piece} bytes");
            let seen = fs::metadata(on.b(&name)).unwrap();
            assert_eq!(seen.modified().unwrap(), written, "{layout}: a flush moves no time; written until {end:?}");
            // Each object may have a page that is not full.
            let full = (data.len() / 512) as u64;
            assert!((full..full + 64).contains(&seen.blocks()), "{layout}: {} blocks for {full}", seen.blocks());
            drop(file);
            fs::remove_file(on.a(&name)).unwrap();
        }
    }
}

/// The kernel splits a write of 1 MiB in two if its memory is not page-aligned (unless
/// `fs.fuse.max_pages_limit` is raised). With a single writer, the split-write tails stay dirty.
/// With two writers that take turns, the tails have a stride, and few of them revoke a lock.
pub fn split_write_tails_cost_few_requests_and_callbacks(on: &Stage<'_>) {
    const BLOCK: usize = 1 << 20;
    const COUNT: usize = 48;
    let data = noise(5, COUNT * BLOCK + 4096);
    // Memory that is not page-aligned.
    let from = data.as_ptr().align_offset(4096) + 16;
    let data = &data[from..][..(COUNT - 1) * BLOCK];
    let write = |file: &File, i: usize| file.write_all_at(&data[i * BLOCK..][..BLOCK], (i * BLOCK) as u64).unwrap();
    let alone = on.create("alone", LAYOUTS[0]);
    let begun = Instant::now();
    let asked = on.costs(" ost_write", || (0..COUNT - 1).for_each(|i| write(&alone, i)));
    assert!(asked < COUNT as u64 + 8 + aged(begun), "{asked} requests for {COUNT} writes of a writer by itself");
    let (a, b) = (on.create("shared", LAYOUTS[0]), rw(&on.b("shared")));
    let callbacks = counted(on.two, "ldlm_bl_callback");
    (0..COUNT - 1).for_each(|i| write(if i % 2 == 0 { &a } else { &b }, i));
    let callbacks = counted(on.two, "ldlm_bl_callback") - callbacks;
    assert!(callbacks < COUNT as u64 / 2, "{callbacks} callbacks for {COUNT} writes of two in turns");
    for name in ["alone", "shared"] {
        same(&all(&on.a(name)), data, name);
        same(&all(&on.b(name)), data, name);
    }
}

/// Two mounts write records of 47,008 bytes in turn. With several objects, most records cross from
/// one to the next. The client sees the strides of the file, and requests locks ahead.
pub fn unaligned_records_of_two_mounts_cost_few_callbacks(on: &Stage<'_>) {
    const COUNT: usize = 256;
    let data = noise(6, COUNT * RECORD);
    for layout in LAYOUTS {
        let name = file_name_for(layout);
        let (a, b) = (on.create(&name, layout), rw(&on.b(&name)));
        let before = counted(on.two, "ldlm_bl_callback");
        for (i, record) in data.chunks(RECORD).enumerate() {
            let file = if i % 2 == 0 { &a } else { &b };
            file.write_all_at(record, (i * RECORD) as u64).unwrap();
        }
        let callbacks = counted(on.two, "ldlm_bl_callback") - before;
        assert!(callbacks < COUNT as u64 / 4, "{layout}: {callbacks} callbacks for {COUNT} records");
        same(&all(&on.a(&name)), &data, layout);
        same(&all(&on.b(&name)), &data, layout);
    }
}

pub fn overwrites_in_any_order_leave_the_last_data(on: &Stage<'_>) {
    const SPACE: usize = 1 << 20;
    let mut rng = fastrand::Rng::with_seed(7);
    for layout in LAYOUTS {
        let name = file_name_for(layout);
        let file = on.create(&name, layout);
        let mut want = noise(99, SPACE);
        file.write_all_at(&want, 0).unwrap();
        for round in 0..3 {
            let begun = Instant::now();
            let asked = on.costs(" ost_write", || {
                for i in 0..2000 {
                    let (at, len) = (rng.usize(..SPACE - 9000), rng.usize(1..9000));
                    let bytes = noise(round << 20 | i, len);
                    file.write_all_at(&bytes, at as u64).unwrap();
                    want[at..at + len].copy_from_slice(&bytes);
                    if i % 500 == 250 {
                        same(&read_at(&file, at as u64, len), &bytes, "A reads its own at once");
                    }
                }
            });
            let aged = aged(begun);
            same(&all(&on.b(&name)), &want, layout);
            assert!(asked < 500 + aged, "{layout}: {asked} requests for 2000 writes, {aged} for their age");
        }
    }
}

/// The stat causes a glimpse: A reports the length of the file, and keeps its locks and its dirty
/// data.
pub fn stat_elsewhere_sees_each_write_without_a_flush(on: &Stage<'_>) {
    const WRITES: u64 = 200;
    for layout in LAYOUTS {
        let name = file_name_for(layout);
        let file = on.create(&name, layout);
        let data = noise(3, PIECE);
        let grow = |i: u64| file.write_all_at(&data, i * PIECE as u64).unwrap();
        // A takes its locks, B caches the file.
        (0..40).for_each(grow);
        let open = File::open(on.b(&name)).unwrap();
        let (callbacks, glimpses) = (counted(on.two, "ldlm_bl_callback"), counted(on.two, "ldlm_gl_callback"));
        let begun = Instant::now();
        let asked = on.costs(" ost_write", || {
            for i in 40..40 + WRITES {
                grow(i);
                let len = (i + 1) * PIECE as u64;
                assert_eq!(fs::metadata(on.b(&name)).unwrap().len(), len, "{layout}: by name");
                assert_eq!(open.metadata().unwrap().len(), len, "{layout}: an open file");
            }
        });
        let aged = aged(begun);
        assert!(
            asked < WRITES / 2 + aged,
            "{layout}: {asked} of {WRITES} writes reached the OSTs, {aged} for their age"
        );
        let more = counted(on.two, "ldlm_bl_callback") - callbacks;
        assert!(more < WRITES / 10, "{layout}: {more} blocking callbacks to A");
        assert!(counted(on.two, "ldlm_gl_callback") > glimpses, "{layout}: A got glimpses");
        assert_eq!(mtime(&on.a(&name)), mtime(&on.b(&name)), "{layout}: and both see the same time");
        let blocks = fs::metadata(on.b(&name)).unwrap().blocks();
        assert!(blocks >= (40 + WRITES) * 8, "{layout}: the space of dirty data counts: {blocks} blocks");
    }
}

/// Also while dirty data is on its way to the OSTs.
pub fn sizes_never_shrink_while_a_file_grows(on: &Stage<'_>) {
    for layout in LAYOUTS {
        let name = file_name_for(layout);
        let file = on.create(&name, layout);
        let (begun, done, race) = (AtomicU64::new(0), AtomicU64::new(0), Race::new([at_least(1)]));
        thread::scope(|scope| {
            let writes = race.party(0);
            for seen in [on.b(&name), on.a(&name)] {
                let (begun, done, race, layout) = (&begun, &done, &race, layout);
                scope.spawn(move || {
                    while race.goes_on() {
                        let least = done.load(SeqCst);
                        let len = fs::metadata(&seen).unwrap().len();
                        let most = begun.load(SeqCst);
                        assert!((least..=most).contains(&len), "{layout}: {len} is not in {least}..={most}");
                    }
                });
            }
            let data = noise(5, RECORD);
            for i in 1..=600 {
                let len = i * RECORD as u64;
                begun.store(len, SeqCst);
                file.write_all_at(&data, len - RECORD as u64).unwrap();
                done.store(len, SeqCst);
            }
            writes.did_one();
        });
    }
}

type ReadMethod = (&'static str, fn(&Path) -> Vec<u8>);

fn read_methods() -> [ReadMethod; 5] {
    [
        ("read", |p| all(p)),
        ("O_DIRECT", |p| read_at(&direct(p), 0, LEN)),
        ("a mapping", |p| Map::new(&rw(p), LEN).read(0, LEN)),
        ("cat", |p| sheen_tests::output(Command::new("cat").arg(p)).stdout),
        ("copy_file_range", |p| {
            let (from, to) = (File::open(p).unwrap(), p.with_extension("copy"));
            let copy = File::create(&to).unwrap();
            while rustix::fs::copy_file_range(&from, None, &copy, None, LEN).unwrap() > 0 {}
            all(&to)
        }),
    ]
}

/// Overwrites and extends a cached file in pieces that stay dirty, and reads it from `seen` by each
/// method.
fn check_all_read_methods(on: &Stage<'_>, seen: &Path) {
    for layout in LAYOUTS {
        let name = file_name_for(layout);
        let file = on.create(&name, layout);
        let seen = seen.join(&name);
        let mut want = noise(1, LEN);
        file.write_all_at(&want, 0).unwrap();
        for (i, (way, look)) in read_methods().into_iter().enumerate() {
            for round in 0..ROUNDS {
                same(&look(&seen), &want, way);
                let (at, len) = (rng_of(i as u64, round).usize(..LEN / 2), LEN / 3);
                let bytes = noise(round * 10 + i as u64, len);
                on.write_in(2999, &file, &bytes, at as u64);
                want[at..at + len].copy_from_slice(&bytes);
                same(&look(&seen), &want, &format!("{layout}: {way}, round {round}"));
            }
        }
    }
    on.assert_data_was_dirty();
}

fn rng_of(a: u64, b: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(a << 32 | b)
}

pub fn dirty_data_is_read_on_the_other_mount(on: &Stage<'_>) {
    check_all_read_methods(on, &on.at.b);
}

pub fn dirty_data_is_read_on_the_same_mount(on: &Stage<'_>) {
    check_all_read_methods(on, &on.at.a);
    // Through the descriptor that wrote, after a seek of its own.
    let mut file = on.create("own", "-c 4 -S 64K");
    let data = noise(4, LEN);
    file.write_all(&data[..10]).unwrap();
    data[10..].chunks(1000).for_each(|bytes| file.write_all(bytes).unwrap());
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), LEN as u64);
    file.rewind().unwrap();
    let mut back = Vec::new();
    file.read_to_end(&mut back).unwrap();
    same(&back, &data, "its own");
}

pub fn seek_data_and_seek_hole_find_dirty_data(on: &Stage<'_>) {
    // A slow machine may flush all data before the seeks. Then the round proves little.
    eventually("some data is dirty during the seeks", || check_data_and_holes(on) > 0);
}

/// Returns the bytes that were dirty at the seeks.
fn check_data_and_holes(on: &Stage<'_>) -> u64 {
    const FAR: u64 = 1 << 20;
    let piece = noise(1, PIECE);
    let mut dirty = 0;
    for seen in [&on.at.b, &on.at.a] {
        for layout in LAYOUTS {
            let name = file_name_for(layout);
            let _ = fs::remove_file(on.a(&name));
            let file = on.create(&name, layout);
            for i in 0..4 {
                file.write_all_at(&piece, i * FAR).unwrap();
            }
            file.write_all_at(&piece, 3 * FAR + 65_536).unwrap();
            dirty += on.dirty_bytes();
            let file = File::open(seen.join(&name)).unwrap();
            let seek = |from| rustix::fs::seek(&file, from);
            for i in 1..4 {
                let (start, end) = (i * FAR, i * FAR + PIECE as u64);
                assert_eq!(seek(Where::Data(start - 8192)).unwrap(), start, "{layout}: the next data");
                assert_eq!(seek(Where::Hole(start)).unwrap(), end, "{layout}: the next hole");
            }
            let last = 3 * FAR + 65_536;
            assert_eq!(seek(Where::Data(3 * FAR + 8192)).unwrap(), last, "{layout}: the last data");
            assert_eq!(seek(Where::Data(last + PIECE as u64)).unwrap_err(), Errno::NXIO, "{layout}: no more");
        }
    }
    dirty
}

pub fn truncate_applies_to_dirty_data(on: &Stage<'_>) {
    for (cutter, layout) in LAYOUTS.into_iter().flat_map(|l| [(&on.at.b, l), (&on.at.a, l)]) {
        let name = file_name_for(layout);
        let _ = fs::remove_file(on.a(&name));
        let file = on.create(&name, layout);
        file.write_all_at(b"x", 0).unwrap();
        for (round, cut) in [0, 1, 4096, 65_537, 200_001].into_iter().enumerate() {
            let mut want = noise(round as u64, LEN);
            on.write_in(PIECE, &file, &want, 0);
            rw(&cutter.join(&name)).set_len(cut as u64).unwrap();
            let sizes = [on.a(&name), on.b(&name)].map(|p| fs::metadata(p).unwrap().len());
            assert_eq!(sizes, [cut as u64; 2], "{layout}: cut to {cut}");
            same(&all(&on.b(&name)), &want[..cut], layout);
            // A continues to write behind its data.
            on.write_in(PIECE, &file, b"goes on", LEN as u64);
            want[cut..].fill(0);
            want.extend(b"goes on");
            same(&all(&on.b(&name)), &want, &format!("{layout}: zeros from {cut}"));
            same(&all(&on.a(&name)), &want, &format!("{layout}: also here"));
        }
        on.write_in(PIECE, &file, &noise(8, LEN), 0);
        File::create(cutter.join(&name)).unwrap();
        let sizes = [on.a(&name), on.b(&name)].map(|p| fs::metadata(p).unwrap().len());
        assert_eq!(sizes, [0, 0], "{layout}: O_TRUNC");
    }
    on.assert_data_was_dirty();
}

pub fn punch_applies_to_dirty_data(on: &Stage<'_>) {
    for (puncher, layout) in LAYOUTS.into_iter().flat_map(|l| [(&on.at.b, l), (&on.at.a, l)]) {
        let name = file_name_for(layout);
        let _ = fs::remove_file(on.a(&name));
        let file = on.create(&name, layout);
        file.write_all_at(b"x", 0).unwrap();
        let mut want = noise(2, LEN);
        for (from, len) in [(10, 100), (60_000, 10_000), (131_072, 65_536), (200_001, 99_000)] {
            on.write_in(PIECE, &file, &want, 0);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(rw(&puncher.join(&name)), flags, from as u64, len as u64).unwrap();
            want[from..from + len].fill(0);
            same(&all(&on.b(&name)), &want, &format!("{layout}: {len} bytes from {from}"));
            same(&read_at(&file, 0, LEN), &want, &format!("{layout}: also here"));
        }
    }
    on.assert_data_was_dirty();
}

pub fn appends_land_behind_dirty_data(on: &Stage<'_>) {
    for (appender, layout) in LAYOUTS.into_iter().flat_map(|l| [(&on.at.b, l), (&on.at.a, l)]) {
        let name = file_name_for(layout);
        let _ = fs::remove_file(on.a(&name));
        let file = on.create(&name, layout);
        let mut tail = OpenOptions::new().append(true).open(appender.join(&name)).unwrap();
        let mut want = Vec::new();
        for round in 0..ROUNDS {
            let more = noise(round, 100_000);
            on.write_in(999, &file, &more, want.len() as u64);
            tail.write_all(b"the tail").unwrap();
            want.extend(more);
            want.extend(b"the tail");
            same(&all(&on.b(&name)), &want, &format!("{layout}, round {round}"));
            same(&all(&on.a(&name)), &want, &format!("{layout}, round {round}: also here"));
        }
    }
    on.assert_data_was_dirty();
}

/// After this time, the present time differs from an earlier one.
const LATER: Duration = Duration::from_millis(100);

pub fn flush_does_not_move_modification_times(on: &Stage<'_>) {
    let file = on.create("f", "-c 4 -S 64K");
    file.write_all_at(b"x", 0).unwrap();
    on.write_in(PIECE, &file, &noise(1, LEN), 0);
    let (b, a) = (mtime(&on.b("f")), mtime(&on.a("f")));
    assert_eq!(a, b, "both see the time of the last write");
    on.wait_until_written();
    assert_eq!([mtime(&on.a("f")), mtime(&on.b("f"))], [a, a], "a flush does not move the time");
    on.write_in(PIECE, &file, &noise(2, LEN), 0);
    let (b, a) = (mtime(&on.b("f")), mtime(&on.a("f")));
    let_pass(LATER);
    file.sync_all().unwrap();
    assert_eq!([mtime(&on.a("f")), mtime(&on.b("f"))], [a, b], "neither does an fsync");
    drop(file);
    assert_eq!([mtime(&on.a("f")), mtime(&on.b("f"))], [a, a], "nor a close");
    on.assert_data_was_dirty();
}

pub fn explicitly_set_time_survives_a_flush(on: &Stage<'_>) {
    let past = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    let times = || [mtime(&on.a("f")), mtime(&on.b("f"))];
    let file = on.create("f", "-c 4 -S 64K");
    file.write_all_at(b"x", 0).unwrap();
    for setter in [&on.at.a, &on.at.b] {
        on.write_in(PIECE, &file, &noise(1, LEN), 0);
        File::open(setter.join("f")).unwrap().set_modified(past).unwrap();
        let set = [(1_000_000_000, 5); 2];
        assert_eq!(times(), set, "as it was set");
        on.wait_until_written();
        let_pass(LATER);
        assert_eq!(times(), set, "a flush does not move the time");
        file.sync_all().unwrap();
        assert_eq!(times(), set, "also after an fsync");
        file.write_all_at(b"y", 1).unwrap();
        let [a, b] = times();
        assert!(a.0 > 1_000_000_000 && a == b, "a write is newer: {a:?} {b:?}");
    }
}

/// Names are changed by other processes, on the same mount and on the other one.
pub fn dirty_data_follows_renames_links_and_unlinks(on: &Stage<'_>) {
    let bash = |dir: &Path, script: &str| {
        let mut command = Command::new("bash");
        command.args(["-ec", script]).current_dir(dir).env("PATH", std::env::var_os("PATH").unwrap());
        sheen_tests::run_command(command).ok()
    };
    for other in [&on.at.a, &on.at.b] {
        let file = on.create("f", "-c 4 -S 64K");
        file.write_all_at(b"x", 0).unwrap();
        let mut want = noise(1, LEN);
        on.write_in(PIECE, &file, &want, 0);
        bash(other, "mv f g && ln g h");
        same(&all(&other.join("g")), &want, "under its new name");
        on.write_in(PIECE, &file, b"renamed", 70_000);
        want[70_000..70_007].copy_from_slice(b"renamed");
        same(&all(&other.join("h")), &want, "under another one");
        assert_eq!(bash(other, "stat -c %s h; wc -c < g"), format!("{LEN}\n{LEN}\n"));
        on.write_in(PIECE, &file, b"once more", 140_000);
        want[140_000..140_009].copy_from_slice(b"once more");
        let mut again = rw(&other.join("h"));
        bash(other, "rm g h");
        let mut back = Vec::new();
        again.read_to_end(&mut back).unwrap();
        same(&back, &want, "without any name");
        on.write_in(PIECE, &file, b"unlinked", 200_000);
        want[200_000..200_008].copy_from_slice(b"unlinked");
        same(&read_at(&again, 0, LEN), &want, "written without any name");
        fs::write(other.join("f"), "another one").unwrap();
        same(&read_at(&file, 0, LEN), &want, "a new file of the same name changes nothing");
        bash(other, "rm f");
    }
    on.assert_data_was_dirty();
}

/// Each of four processes writes every fourth part of the file, through a descriptor of its own.
pub fn processes_share_the_dirty_data_of_one_file(on: &Stage<'_>) {
    const PART: usize = 100;
    const PARTS: usize = 2000;
    let script = format!(
        "
import os, sys
me = int(sys.argv[2]); fd = os.open(sys.argv[1], os.O_RDWR)
for i in range(me, {PARTS}, 4):
    part = bytes([1 + i % 251]) * {PART}
    assert os.pwrite(fd, part, i * {PART}) == {PART}
    assert os.pread(fd, {PART}, i * {PART}) == part, i
"
    );
    // Two processes on each mount; then all four on one mount.
    for (name, dirs) in [("f", [&on.at.a, &on.at.b]), ("g", [&on.at.a, &on.at.a])] {
        on.create(name, "-c 4 -S 64K").write_all_at(b"x", 0).unwrap();
        let start = |me: usize| {
            let mut command = Command::new("python3");
            command.args(["-c", &script]).arg(dirs[me % 2].join(name)).arg(me.to_string());
            command.stdin(Stdio::null()).spawn().unwrap()
        };
        for mut child in (0..4).map(start).collect::<Vec<_>>() {
            assert!(child.wait().unwrap().success(), "{name}: each reads what it wrote");
        }
        let want: Vec<u8> = (0..PARTS).flat_map(|i| [1 + (i % 251) as u8; PART]).collect();
        same(&all(&on.b(name)), &want, "B");
        same(&all(&on.a(name)), &want, "A");
    }
}

/// Dirty data that no program can read any more need not be sent. A mount that removes a file knows
/// this if only the mount itself has it open.
pub fn dirty_data_of_deleted_files_is_discarded(on: &Stage<'_>) {
    let before = objects(&on.two.fs);
    for remover in [&on.at.a, &on.at.b] {
        let bytes = noise(1, 8 << 20);
        // A slow machine may flush all data before the removal.
        eventually("less than 6 of the 8 MiB of a file that A removes are sent", || {
            let file = on.create("f", "-c 4 -S 64K");
            file.write_all_at(b"x", 0).unwrap();
            let start = sent(on.two);
            on.write_in(65_536, &file, &bytes, 0);
            fs::remove_file(remover.join("f")).unwrap();
            drop(file);
            // Data that is being sent counts until the reply.
            eventually("the objects are destroyed, and no data is dirty", || {
                objects(&on.two.fs) <= before && on.dirty_bytes() == 0
            });
            let sent = sent(on.two) - start;
            println!("{sent} bytes were sent");
            remover != &on.at.a || sent < 6 << 20
        });
    }
}

pub fn dirty_data_stays_below_max_dirty_mb(on: &Stage<'_>) {
    set(on.two, "osc.{}-*.max_dirty_mb=1");
    let most = AtomicU64::new(0);
    for (layout, piece) in [("-c 1", 16_384), ("-c 4 -S 64K", RECORD)] {
        let name = format!("f{piece}");
        let (file, data) = (on.create(&name, layout), noise(1, 64 << 20));
        let race = Race::new([at_least(1)]);
        thread::scope(|scope| {
            let writes = race.party(0);
            scope.spawn(|| {
                while race.goes_on() {
                    let now = numbers(on.two, "osc.{}-*.cur_dirty_bytes").into_iter().max().unwrap_or(0);
                    most.fetch_max(now, SeqCst);
                }
            });
            on.write_in(piece, &file, &data, 0);
            writes.did_one();
        });
        assert!(total(on.two, "osc.{}-*.cur_grant_bytes") > 0, "the grant is shown");
        same(&all(&on.b(&name)), &data, layout);
        fs::remove_file(on.a(&name)).unwrap();
    }
    let most = most.load(SeqCst);
    assert!((1..=1 << 20).contains(&most), "{most} bytes are dirty for one OSC");
    set(on.two, "osc.{}-*.max_dirty_mb=64");
}

pub fn writeback_0_sends_each_write_at_once(on: &Stage<'_>) {
    set(on.two, "llite.{}-*.writeback=0");
    let file = on.create("f", "-c 1");
    let data = noise(1, 100 * PIECE);
    let write = |_| on.write_in(PIECE, &file, &data, 0);
    on.two.cost_settles("each write is a request", write, |asked| of_kind(asked, " ost_write") == 100);
    assert_eq!(on.dirty_bytes(), 0);
    same(&all(&on.b("f")), &data, "B");
    set(on.two, "llite.{}-*.writeback=1");
    on.two.cost_settles("with write-back, writes share requests", write, |asked| of_kind(asked, " ost_write") < 20);
}
