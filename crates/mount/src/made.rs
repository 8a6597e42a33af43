//! The kernel's question about a file that it has just made.
//!
//! What CREATE answers of a file that others may already change must not be kept, so the kernel
//! asks once more, before open(2) returns: its check of permissions wants attributes. Until then
//! the thread that opens does nothing else. So its first GETATTR is that question, nobody but the
//! check sees the answer, and what CREATE has said will do. Without this each new file would cost a
//! look at its objects.

use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sheen_client::EntryAttr;
use sheen_rt::Instant;
use sheen_wire::{Attr, Fid};

/// Threads that are remembered; beyond that some questions are answered the long way.
const THREADS_MAX: usize = 1024;
/// How long; far more than a thread that runs takes to ask.
const SAID_FOR: Duration = Duration::from_secs(1);

/// What CREATE has answered, by the thread that asked.
#[derive(Default)]
pub struct Made(Mutex<FxHashMap<u32, Said>>);

struct Said {
    attr: Attr,
    at: Instant,
}

impl Made {
    /// CREATE is answered to thread `pid` with attributes that are not to be kept. 0 is a thread
    /// that has no number here.
    pub fn say(&self, pid: u32, attr: &Attr, now: Instant) {
        if pid == 0 {
            return;
        }
        let mut said = self.0.lock();
        if said.len() >= THREADS_MAX {
            said.clear();
        }
        said.insert(pid, Said { attr: *attr, at: now });
    }

    /// The answer to thread `pid` if it asks while it is still making this file.
    pub fn take(&self, pid: u32, fid: Fid, now: Instant) -> Option<EntryAttr> {
        let said = self.0.lock().remove(&pid)?;
        (said.attr.fid == fid && now.since(said.at) < SAID_FOR).then(|| said.attr.into())
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::{FileKind, Time};

    use super::*;

    fn attr(fid: Fid) -> Attr {
        let (kind, t) = (FileKind::Regular, Time::default());
        Attr {
            fid,
            kind,
            perm: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: t,
            mtime: t,
            ctime: t,
            btime: t,
            mtime_set: t,
        }
    }

    #[test]
    fn only_the_first_question_of_the_thread_that_made_the_file_is_answered() {
        let (made, now, late) = (Made::default(), Instant::ZERO, Instant::ZERO + SAID_FOR);
        let (f, g) = (Fid::new(7, 1), Fid::new(7, 2));
        let asked = |pid, fid, at| made.take(pid, fid, at).map(|entry| entry.attr.fid);
        made.say(1, &attr(f), now);
        assert_eq!((asked(2, f, now), asked(1, f, now), asked(1, f, now)), (None, Some(f), None));
        made.say(1, &attr(f), now);
        assert_eq!((asked(1, g, now), asked(1, f, now)), (None, None), "it is past that");
        made.say(1, &attr(f), now);
        assert_eq!(asked(1, f, late), None);
        made.say(0, &attr(f), now);
        assert_eq!(asked(0, f, now), None);
        (1..=THREADS_MAX as u32 + 1).for_each(|pid| made.say(pid, &attr(f), now));
        assert!(made.0.lock().len() <= THREADS_MAX);
    }
}
