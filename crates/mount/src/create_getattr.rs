//! Reply to the GETATTR that the kernel sends for a file that it has just created.
//!
//! If other clients may already change a new file, the kernel may not cache the attributes of the
//! CREATE reply. So it requests them again for its permission check, before open(2) returns. Until
//! then the opening thread does nothing else. Its first GETATTR is therefore that request, only the
//! permission check sees the reply, and the attributes of the CREATE reply are good enough.
//! Otherwise each new file would cost a query of its objects.

use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_client::EntryAttr;
use sheen_rt::Instant;
use sheen_wire::{Attr, Fid};

/// Most threads that are remembered. Beyond that, some of these requests query the objects.
const THREADS_MAX: usize = 1024;
/// Longest time between both requests; far more than a running thread takes.
const RECORDED_FOR: Duration = Duration::from_secs(1);

/// Attributes of CREATE replies, by the thread that sent the request.
#[derive(Default)]
pub struct CreateReplies(Mutex<FxHashMap<u32, CreateReply>>);

struct CreateReply {
    attr: Attr,
    at: Instant,
}

impl CreateReplies {
    /// Records the attributes of a CREATE reply to thread `pid`, which may not be cached. 0 stands
    /// for a thread of another pid namespace, and is ignored.
    pub fn record(&self, pid: u32, attr: &Attr, now: Instant) {
        if pid == 0 {
            return;
        }
        let mut recorded = self.0.lock();
        if recorded.len() >= THREADS_MAX {
            recorded.clear();
        }
        recorded.insert(pid, CreateReply { attr: *attr, at: now });
    }

    /// Returns the recorded attributes if thread `pid` asks while it is still creating this file.
    pub fn take(&self, pid: u32, fid: Fid, now: Instant) -> Option<EntryAttr> {
        let recorded = self.0.lock().remove(&pid)?;
        (recorded.attr.fid == fid && now.since(recorded.at) < RECORDED_FOR).then(|| recorded.attr.into())
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::{FileKind, Time};

    use super::*;

    fn attr(fid: Fid) -> Attr {
        Attr::new(fid, FileKind::Regular, 0o644, Time::default())
    }

    #[test]
    fn only_first_getattr_of_creating_thread_gets_create_attributes() {
        let (replies, now, late) = (CreateReplies::default(), Instant::ZERO, Instant::ZERO + RECORDED_FOR);
        let (f, g) = (Fid::new(7, 1), Fid::new(7, 2));
        let asked = |pid, fid, at| replies.take(pid, fid, at).map(|entry| entry.attr.fid);
        replies.record(1, &attr(f), now);
        assert_eq!((asked(2, f, now), asked(1, f, now), asked(1, f, now)), (None, Some(f), None));
        replies.record(1, &attr(f), now);
        assert_eq!((asked(1, g, now), asked(1, f, now)), (None, None), "the thread went on to another file");
        replies.record(1, &attr(f), now);
        assert_eq!(asked(1, f, late), None);
        replies.record(0, &attr(f), now);
        assert_eq!(asked(0, f, now), None);
        (1..=THREADS_MAX as u32 + 1).for_each(|pid| replies.record(pid, &attr(f), now));
        assert!(replies.0.lock().len() <= THREADS_MAX);
    }
}
