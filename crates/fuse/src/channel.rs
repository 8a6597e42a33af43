//! The way back of one reply: the channel that delivered its request.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use sheen_wire::Errno;

use crate::{
    counters::Counters,
    device::{Device, is_unmounted},
    lane::Entry,
    pipe::FileRun,
};

/// Where a reply goes.
#[derive(Debug)]
pub(crate) enum Channel {
    /// To `/dev/fuse`.
    Device(Arc<Device>),
    /// Into the ring entry that brought the request.
    Ring(Entry),
}

impl Channel {
    /// Sends a reply: `error` (0 or a negative errno) and these parts. Returns whether the kernel
    /// accepted it. Over a ring the kernel accepts every reply until the mount ends.
    pub(crate) fn send(self, unique: u64, error: i32, parts: &[&[u8]]) -> bool {
        match self {
            Channel::Device(device) => {
                let result = device.send(unique, error, parts);
                settle(&device.counters, unique, result)
            }
            Channel::Ring(entry) => {
                let lane = entry.lane();
                settle(&lane.counters, unique, entry.reply(error, parts))
            }
        }
    }

    /// As [`Channel::send`], with data of a file.
    pub(crate) fn send_data(self, unique: u64, parts: &[&[u8]]) -> bool {
        if let Channel::Ring(entry) = &self {
            let bytes: usize = parts.iter().map(|p| p.len()).sum();
            entry.counters().bytes_copied.fetch_add(bytes as u64, Relaxed);
        }
        self.send(unique, 0, parts)
    }

    /// Sends bytes of files. Returns the channel if nothing was sent.
    pub(crate) fn send_files(self, unique: u64, runs: &[FileRun<'_>]) -> Result<(), Channel> {
        match self {
            Channel::Device(device) => match device.splice(unique, runs) {
                Some(result) => settle(&device.counters, unique, result),
                None => return Err(Channel::Device(device)),
            },
            Channel::Ring(entry) => {
                let lane = entry.lane();
                let result = entry.reply_from_files(runs).map_err(Channel::Ring)?;
                settle(&lane.counters, unique, result)
            }
        };
        Ok(())
    }

    /// Ends a message to which no reply goes. Over a ring the kernel waits for the entry all the
    /// same.
    pub(crate) fn release(self, unique: u64) {
        if let Channel::Ring(_) = &self {
            self.send(unique, 0, &[]);
        }
    }
}

/// Counts a sent reply and returns whether the kernel accepted it. A refusal is normal if the
/// request was aborted or the mount has ended.
fn settle(counters: &Counters, unique: u64, result: Result<(), Errno>) -> bool {
    match result {
        Ok(()) => counters.replies.fetch_add(1, Relaxed),
        Err(e) => {
            if e != Errno::ENOENT && !is_unmounted(e) {
                // The request has ended with EIO.
                tracing::warn!(unique, errno = e.0, "the kernel refused a reply: {e}; the request ended with EIO");
            }
            counters.lost_replies.fetch_add(1, Relaxed)
        }
    };
    result.is_ok()
}
