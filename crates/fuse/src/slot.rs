//! The memory of a ring entry: where kernel and file system exchange one request and its reply.
//!
//! Layout, with `payload` at the second page:
//!
//! | bytes | contents |
//! |---|---|
//! | 0 to 287 | [`RingHeader`]: the headers as the kernel writes and reads them |
//! | [`IOVECS`] | the two buffers' addresses, read by the kernel at registration |
//! | end of the first page | the request's headers, joined to the payload by [`Slot::join`] |
//! | from [`PAGE_BYTES`] on | payload of the request, later of the reply |
//!
//! Invariants:
//!
//! * A slot has one owner: its ring thread while the kernel has the entry, which then uses no
//!   byte of it, else the [`crate::lane::Entry`] of the request.
//! * Pages that no request used occupy no memory.

use std::{io, ops::Range, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    abi::structs::{InHeader, IoVec, OutHeader, RingHeader},
    pool::PAGE_BYTES,
};

/// Offset of the two [`IoVec`]s.
const IOVECS: usize = 512;

/// The memory of one entry.
#[derive(Debug)]
pub(crate) struct Slot {
    memory: Mapping,
    /// Place in the table of its ring thread.
    pub(crate) index: usize,
    /// Queue of the kernel that the entry belongs to.
    pub(crate) qid: u16,
}

impl Slot {
    /// Maps the memory of an entry with room for `payload_bytes`.
    pub(crate) fn new(index: usize, qid: u16, payload_bytes: usize) -> io::Result<Slot> {
        let mut memory = Mapping::new(PAGE_BYTES + payload_bytes.next_multiple_of(PAGE_BYTES))?;
        let start = memory.bytes().as_ptr() as u64;
        let payload = IoVec { base: start + PAGE_BYTES as u64, len: (memory.len - PAGE_BYTES) as u64 };
        let vecs = [IoVec { base: start, len: size_of::<RingHeader>() as u64 }, payload];
        memory.bytes_mut()[IOVECS..IOVECS + size_of_val(&vecs)].copy_from_slice(vecs.as_bytes());
        Ok(Slot { memory, index, qid })
    }

    /// Returns the address of the two `iovec`s for the registration of the entry.
    pub(crate) fn iovecs(&self) -> u64 {
        self.memory.bytes().as_ptr() as u64 + IOVECS as u64
    }

    /// Returns the number by which the kernel finds the request of the entry.
    pub(crate) fn commit_id(&self) -> u64 {
        self.header().entry.commit_id
    }

    /// Joins the headers of the request to its payload, so that they form a message as `/dev/fuse`
    /// delivers it. The payload stays where it is. Returns the place of the message; `None` if the
    /// lengths contradict each other.
    pub(crate) fn join(&mut self) -> Option<Range<usize>> {
        let ring = self.header();
        let (head, _) = InHeader::read_from_prefix(ring.in_out.as_bytes()).ok()?;
        let payload = ring.entry.payload_sz as usize;
        let args = (head.len as usize).checked_sub(size_of::<InHeader>())?.checked_sub(payload)?;
        let args = ring.op_in.as_bytes().get(..args)?;
        let start = PAGE_BYTES - size_of::<InHeader>() - args.len();
        let front = self.memory.bytes_mut().get_mut(start..PAGE_BYTES)?;
        let (first, second) = front.split_at_mut(size_of::<InHeader>());
        first.copy_from_slice(head.as_bytes());
        second.copy_from_slice(args);
        let end = PAGE_BYTES + payload;
        (end <= self.memory.len).then_some(start..end)
    }

    /// Returns a range of the memory. No bytes if it is out of bounds.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.memory.bytes().get(range).unwrap_or_default()
    }

    /// Returns the room for the reply's payload.
    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[PAGE_BYTES..]
    }

    /// Writes the reply's headers. `payload`: how many bytes of the payload belong to it.
    pub(crate) fn set_reply(&mut self, error: i32, payload: usize) {
        let mut header = self.header();
        let len = (size_of::<OutHeader>() + payload) as u32;
        let out = OutHeader { len, error, unique: header.entry.commit_id };
        header.entry.payload_sz = payload as u32;
        header.in_out.as_mut_bytes()[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        self.memory.bytes_mut()[..size_of::<RingHeader>()].copy_from_slice(header.as_bytes());
    }

    fn header(&self) -> RingHeader {
        // A slot has at least two pages, so the default is never used.
        RingHeader::read_from_prefix(self.memory.bytes()).map_or_else(|_| RingHeader::default(), |(h, _)| h)
    }
}

/// An anonymous mapping. Its pages take memory at their first use.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: Mapping owns its pages exclusively, as Box<[u8]> does, and has no interior mutability.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives shared bytes only.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> io::Result<Mapping> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has len readable bytes, zero at first, and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in bytes(); &mut self makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in Mapping::new with this length; no reference outlives self.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{opcode, structs::*};

    /// Writes a request into a slot as the kernel does.
    fn request(slot: &mut Slot, head: InHeader, args: &[u8], payload: &[u8]) {
        let mut ring = RingHeader::default();
        ring.in_out.as_mut_bytes()[..40].copy_from_slice(head.as_bytes());
        ring.op_in.as_mut_bytes()[..args.len()].copy_from_slice(args);
        ring.entry = RingEntry { commit_id: head.unique, payload_sz: payload.len() as u32, ..Default::default() };
        slot.memory.bytes_mut()[..size_of::<RingHeader>()].copy_from_slice(ring.as_bytes());
        slot.payload_mut()[..payload.len()].copy_from_slice(payload);
    }

    fn message(slot: &mut Slot) -> &[u8] {
        let range = slot.join().unwrap();
        slot.bytes(range)
    }

    #[test]
    fn write_request_is_joined_in_place_with_an_aligned_payload() {
        let mut slot = Slot::new(3, 1, 10_000).unwrap();
        assert_eq!(slot.payload_mut().len(), 3 * PAGE_BYTES, "whole pages");
        let args = WriteIn { fh: 7, offset: 8, size: 5, ..Default::default() };
        let head = InHeader { len: 85, opcode: opcode::WRITE, unique: 42, nodeid: 9, ..Default::default() };
        request(&mut slot, head, args.as_bytes(), b"hello");
        let message = message(&mut slot);
        assert_eq!(message, [head.as_bytes(), args.as_bytes(), b"hello"].concat());
        assert_eq!(message[80..].as_ptr() as usize % PAGE_BYTES, 0);
        assert_eq!(slot.commit_id(), 42);
    }

    #[test]
    fn request_without_arguments_is_its_header_and_names() {
        let mut slot = Slot::new(0, 0, PAGE_BYTES).unwrap();
        let head = InHeader { len: 45, opcode: opcode::LOOKUP, unique: 2, ..Default::default() };
        request(&mut slot, head, b"", b"name\0");
        assert_eq!(message(&mut slot), [head.as_bytes(), b"name\0"].concat());
    }

    #[test]
    fn contradicting_lengths_are_no_message() {
        let mut slot = Slot::new(0, 0, PAGE_BYTES).unwrap();
        for (len, payload) in [(0, 0), (39, 0), (44, 5), (40 + 129, 0)] {
            request(&mut slot, InHeader { len, unique: 2, ..Default::default() }, b"", &[1; 5][..payload]);
            assert!(slot.join().is_none(), "{len} {payload}");
        }
        let head = InHeader { len: 40 + 2 * PAGE_BYTES as u32, unique: 2, ..Default::default() };
        request(&mut slot, head, b"", b"");
        let mut ring = slot.header();
        ring.entry.payload_sz = 2 * PAGE_BYTES as u32;
        slot.memory.bytes_mut()[..size_of::<RingHeader>()].copy_from_slice(ring.as_bytes());
        assert!(slot.join().is_none(), "a payload beyond the buffer");
    }

    #[test]
    fn reply_header_carries_error_unique_and_payload_size() {
        let mut slot = Slot::new(0, 0, PAGE_BYTES).unwrap();
        request(&mut slot, InHeader { len: 40, unique: 66, ..Default::default() }, b"", b"");
        slot.set_reply(-2, 0);
        let (out, _) = OutHeader::read_from_prefix(slot.header().in_out.as_bytes()).unwrap();
        assert_eq!(out, OutHeader { len: 16, error: -2, unique: 66 });
        slot.set_reply(0, 100);
        let (out, _) = OutHeader::read_from_prefix(slot.header().in_out.as_bytes()).unwrap();
        assert_eq!((out.len, slot.header().entry.payload_sz, slot.commit_id()), (116, 100, 66));
    }

    #[test]
    fn iovecs_name_the_two_buffers() {
        let slot = Slot::new(0, 0, 2 * PAGE_BYTES).unwrap();
        let bytes = slot.memory.bytes();
        let vecs = <[IoVec; 2]>::read_from_bytes(&bytes[IOVECS..IOVECS + 32]).unwrap();
        let start = bytes.as_ptr() as u64;
        assert_eq!(slot.iovecs(), start + IOVECS as u64);
        assert_eq!(vecs[0], IoVec { base: start, len: 288 });
        assert_eq!(vecs[1], IoVec { base: start + 4096, len: 8192 });
    }
}
