//! The way back of one reply: the channel that delivered its request.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{
    device::Device,
    lane::{Entry, Lent},
    pipe::FileRun,
};

/// Where a reply goes.
#[derive(Debug)]
pub(crate) enum Channel {
    /// To `/dev/fuse`.
    Device(Arc<Device>),
    /// Into the ring entry that brought the request.
    Ring(Entry),
    /// Into the ring entry that brought the request, when its data is dropped.
    Lent(Lent),
}

impl Channel {
    /// Sends a reply: `error` (0 or a negative errno) and these parts. Returns whether the kernel
    /// accepted it. Over a ring the kernel accepts every reply until the mount ends.
    pub(crate) fn send(self, unique: u64, error: i32, parts: &[&[u8]]) -> bool {
        match self {
            Channel::Device(device) => {
                let result = device.send(unique, error, parts);
                device.counters.settle(unique, result)
            }
            Channel::Ring(entry) => {
                let lane = entry.lane().clone();
                lane.counters.settle(unique, entry.reply(error, parts))
            }
            Channel::Lent(lent) => {
                lent.reply(error, parts);
                true
            }
        }
    }

    /// As [`Channel::send`], with data of a file.
    pub(crate) fn send_data(self, unique: u64, parts: &[&[u8]]) -> bool {
        if let Channel::Ring(entry) = &self {
            let bytes: usize = parts.iter().map(|p| p.len()).sum();
            entry.lane().counters.bytes_copied.fetch_add(bytes as u64, Relaxed);
        }
        self.send(unique, 0, parts)
    }

    /// Sends bytes of files. Returns the channel if nothing was sent.
    pub(crate) fn send_files(self, unique: u64, runs: &[FileRun<'_>]) -> Result<(), Channel> {
        match self {
            Channel::Device(device) => match device.splice(unique, runs) {
                Some(result) => device.counters.settle(unique, result),
                None => return Err(Channel::Device(device)),
            },
            Channel::Ring(entry) => {
                let lane = entry.lane().clone();
                let result = entry.reply_from_files(runs).map_err(Channel::Ring)?;
                lane.counters.settle(unique, result)
            }
            Channel::Lent(_) => return Err(self),
        };
        Ok(())
    }

    /// Ends a message to which no reply goes. Over a ring the kernel waits for the entry all the
    /// same.
    pub(crate) fn release(self, unique: u64) {
        if !matches!(self, Channel::Device(_)) {
            self.send(unique, 0, &[]);
        }
    }
}
