//! A thread that reads `/dev/fuse`.
//!
//! Each worker owns a channel to the kernel and a page-aligned buffer. It fills the buffer from
//! [`MESSAGE_START`] on. The headers of a WRITE then end at a page boundary, and its payload is
//! page-aligned. Workers share no lock except the pool's, which only large writes take.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    channel::Channel,
    device::{Device, ReadError},
    lane::Lane,
    parse::WRITE_HEAD_BYTES,
    pool::{Buffer, PAGE_BYTES},
    server::{self, COPY_PAYLOAD_BYTES_MAX, Serving},
};

/// Offset in the buffer at which a message begins. The payload of a WRITE then begins at the second
/// page.
const MESSAGE_START: usize = PAGE_BYTES - WRITE_HEAD_BYTES;

/// A thread that serves one channel.
pub(crate) struct Worker {
    pub(crate) server: Serving,
    pub(crate) device: Arc<Device>,
    /// The rings that end with this channel.
    pub(crate) lanes: Vec<Arc<Lane>>,
}

impl Worker {
    pub(crate) fn run(self) {
        let mut buffer = self.server.pool().get();
        loop {
            match self.device.read(&mut buffer[MESSAGE_START..]) {
                Ok(n) => buffer = self.handle(buffer, n),
                Err(ReadError::Again) => {}
                Err(ReadError::Ended) => break,
                Err(ReadError::Failed(e)) => {
                    tracing::error!("cannot read from /dev/fuse: {e}; this worker stops");
                    break;
                }
            }
        }
        self.lanes.iter().for_each(|lane| lane.close());
    }

    /// Handles one message of `n` bytes. Returns the buffer for the next message.
    fn handle(&self, mut buffer: Buffer, n: usize) -> Buffer {
        let mut incoming = self.server.parse(buffer.get(MESSAGE_START..MESSAGE_START + n).unwrap_or_default());
        if let Some(range) = server::payload(&incoming) {
            let (bytes, next) = self.payload(buffer, MESSAGE_START + range.start, range.len());
            server::attach(&mut incoming, bytes);
            buffer = next;
        }
        self.server.dispatch(incoming, Channel::Device(self.device.clone()));
        buffer
    }

    /// Returns the payload at `start` and the buffer for the next message. A small payload is
    /// copied and the buffer is reused. A large payload takes the buffer along, and the next
    /// message gets another one.
    fn payload(&self, buffer: Buffer, start: usize, len: usize) -> (Bytes, Buffer) {
        if len <= COPY_PAYLOAD_BYTES_MAX {
            let payload = buffer.get(start..start + len).unwrap_or_default();
            (server::copy(payload, &self.device.counters), buffer)
        } else {
            (buffer.freeze(start..start + len), self.server.pool().get())
        }
    }
}
