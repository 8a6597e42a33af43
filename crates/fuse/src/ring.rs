//! FUSE over io_uring (Linux 6.14 and later): a queue of requests for each processor.
//!
//! Each processor has a thread that is bound to it and owns an io_uring. The thread registers
//! entries with the kernel, each with memory for one request and its reply ([`Slot`]). The kernel
//! puts a request into an entry of the processor on which the program runs, and completes the
//! entry's command. COMMIT_AND_FETCH hands the reply back and makes the entry free for the next
//! request. So one system call per request both replies and waits, on the same processor.
//!
//! * A request that is answered later, from any thread, keeps its entry until then ([`Lane`]). If
//!   all entries of a queue are so in use, the thread registers as many again, up to
//!   [`ENTRIES_MAX`]. Otherwise programs that wait for a lock could keep the program that holds it
//!   from unlocking.
//! * The data of a large WRITE stays in its entry, which is committed when the data is dropped.
//! * A new entry takes only new requests. A request that found no free entry waits for the next
//!   commit of its queue. So the thread makes the kernel send messages ([`NUDGE`]) that it commits
//!   at once.
//! * The kernel prefers the entry that was used last, so that idle entries take no memory.
//! * INTERRUPT, FORGET and notifications stay on `/dev/fuse`. When its reader sees the end of the
//!   mount, it ends the rings ([`Lane::close`]).
//! * The kernel demands a queue for each possible processor, also for one that is offline or that
//!   this process may not use. Other threads serve these queues too.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::thread::CpuSet;
use sheen_wire::Errno;
use zerocopy::IntoBytes;

use crate::{
    abi::{ring_command, structs::RingCommand},
    channel::Channel,
    counters::is_unmounted,
    lane::{Entry, Lane},
    notify::Notifier,
    parse::{Incoming, Malformed},
    request::Op,
    server::{self, COPY_PAYLOAD_BYTES_MAX, Serving},
    slot::Slot,
};

/// Entries of a queue at its start.
const ENTRIES: usize = 16;
/// Maximum number of entries of a queue: this many requests of programs on one processor can wait
/// at the same time. Each takes `max_write` of address space, and memory for what it was used for.
const ENTRIES_MAX: usize = 4096;
/// Places for commands that are not yet submitted.
const SUBMISSIONS: u32 = 64;
/// Places for completions. The kernel keeps those beyond.
const COMPLETIONS: u32 = 1024;
/// `user_data` of the poll of the eventfd. The entries have their index.
const WAKE: u64 = u64::MAX;
/// Bit in the unique of messages that a ring's thread causes for the sake of their commits: replies
/// to requests for a cached byte of a file. The kernel finds the request of a commit by its unique,
/// so each has another one. The kernel's own uniques count from 2 in steps of 2.
const NUDGE: u64 = 1 << 62;
/// The eventfd can be read (`POLLIN`).
const POLLIN: u32 = 1;
/// Result of a command that the kernel canceled.
const CANCELED: Errno = Errno(125);
/// Place of the fuse device among the ring's registered files.
const DEVICE: types::Fixed = types::Fixed(0);

type Io = IoUring<squeue::Entry128, cqueue::Entry>;

/// A ring and the queues that it serves, before its thread runs.
pub(crate) struct Ring {
    io: Io,
    lane: Arc<Lane>,
    /// The processor of its thread.
    cpu: usize,
    queues: Vec<Queue>,
    entries: Vec<RingEntry>,
    payload_bytes: usize,
    /// Whether the kernel still accepts entries.
    accepts: bool,
    /// The unique of the next message with [`NUDGE`].
    nudge: u64,
}

/// A ring entry, as its thread sees it.
#[derive(Debug)]
struct RingEntry {
    /// `None` while user space has the entry.
    slot: Option<Slot>,
    /// The node of its request, if that is on an open file.
    file: Option<u64>,
}

/// A queue of the kernel.
#[derive(Debug)]
struct Queue {
    qid: u16,
    entries: usize,
    /// Entries that the kernel has.
    free: usize,
}

/// Creates the rings of a mount with all memory that they need at first. After that nothing that
/// could fail in practice is left: after the reply to INIT the kernel waits for the rings.
pub(crate) fn prepare(device: BorrowedFd<'_>, payload_bytes: usize) -> io::Result<Vec<Ring>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let possible = possible_cpus(&std::fs::read_to_string("/sys/devices/system/cpu/possible")?);
    let served = |cpu: &usize| queues_of(*cpu, &cpus, possible);
    cpus.iter().map(|cpu| Ring::new(device, *cpu, &served(cpu), payload_bytes)).collect()
}

/// Counts the processors of a list such as `0-3,8`.
fn possible_cpus(list: &str) -> u16 {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        Some(last.saturating_sub(first).saturating_add(1))
    };
    list.trim().split(',').filter_map(count).fold(0, u16::saturating_add).max(1)
}

/// Returns the queues that the thread of `cpu` serves: its own, and a share of those of processors
/// that have no thread.
fn queues_of(cpu: usize, cpus: &[usize], possible: u16) -> Vec<u16> {
    let server = |qid: usize| if cpus.contains(&qid) { Some(qid) } else { cpus.get(qid % cpus.len().max(1)).copied() };
    (0..possible).filter(|qid| server(usize::from(*qid)) == Some(cpu)).collect()
}

impl Ring {
    fn new(device: BorrowedFd<'_>, cpu: usize, qids: &[u16], payload_bytes: usize) -> io::Result<Ring> {
        // Only the thread that enables the ring may then use it, which spares the kernel locks.
        let mut builder = IoUring::builder();
        builder.setup_r_disabled().setup_single_issuer().setup_defer_taskrun().setup_submit_all();
        let io: Io = builder.setup_cqsize(COMPLETIONS).dontfork().build(SUBMISSIONS)?;
        io.submitter().register_files(&[device.as_raw_fd()])?;
        let queues = qids.iter().map(|&qid| Queue { qid, entries: 0, free: 0 }).collect();
        let (lane, entries) = (Lane::new()?, Vec::new());
        let mut ring = Ring { io, lane, cpu, queues, entries, payload_bytes, accepts: true, nudge: NUDGE };
        for queue in 0..ring.queues.len() {
            for _ in 0..ENTRIES {
                ring.grow(queue)?;
            }
        }
        Ok(ring)
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Allocates one more entry for a queue. Returns its index.
    fn grow(&mut self, queue: usize) -> io::Result<usize> {
        let index = self.entries.len();
        let queue = &mut self.queues[queue];
        self.entries.push(RingEntry { slot: Some(Slot::new(index, queue.qid, self.payload_bytes)?), file: None });
        queue.entries += 1;
        queue.free += 1;
        Ok(index)
    }

    /// Serves the ring until the mount ends; the body of its thread.
    pub(crate) fn run(self, server: &Serving) {
        let mut cpus = CpuSet::new();
        cpus.set(self.cpu);
        if let Err(e) = rustix::thread::sched_setaffinity(None, &cpus) {
            tracing::debug!(cpu = self.cpu, "cannot bind a ring's thread to its processor: {e}");
        }
        let lane = self.lane.clone();
        if let Err(e) = self.serve(server) {
            tracing::error!("io_uring failed: {e}; requests of the mount hang until it is unmounted");
        }
        // Replies are lost from now on.
        lane.close();
        lane.take(&mut Vec::new(), false);
    }

    fn serve(mut self, server: &Serving) -> io::Result<()> {
        self.io.submitter().register_enable_rings()?;
        self.listen()?;
        for index in 0..self.entries.len() {
            self.register(index)?;
        }
        let (mut answered, mut completed) = (Vec::new(), Vec::new());
        loop {
            if !self.commit(&mut answered, true)? {
                return Ok(());
            }
            self.enlarge_queues(server)?;
            match self.io.submit_and_wait(1) {
                Err(e) if !is_transient(&e) => return Err(e),
                _ => self.lane.awake(),
            }
            completed.extend(self.io.completion());
            let mut left = completed.len();
            for completion in completed.drain(..) {
                left -= 1;
                self.completed(server, &completion)?;
                // The next request may take long, or depend on the answer to this one.
                if left > 0 && self.has_answers(&mut answered)? {
                    self.submit()?;
                }
            }
        }
    }

    /// Prepares the commits of the answered entries. Returns false if the session has ended.
    fn commit(&mut self, answered: &mut Vec<Slot>, asleep: bool) -> io::Result<bool> {
        let goes_on = self.lane.take(answered, asleep);
        for slot in answered.drain(..) {
            let command = RingCommand { commit_id: slot.commit_id(), qid: slot.qid, ..Default::default() };
            let sqe = command_entry(ring_command::COMMIT_AND_FETCH, command, None).user_data(slot.index as u64);
            self.keep(slot);
            self.push(&sqe)?;
        }
        Ok(goes_on)
    }

    fn has_answers(&mut self, answered: &mut Vec<Slot>) -> io::Result<bool> {
        self.commit(answered, false)?;
        Ok(!self.io.submission().is_empty())
    }

    /// Stores the slot of an entry that goes to the kernel.
    fn keep(&mut self, slot: Slot) {
        if let Some(queue) = self.queues.iter_mut().find(|q| q.qid == slot.qid) {
            queue.free += 1;
        }
        let index = slot.index;
        self.entries[index].slot = Some(slot);
    }

    /// Doubles the entries of queues of which user space has all.
    fn enlarge_queues(&mut self, server: &Serving) -> io::Result<()> {
        for queue in 0..self.queues.len() {
            let Queue { entries, free, .. } = self.queues[queue];
            if free > 0 || !self.accepts {
                continue;
            }
            for _ in 0..entries.min(ENTRIES_MAX - entries) {
                match self.grow(queue) {
                    Ok(index) => self.register(index)?,
                    Err(e) => {
                        tracing::debug!("no memory for another ring entry: {e}; requests wait for a free one");
                        break;
                    }
                }
            }
            self.submit()?;
            self.fetch_waiting(server.notifier(), self.queues[queue].free);
        }
        Ok(())
    }

    /// Makes the kernel send `count` messages, whose commits fetch requests that wait for an entry.
    /// Does not wait. It needs a file that the kernel knows: one whose request is in use.
    /// Without any, the requests in use are on names. They wait for servers, not for each other.
    fn fetch_waiting(&mut self, notifier: &Notifier, count: usize) {
        let mut files = self.entries.iter().filter(|place| place.slot.is_none()).filter_map(|place| place.file);
        let mut file = files.next();
        for _ in 0..count {
            while let Some(node) = file {
                self.nudge += 2;
                // EINVAL: a directory.
                if notifier.retrieve(self.nudge, node, 0, 1).is_ok() {
                    break;
                }
                file = files.next();
            }
        }
    }

    /// Prepares the registration of an entry, which also makes it free for a request.
    fn register(&mut self, index: usize) -> io::Result<()> {
        let Some(slot) = &self.entries[index].slot else { return Ok(()) };
        let command = RingCommand { qid: slot.qid, ..Default::default() };
        let sqe = command_entry(ring_command::REGISTER, command, Some(slot.iovecs())).user_data(index as u64);
        self.push(&sqe)
    }

    /// Prepares the poll of the eventfd. Each write to it completes the poll anew, so that nobody
    /// needs to read it.
    fn listen(&mut self) -> io::Result<()> {
        let poll = opcode::PollAdd::new(types::Fd(self.lane.wake().as_raw_fd()), POLLIN).multi(true);
        self.push(&squeue::Entry128::from(poll.build().user_data(WAKE)))
    }

    fn push(&mut self, sqe: &squeue::Entry128) -> io::Result<()> {
        if self.io.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: a command points to memory of a slot, which lives as long as the ring. A poll
        // points to nothing.
        unsafe { self.io.submission().push(sqe) }.map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    fn submit(&mut self) -> io::Result<()> {
        match self.io.submit() {
            Err(e) if !is_transient(&e) => Err(e),
            _ => Ok(()),
        }
    }

    /// Handles one completion: a request has arrived in the entry, or its command failed.
    fn completed(&mut self, server: &Serving, completion: &cqueue::Entry) -> io::Result<()> {
        if completion.user_data() == WAKE {
            return if cqueue::more(completion.flags()) { Ok(()) } else { self.listen() };
        }
        let Some(slot) = self.entries.get_mut(completion.user_data() as usize).and_then(|place| place.slot.take())
        else {
            return Ok(());
        };
        if let Some(queue) = self.queues.iter_mut().find(|q| q.qid == slot.qid) {
            queue.free -= 1;
        }
        if completion.result() >= 0 {
            self.request(server, slot);
            return Ok(());
        }
        match Errno(-completion.result()) {
            // The mount has ended: the reader of /dev/fuse ends the ring.
            e if is_unmounted(e) || e == CANCELED => self.accepts = false,
            e if slot.commit_id() == 0 => {
                tracing::error!(qid = slot.qid, "the kernel refused a ring entry: {e}; requests come over /dev/fuse");
                self.accepts = false;
            }
            e => {
                tracing::warn!(
                    unique = slot.commit_id(),
                    "the kernel refused a reply: {e}; the request ended with EIO"
                );
                self.lane.counters.lost_replies.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    fn request(&mut self, server: &Serving, mut slot: Slot) {
        let counters = &self.lane.counters;
        let unique = slot.commit_id();
        if unique & NUDGE != 0 {
            let _ = Entry::new(slot, self.lane.clone()).reply(0, &[]);
            return;
        }
        let place = slot.join().unwrap_or_default();
        let message = slot.bytes(place.clone());
        counters.message(message.len());
        let mut incoming = server.parse(message);
        if let Err(malformed) = &mut incoming {
            // The kernel waits for the entry of any message.
            malformed.unique = Some(unique);
        }
        self.entries[slot.index].file = open_file(&incoming);
        let channel = match server::payload(&incoming) {
            Some(data) if data.len() > COPY_PAYLOAD_BYTES_MAX => {
                let entry = Entry::new(slot, self.lane.clone());
                let (lent, bytes) = entry.lend(place.start + data.start..place.start + data.end);
                server::attach(&mut incoming, bytes);
                Channel::Lent(lent)
            }
            data => {
                if let Some(data) = data {
                    server::attach(&mut incoming, server::copy(&message[data], counters));
                }
                Channel::Ring(Entry::new(slot, self.lane.clone()))
            }
        };
        server.dispatch(incoming, channel);
    }
}

/// Returns the node of a request on an open file, which is known to the kernel until the reply.
fn open_file(incoming: &Result<Incoming, Malformed>) -> Option<u64> {
    let Ok(Incoming::Request { request, .. }) = incoming else { return None };
    let is_on_file = matches!(
        request.op,
        Op::Read(_)
            | Op::Write(_)
            | Op::SetLk { .. }
            | Op::GetLk(_)
            | Op::Flush { .. }
            | Op::Fsync { .. }
            | Op::Ioctl(_)
    );
    is_on_file.then_some(request.header.nodeid)
}

/// Builds a command to the fuse device. `iovecs`: address of an entry's two buffers.
fn command_entry(code: u32, command: RingCommand, iovecs: Option<u64>) -> squeue::Entry128 {
    /// Offset of `len` in the kernel's `struct io_uring_sqe`.
    const LEN: usize = 24;
    let mut area = [0; 80];
    area[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
    let mut sqe = opcode::UringCmd80::new(DEVICE, code).cmd(area).addr(iovecs).build();
    if iovecs.is_some() {
        let len: *mut u32 = std::ptr::from_mut(&mut sqe).cast::<u8>().wrapping_add(LEN).cast();
        // SAFETY: Entry128 is the kernel's submission queue entry of 128 bytes (repr(C)), aligned
        // to 8 bytes, and any number is a valid `len`. The builder has no function for it.
        unsafe { len.write(2) };
    }
    sqe
}

/// Whether a system call on the ring is just to be repeated.
fn is_transient(e: &io::Error) -> bool {
    let codes = [rustix::io::Errno::INTR, rustix::io::Errno::AGAIN, rustix::io::Errno::BUSY];
    e.raw_os_error().is_some_and(|code| codes.iter().any(|c| c.raw_os_error() == code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_processors_are_counted() {
        assert_eq!(["0\n", "0-1\n", "0-3,8", "0-3,8-9\n", ""].map(possible_cpus), [1, 2, 5, 6, 1]);
    }

    #[test]
    fn every_queue_is_served_by_one_thread() {
        let cpus = [1, 2, 5];
        let served: Vec<Vec<u16>> = cpus.iter().map(|cpu| queues_of(*cpu, &cpus, 8)).collect();
        assert!(cpus.iter().zip(&served).all(|(cpu, qids)| qids.contains(&(*cpu as u16))));
        let mut all = served.concat();
        all.sort_unstable();
        assert_eq!(all, (0..8).collect::<Vec<u16>>());
    }

    #[test]
    fn commands_are_laid_out_as_the_kernel_reads_them() {
        let command = RingCommand { commit_id: 0x0102_0304, qid: 7, ..Default::default() };
        let sqe = command_entry(ring_command::REGISTER, command, Some(0xabcd_e000)).user_data(99);
        // SAFETY: a submission queue entry is plain bytes.
        let bytes: [u8; 128] = unsafe { std::mem::transmute(sqe) };
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(bytes[0], 46, "IORING_OP_URING_CMD");
        assert_eq!(word(8) as u32, 1, "cmd_op");
        assert_eq!((word(16), word(24) as u32, word(32)), (0xabcd_e000, 2, 99), "addr, len, user_data");
        assert_eq!((word(48), word(56), word(64) as u16), (0, 0x0102_0304, 7), "flags, commit_id, qid");
    }
}
