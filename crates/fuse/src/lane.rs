//! Requests that came over a ring, and the way back of their replies.
//!
//! An [`Entry`] is a request's ring entry while user space has it. Any thread may answer it: the
//! thread writes the reply into the entry's memory and hands the entry back over the [`Lane`] of
//! its ring thread. The ring thread, the only one that may submit, commits it to the kernel.
//!
//! The data of a large WRITE is not copied out of the entry ([`Entry::lend`]). Such an entry is
//! committed when it has a reply and the data is dropped.
//!
//! A ring thread that waits in the kernel is woken by an eventfd. A thread that is awake, for
//! example because it answers the request itself, finds the entry before it waits again.

use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use sheen_wire::Errno;

use crate::{counters::Counters, pipe::FileRun, slot::Slot};

/// State that a ring thread shares with the threads that answer its requests.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Lane {
    state: Mutex<State>,
    wake: OwnedFd,
    pub(crate) counters: Counters,
    /// Entries that hold a request without a reply.
    in_use: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Answered entries, not yet committed.
    answered: Vec<Slot>,
    /// The ring thread waits, or is about to wait, in the kernel.
    asleep: bool,
    /// The session has ended: nothing is committed any more.
    closed: bool,
}

impl Lane {
    pub(crate) fn new() -> std::io::Result<Arc<Lane>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Lane { state: Mutex::default(), wake, counters: Counters::default(), in_use: AtomicU64::new(0) }))
    }

    /// Returns the eventfd that wakes the ring thread.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Moves the answered entries to `into`. With `asleep` the next answer wakes the thread.
    /// Returns false after [`Lane::close`].
    pub(crate) fn take(&self, into: &mut Vec<Slot>, asleep: bool) -> bool {
        let mut state = self.state.lock();
        into.append(&mut state.answered);
        state.asleep = asleep;
        !state.closed
    }

    /// Notes that the ring thread no longer waits, so that answers need not wake it.
    pub(crate) fn awake(&self) {
        self.state.lock().asleep = false;
    }

    /// Ends the ring thread. Later replies are lost.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.asleep = true;
        self.rouse(&mut state);
    }

    /// Returns the number of entries that hold a request without a reply.
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use.load(Relaxed)
    }

    fn answer(&self, slot: Slot) -> Result<(), Errno> {
        self.in_use.fetch_sub(1, Relaxed);
        let mut state = self.state.lock();
        if state.closed {
            return Err(Errno::ENODEV);
        }
        state.answered.push(slot);
        self.rouse(&mut state);
        Ok(())
    }

    fn rouse(&self, state: &mut State) {
        if std::mem::take(&mut state.asleep) {
            // Fails only if 2^64 - 2 wake-ups are unread.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// The ring entry of a request without a reply.
#[derive(Debug)]
pub(crate) struct Entry {
    slot: Slot,
    lane: Arc<Lane>,
}

impl Entry {
    /// Wraps the slot of a request that the kernel has just delivered.
    pub(crate) fn new(slot: Slot, lane: Arc<Lane>) -> Entry {
        lane.in_use.fetch_add(1, Relaxed);
        Entry { slot, lane }
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Lends `range` of the entry's memory: data of its request.
    pub(crate) fn lend(self, range: Range<usize>) -> (Lent, Bytes) {
        let lent = Arc::new(Lender { entry: Some(self), reply: OnceLock::new() });
        (Lent(lent.clone()), Bytes::from_owner(Loan { lent, range }))
    }

    /// Answers with `error` (0 or a negative errno) and these bytes.
    pub(crate) fn reply(mut self, error: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        let mut room = self.slot.payload_mut();
        let mut len = 0;
        for part in parts {
            let Some((place, rest)) = room.split_at_mut_checked(part.len()) else {
                // Longer than the kernel asked for.
                return self.commit(-Errno::EIO.0, 0).and(Err(Errno::EINVAL));
            };
            place.copy_from_slice(part);
            len += part.len();
            room = rest;
        }
        self.commit(error, len)
    }

    /// Answers with bytes of files. Returns the entry unanswered if the files have fewer bytes or
    /// the entry has too little room.
    pub(crate) fn reply_from_files(mut self, runs: &[FileRun<'_>]) -> Result<Result<(), Errno>, Entry> {
        let room = self.slot.payload_mut();
        let mut len = 0;
        for run in runs {
            let place = room.get_mut(len..).and_then(|rest| rest.get_mut(..run.len));
            if !place.is_some_and(|place| read_whole(run, place)) {
                return Err(self);
            }
            len += run.len;
        }
        self.lane.counters.bytes_copied.fetch_add(len as u64, Relaxed);
        Ok(self.commit(0, len))
    }

    fn commit(mut self, error: i32, payload: usize) -> Result<(), Errno> {
        self.slot.set_reply(error, payload);
        self.lane.counters.bytes_out.fetch_add(payload as u64, Relaxed);
        self.lane.answer(self.slot)
    }
}

/// The right to answer an entry whose data is lent.
#[derive(Debug)]
pub(crate) struct Lent(Arc<Lender>);

impl Lent {
    /// Answers as [`Entry::reply`], as soon as the data is dropped.
    pub(crate) fn reply(self, error: i32, parts: &[&[u8]]) {
        let _ = self.0.reply.set((error, parts.concat()));
    }
}

/// An entry whose data is lent. The last one to drop it commits it.
#[derive(Debug)]
struct Lender {
    /// `None` only during the drop.
    entry: Option<Entry>,
    /// The error and the bytes of the reply.
    reply: OnceLock<(i32, Vec<u8>)>,
}

impl Drop for Lender {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let (error, bytes) = self.reply.take().unwrap_or((-Errno::EIO.0, Vec::new()));
        let lane = entry.lane.clone();
        lane.counters.settle(entry.slot.commit_id(), entry.reply(error, &[&bytes]));
    }
}

/// The data of an entry, as the owner behind [`Bytes`].
struct Loan {
    lent: Arc<Lender>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        let bytes = self.lent.entry.as_ref().map(|entry| entry.slot.bytes(self.range.clone()));
        bytes.unwrap_or_default()
    }
}

fn read_whole(run: &FileRun<'_>, place: &mut [u8]) -> bool {
    let mut done = 0;
    while done < place.len() {
        match rustix::io::pread(run.file, &mut place[done..], run.offset + done as u64) {
            Ok(0) => return false,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn entry(lane: &Arc<Lane>, payload_bytes: usize) -> Entry {
        Entry::new(Slot::new(0, 0, payload_bytes).unwrap(), lane.clone())
    }

    /// Returns how often the ring thread was woken since the last call.
    fn wakes(lane: &Lane) -> u64 {
        rustix::io::ioctl_fionbio(&lane.wake, true).unwrap();
        let mut count = [0; 8];
        rustix::io::read(&lane.wake, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    #[test]
    fn answers_wake_a_sleeping_thread_once_and_no_other() {
        let lane = Lane::new().unwrap();
        let mut answered = Vec::new();
        entry(&lane, 4096).reply(0, &[b"x"]).unwrap();
        assert_eq!(wakes(&lane), 0, "it is awake");
        assert!(lane.take(&mut answered, true));
        for _ in 0..3 {
            entry(&lane, 4096).reply(-2, &[]).unwrap();
        }
        assert_eq!(wakes(&lane), 1);
        lane.awake();
        assert!(lane.take(&mut answered, false));
        entry(&lane, 4096).reply(0, &[]).unwrap();
        assert_eq!((answered.len(), wakes(&lane), lane.in_use()), (4, 0, 0));
    }

    #[test]
    fn close_wakes_the_thread_and_later_replies_are_lost() {
        let lane = Lane::new().unwrap();
        let late = entry(&lane, 4096);
        assert_eq!(lane.in_use(), 1);
        lane.close();
        assert_eq!(wakes(&lane), 1);
        assert_eq!(late.reply(0, &[]), Err(Errno::ENODEV));
        let mut answered = Vec::new();
        assert!(!lane.take(&mut answered, true) && answered.is_empty());
        assert_eq!(lane.in_use(), 0);
    }

    #[test]
    fn reply_gathers_its_parts_and_refuses_too_many_bytes() {
        let lane = Lane::new().unwrap();
        entry(&lane, 4096).reply(0, &[b"one", b"", b"two"]).unwrap();
        assert_eq!(entry(&lane, 4096).reply(0, &[&[1; 4096], b"x"]), Err(Errno::EINVAL));
        let mut answered = Vec::new();
        lane.take(&mut answered, false);
        assert_eq!(&answered[0].payload_mut()[..6], b"onetwo");
        assert_eq!(answered.len(), 2, "the second one with EIO");
    }

    #[test]
    fn an_entry_with_lent_data_is_committed_when_it_is_answered_and_its_data_dropped() {
        let lane = Lane::new().unwrap();
        let mut answered = Vec::new();
        let mut lent = |answer_first: bool| {
            let mut entry = entry(&lane, 4096);
            entry.slot.payload_mut()[..4].copy_from_slice(b"data");
            let (lent, data) = entry.lend(4096..4100);
            let part = data.slice(1..);
            drop(data);
            assert_eq!(&part[..], b"ata");
            if answer_first {
                lent.reply(0, &[b"size"]);
                lane.take(&mut answered, false);
                assert!(answered.is_empty(), "the data is in use");
                drop(part);
            } else {
                drop(part);
                lane.take(&mut answered, false);
                assert!(answered.is_empty(), "without a reply");
                lent.reply(0, &[b"size"]);
            }
            lane.take(&mut answered, false);
            let mut slot = answered.pop().unwrap();
            assert_eq!(&slot.payload_mut()[..4], b"size");
        };
        lent(true);
        lent(false);
        let (unanswered, data) = entry(&lane, 4096).lend(4096..4097);
        drop((unanswered, data));
        lane.take(&mut answered, false);
        assert_eq!((answered.len(), lane.in_use()), (1, 0), "with EIO");
    }

    #[test]
    fn short_files_leave_the_entry_unanswered() {
        let lane = Lane::new().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let run = |offset, len| FileRun { file: file.as_fd(), offset, len };
        let back = entry(&lane, 4096).reply_from_files(&[run(0, 4), run(8, 3)]).unwrap_err();
        let back = back.reply_from_files(&[run(0, 5000)]).unwrap_err();
        assert_eq!(lane.in_use(), 1);
        back.reply_from_files(&[run(8, 2), run(0, 4)]).unwrap().unwrap();
        let mut answered = Vec::new();
        lane.take(&mut answered, false);
        assert_eq!((&answered[0].payload_mut()[..6], lane.in_use()), (&b"890123"[..], 0));
    }
}
