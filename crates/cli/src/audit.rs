//! The audit trail of a server: a file with a line of JSON for each event.
//!
//! Events wait in a bounded queue, and one task appends them to the file. So requests never wait
//! for it, and a flood of refused connections costs no memory. Events beyond the bound, and those
//! that cannot be written, are counted; a line says how many are missing.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::Serialize;
use sheen_lnet::{Audit, Event};
use sheen_rt::{File, Instant, Rt};
use sheen_wire::{Time, Utc};
use tokio::sync::{mpsc, oneshot};

use crate::error::{Failure, Result};

/// Maximum number of events that wait to be written.
const QUEUE_MAX: usize = 4096;
/// Maximum number of events that are written at a time.
const BATCH_MAX: usize = 256;
/// Shortest time between two log lines about a file that cannot be written.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Time for which the end of the process waits until all events are written.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The audit trail of a server.
pub struct AuditFile {
    rt: Rt,
    queue: mpsc::Sender<Entry>,
    /// Number of events that are missing in the file, and not yet mentioned there.
    dropped: Arc<AtomicU64>,
}

enum Entry {
    Event(Time, Event),
    /// Answered when all earlier events are written.
    Flush(oneshot::Sender<()>),
}

impl AuditFile {
    /// Appends the events of this process to a file from now on. Creates it if it does not exist,
    /// for this user alone.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(rt: &Rt, path: &Path) -> Result<Arc<AuditFile>> {
        let file = rt.disk().open_append(path).map_err(|e| {
            Failure::new(format!("cannot open the audit trail {}: {e}", path.display()))
                .advise("--audit needs a file in an existing directory that this user may write")
        })?;
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            rt: rt.clone(),
            file,
            path: path.to_owned(),
            dropped: dropped.clone(),
            failed: false,
            reported: None,
        };
        drop(rt.spawn("audit", writer.run(entries)));
        Ok(Arc::new(AuditFile { rt: rt.clone(), queue, dropped }))
    }

    /// Waits until all recorded events are written, for up to [`FLUSH_MAX`].
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let flushed = async {
            // An error means that the runtime ends.
            if self.queue.send(Entry::Flush(done)).await.is_ok() {
                let _ = written.await;
            }
        };
        if self.rt.timeout(FLUSH_MAX, flushed).await.is_err() {
            tracing::warn!("the audit trail is not written within {FLUSH_MAX:?}: its last events are lost");
        }
    }
}

impl Audit for AuditFile {
    fn record(&self, event: Event) {
        if self.queue.try_send(Entry::Event(self.rt.wall(), event)).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

/// The task that writes the file.
struct Writer {
    rt: Rt,
    file: File,
    path: PathBuf,
    dropped: Arc<AtomicU64>,
    /// Whether the last write failed: the file may end within a line.
    failed: bool,
    /// Time of the last log line about a failure.
    reported: Option<Instant>,
}

impl Writer {
    async fn run(mut self, mut queue: mpsc::Receiver<Entry>) {
        let mut entries = Vec::new();
        while queue.recv_many(&mut entries, BATCH_MAX).await > 0 {
            self.write(&mut entries).await;
        }
    }

    async fn write(&mut self, entries: &mut Vec<Entry>) {
        let (mut text, mut flushes) = (Vec::new(), Vec::new());
        let mut count = self.dropped.swap(0, Relaxed);
        if self.failed {
            text.push(b'\n');
        }
        if count > 0 {
            append(&mut text, self.rt.wall(), &Event::Dropped { count });
        }
        for entry in entries.drain(..) {
            match entry {
                Entry::Event(time, event) => {
                    append(&mut text, time, &event);
                    count += 1;
                }
                Entry::Flush(done) => flushes.push(done),
            }
        }
        if !text.is_empty() {
            let file = self.file.clone();
            match self.rt.run_blocking(move || file.append(&text)).await {
                Ok(()) => self.failed = false,
                Err(error) => {
                    self.failed = true;
                    // Some of the events may be in the file nevertheless.
                    self.dropped.fetch_add(count, Relaxed);
                    self.report(&error);
                }
            }
        }
        for done in flushes {
            // It may have waited long enough.
            let _ = done.send(());
        }
    }

    fn report(&mut self, error: &std::io::Error) {
        let now = self.rt.now();
        if self.reported.is_none_or(|last| now.since(last) >= LINE_EVERY) {
            self.reported = Some(now);
            let (path, lost) = (self.path.display(), self.dropped.load(Relaxed));
            tracing::warn!(%path, %error, lost, "cannot write the audit trail: events are lost until it can be written");
        }
    }
}

/// Appends the line of an event.
fn append(text: &mut Vec<u8>, time: Time, event: &Event) {
    #[derive(Serialize)]
    struct Line<'a> {
        time: String,
        #[serde(flatten)]
        event: &'a Event,
    }
    // This cannot fail: all values are text or numbers.
    if let Ok(line) = serde_json::to_vec(&Line { time: utc(time), event }) {
        text.extend(line);
        text.push(b'\n');
    }
}

/// Returns a time as RFC 3339 writes it, in UTC with milliseconds.
fn utc(time: Time) -> String {
    let Utc { year, month, day, hour, minute, second, .. } = Utc::at(time.sec);
    let milli = time.nsec / 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use sheen_lnet::{Denied, Nid};
    use sheen_rt::{
        OpenOptions,
        sim::{Sim, SimConfig},
    };
    use sheen_wire::{Fid, auth::KeyId};

    use super::*;

    const PATH: &str = "/audit";

    fn refused(reason: &str) -> Event {
        let nid = Nid::Tcp(([10, 0, 0, 9], 53122).into());
        Event::RefusedConnection { nid, reason: reason.to_owned(), key: None }
    }

    fn lines(rt: &Rt) -> Vec<String> {
        let text = String::from_utf8(rt.disk().read(PATH).unwrap()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        let text = |sec, nsec| utc(Time { sec, nsec });
        assert_eq!(text(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(-1, 999_999_999), "1969-12-31T23:59:59.999Z");
        assert_eq!(text(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(1_709_164_800 + 86_399, 1_000_000), "2024-02-29T23:59:59.001Z");
        assert_eq!(text(4_107_542_400, 0), "2100-03-01T00:00:00.000Z", "2100 is no leap year");
        assert_eq!(text(1_785_576_600, 125_000_000), "2026-08-01T09:30:00.125Z");
        assert_eq!(text(253_402_300_799, 0), "9999-12-31T23:59:59.000Z");
    }

    #[test]
    fn each_kind_of_event_is_a_line_of_json() {
        let line = |event| {
            let mut text = Vec::new();
            append(&mut text, Time { sec: 1_785_576_600, nsec: 125_000_000 }, &event);
            String::from_utf8(text).unwrap()
        };
        let nid = Nid::Tcp(([10, 0, 0, 9], 53122).into());
        let key = KeyId(0x5f0c_1d2e_3a4b_5c6d);
        assert_eq!(
            line(Event::RefusedConnection { nid, reason: "it is \"new\"".to_owned(), key: Some(key) }),
            r#"{"time":"2026-08-01T09:30:00.125Z","event":"refused_connection","nid":"10.0.0.9:53122@tcp","reason":"it is \"new\"","key":"5f0c1d2e3a4b5c6d"}
"#
        );
        assert!(!line(refused("none")).contains("key"));
        assert_eq!(
            line(Event::IssuedKey { nid, key, role: "user 1000".to_owned(), uid: 1000 }),
            r#"{"time":"2026-08-01T09:30:00.125Z","event":"issued_key","nid":"10.0.0.9:53122@tcp","key":"5f0c1d2e3a4b5c6d","role":"user 1000","uid":1000}
"#
        );
        let denied = Denied {
            target: "scratch-MDT0000".to_owned(),
            nid: Nid::Lo,
            client: "c".to_owned(),
            key: None,
            role: "server".to_owned(),
            op: "open",
            error: "EACCES",
            errno: 13,
            uid: Some(1000),
            gid: Some(100),
            fid: Some(Fid::new(0x2_0000_0401, 1)),
            name: Some("line\nbreak".to_owned()),
        };
        assert_eq!(
            line(Event::Denied(Box::new(denied.clone()))),
            r#"{"time":"2026-08-01T09:30:00.125Z","event":"denied","target":"scratch-MDT0000","nid":"0@lo","client":"c","role":"server","op":"open","error":"EACCES","errno":13,"uid":1000,"gid":100,"fid":"[0x200000401:0x1:0x0]","name":"line\nbreak"}
"#
        );
        let unknown = Denied { uid: None, gid: None, fid: None, name: None, ..denied };
        assert!(line(Event::Denied(Box::new(unknown))).ends_with(",\"errno\":13}\n"));
        assert_eq!(
            line(Event::Dropped { count: 7 }),
            "{\"time\":\"2026-08-01T09:30:00.125Z\",\"event\":\"dropped\",\"count\":7}\n"
        );
    }

    #[test]
    fn events_beyond_the_queue_are_dropped_and_counted() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(async {
            let audit = AuditFile::open(&rt, Path::new(PATH)).unwrap();
            audit.record(refused("first"));
            audit.flush().await;
            assert_eq!(lines(&rt).len(), 1);
            for n in 0..QUEUE_MAX + 10 {
                audit.record(refused(&n.to_string()));
            }
            audit.flush().await;
            let lines = lines(&rt);
            assert_eq!(lines.len(), 1 + 1 + QUEUE_MAX);
            assert!(lines[1].ends_with("\"event\":\"dropped\",\"count\":10}"), "{}", lines[1]);
            for (n, line) in lines[2..].iter().enumerate() {
                assert!(line.contains(&format!("\"reason\":\"{n}\"")), "{line}");
            }
            // A new process continues the file.
            let next = AuditFile::open(&rt, Path::new(PATH)).unwrap();
            next.record(refused("next"));
            next.flush().await;
            assert_eq!(rt.disk().read(PATH).unwrap().split(|byte| *byte == b'\n').count(), 1 + lines.len() + 1);
        })
        .unwrap();
    }

    #[test]
    fn events_that_cannot_be_written_are_counted_and_later_ones_are_written() {
        let sim = Sim::new(1, SimConfig { disk_bytes: 1 << 20, ..SimConfig::default() });
        let rt = sim.rt(1);
        sim.run(async {
            let audit = AuditFile::open(&rt, Path::new(PATH)).unwrap();
            let other = rt.disk().open("/other", OpenOptions::CREATE).unwrap();
            other.write_all_at(0, &vec![1; 1 << 20]).unwrap();
            audit.record(refused("lost"));
            audit.record(refused("lost, too"));
            audit.flush().await;
            assert!(lines(&rt).is_empty(), "the disk is full");
            other.set_len(0).unwrap();
            audit.record(refused("written"));
            audit.flush().await;
            let lines = lines(&rt);
            let [end, dropped, written] = &lines[..] else { unreachable!("{lines:?}") };
            assert_eq!(end, "", "the end of a line that was perhaps cut");
            assert!(dropped.ends_with("\"event\":\"dropped\",\"count\":2}"), "{dropped}");
            assert!(written.contains("\"reason\":\"written\""), "{written}");
        })
        .unwrap();
    }

    #[test]
    fn file_that_cannot_be_opened_is_refused_with_its_name() {
        let sim = Sim::new(1, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(async {
            let failure = AuditFile::open(&rt, Path::new("/missing/audit")).err().unwrap().to_string();
            assert!(failure.starts_with("cannot open the audit trail /missing/audit: "), "{failure}");
        })
        .unwrap();
    }
}
