//! Bounds on requests. A service calls [`request`] before it does anything, so that later code can
//! rely on them:
//!
//! * at most [`PARTS_MAX`] parts, runs or objects;
//! * the bytes of a read or write are at most [`BULK_BYTES_MAX`], and a write's are exactly its
//!   bulk;
//! * the time in a write is a valid one (the caller checks with its clock that it is not in the
//!   future);
//! * every `offset + len` of a change is at most [`OBJECT_SIZE_MAX`], hence fits `i64` and cannot
//!   overflow;
//! * every object is one that [`name::path`] can name. Locks are checked one by one ([`lock`]),
//!   because each has its own result.

use sheen_wire::{
    Errno, Fid, Result, Time,
    bulk::BULK_BYTES_MAX,
    ldlm::{Enqueue, Kind},
    ost::{
        CAPABILITIES_MAX, Change, DamagedBlock, OBJECT_SIZE_MAX, OWNERS_MAX, ObjectAttr, PARTS_MAX, Part, REPLAYS_MAX,
        Recreate, Request,
    },
};

use crate::name;

/// Unit in which space is counted, in bytes.
const BLOCK_BYTES: u64 = 512;
const NSEC_PER_SEC: u32 = 1_000_000_000;

/// Checks `request`, which came with `bulk_len` bytes of bulk.
///
/// # Errors
/// E2BIG: too many parts, or too many bytes for one request. EFBIG: past an object's largest size.
/// EPROTO: bulk and parts do not agree. EINVAL: anything else that no client of this version sends.
pub fn request(request: &Request, bulk_len: usize) -> Result<()> {
    let has_bulk = matches!(
        request,
        Request::Write { .. }
            | Request::Replay { .. }
            | Request::Repair { .. }
            | Request::Recreate { step: Recreate::Write { .. }, .. }
    );
    if bulk_len != 0 && !has_bulk {
        return Err(Errno::EPROTO);
    }
    match request {
        Request::Read { parts } => {
            total(parts)?;
            parts.iter().try_for_each(|p| named(p.object))
        }
        Request::Write { parts, mtime, .. } => {
            if write(parts, *mtime)? == bulk_len {
                Ok(())
            } else {
                Err(Errno::EPROTO)
            }
        }
        Request::Truncate { objects, .. } => truncate(objects),
        Request::Allocate { runs, .. } => allocate(runs),
        Request::Replay { changes, .. } => replay(changes, bulk_len),
        Request::Seek { object, .. } => named(*object),
        Request::Attrs { objects }
        | Request::Sync { objects }
        | Request::Destroy { objects }
        | Request::Versions { objects, .. }
        | Request::Follow { objects }
        | Request::Stored { objects }
        | Request::Unseal { objects, .. } => names(objects),
        Request::Link { objects, .. } => {
            count(objects.len())?;
            objects.iter().try_for_each(|(old, new)| named(*old).and(named(*new)))
        }
        Request::Seal { objects, group, .. } => {
            count(objects.len())?;
            objects.iter().try_for_each(|(object, _)| named(*object))?;
            if *group == Some(0) { Err(Errno::EINVAL) } else { Ok(()) }
        }
        Request::DestroyRange { seq, first, last } => {
            if *seq == 0 || first > last {
                Err(Errno::EINVAL)
            } else {
                Ok(())
            }
        }
        Request::Enqueue { locks, .. } => count(locks.len()),
        Request::Cancel { locks } => count(locks.len()),
        Request::Glimpsed { answers } => {
            count(answers.len())?;
            answers.iter().filter_map(|(_, attr)| *attr).try_for_each(known)
        }
        Request::List { after } if *after == Fid::ZERO => Ok(()),
        Request::List { after } => named(*after),
        Request::Present { capabilities } => {
            if capabilities.len() <= CAPABILITIES_MAX {
                Ok(())
            } else {
                Err(Errno::E2BIG)
            }
        }
        Request::SetOwners { owners, .. } => {
            if owners.len() > OWNERS_MAX {
                return Err(Errno::E2BIG);
            }
            owners.iter().try_for_each(|owned| named(owned.object))
        }
        Request::Repair { object, block, at } => repair(*object, *block, *at, bulk_len),
        Request::Recreate { object, step } => recreate(*object, step, bulk_len),
        Request::StatFs
        | Request::Recover
        | Request::Recovered { .. }
        | Request::Evict { .. }
        | Request::QuotaWait
        | Request::QuotaAllow { .. }
        | Request::QuotaUse { .. } => Ok(()),
    }
}

/// Checks changes that are replayed, with `bulk_len` bytes for all of them.
fn replay(changes: &[(u64, Change)], bulk_len: usize) -> Result<()> {
    if changes.len() > REPLAYS_MAX {
        return Err(Errno::E2BIG);
    }
    if !changes.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(Errno::EPROTO);
    }
    let mut bytes = 0_usize;
    for (_, change) in changes {
        match change {
            Change::Write { parts, mtime, .. } => bytes = bytes.saturating_add(write(parts, Some(*mtime))?),
            Change::Truncate { objects, .. } => truncate(objects)?,
            Change::Allocate { runs, .. } => allocate(runs)?,
        }
    }
    if bytes == bulk_len { Ok(()) } else { Err(Errno::EPROTO) }
}

/// Checks a repair with `bulk_len` bytes: they lie within the block.
fn repair(object: Fid, block: DamagedBlock, at: u64, bulk_len: usize) -> Result<()> {
    changes(object, block.offset, block.len)?;
    let is_inside = at >= block.offset && at.saturating_add(bulk_len as u64) <= block.offset + block.len;
    if bulk_len > 0 && is_inside { Ok(()) } else { Err(Errno::EPROTO) }
}

/// Checks a step that makes a lost object again, with `bulk_len` bytes.
fn recreate(object: Fid, step: &Recreate, bulk_len: usize) -> Result<()> {
    match step {
        Recreate::Write { .. } if bulk_len == 0 => Err(Errno::EPROTO),
        Recreate::End { mtime, .. } if mtime.nsec >= NSEC_PER_SEC => Err(Errno::EINVAL),
        Recreate::Write { at, .. } => changes(object, *at, bulk_len as u64),
        Recreate::Begin { size, .. } => changes(object, 0, *size),
        Recreate::Unknown { file } if file.is_zero() => Err(Errno::EINVAL),
        Recreate::Confirm | Recreate::Unknown { .. } | Recreate::End { .. } | Recreate::Abort { .. } => named(object),
    }
}

/// Checks the parts of a write. Returns their bytes.
fn write(parts: &[Part], mtime: Option<Time>) -> Result<usize> {
    let bytes = total(parts)?;
    if mtime.is_some_and(|mtime| mtime.nsec >= NSEC_PER_SEC) {
        return Err(Errno::EINVAL);
    }
    parts.iter().try_for_each(|p| changes(p.object, p.offset, u64::from(p.len)))?;
    Ok(bytes)
}

fn truncate(objects: &[(Fid, u64)]) -> Result<()> {
    count(objects.len())?;
    objects.iter().try_for_each(|&(object, size)| changes(object, size, 0))
}

fn allocate(runs: &[(Fid, u64, u64)]) -> Result<()> {
    count(runs.len())?;
    runs.iter().try_for_each(
        |&(object, offset, len)| {
            if len == 0 { Err(Errno::EINVAL) } else { changes(object, offset, len) }
        },
    )
}

/// Checks a requested lock.
///
/// # Errors
/// EINVAL: not on the data of an object; an OST has no other locks.
pub fn lock(want: &Enqueue) -> Result<()> {
    if want.resource.kind == Kind::Extent { named(want.resource.fid) } else { Err(Errno::EINVAL) }
}

/// Returns the bytes of all parts.
fn total(parts: &[Part]) -> Result<usize> {
    count(parts.len())?;
    // 4096 × 4 GiB is far below u64.
    let bytes: u64 = parts.iter().map(|p| u64::from(p.len)).sum();
    if bytes > BULK_BYTES_MAX as u64 { Err(Errno::E2BIG) } else { Ok(bytes as usize) }
}

/// Checks attributes of an object that a client reports.
fn known(attr: ObjectAttr) -> Result<()> {
    if attr.size > OBJECT_SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    let blocks = attr.blocks > OBJECT_SIZE_MAX / BLOCK_BYTES;
    let time = attr.mtime.is_some_and(|mtime| mtime.nsec >= NSEC_PER_SEC);
    if blocks || time { Err(Errno::EINVAL) } else { Ok(()) }
}

fn count(n: usize) -> Result<()> {
    if n > PARTS_MAX { Err(Errno::E2BIG) } else { Ok(()) }
}

fn names(objects: &[Fid]) -> Result<()> {
    count(objects.len())?;
    objects.iter().try_for_each(|&object| named(object))
}

fn named(object: Fid) -> Result<()> {
    if name::valid(object) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn changes(object: Fid, offset: u64, len: u64) -> Result<()> {
    named(object)?;
    match offset.checked_add(len) {
        Some(end) if end <= OBJECT_SIZE_MAX => Ok(()),
        _ => Err(Errno::EFBIG),
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::{
        ldlm::{Cookie, LockId, Mode, Policy, Resource},
        ost::Allocate,
    };

    use sheen_wire::{
        ost::{Grant, Owned},
        quota::Owner,
    };

    use super::*;

    const OBJECT: Fid = Fid::new(0x2_8000_0401, 7);

    fn part(offset: u64, len: u32) -> Part {
        Part { object: OBJECT, offset, len }
    }

    fn write(parts: Vec<Part>, bulk: usize) -> Result<()> {
        let (file, grant) = (Fid::ZERO, Grant::default());
        request(&Request::Write { file, parts, sync: false, mtime: None, grant, held: false }, bulk)
    }

    #[test]
    fn write_with_a_wrong_bulk_length_is_refused() {
        assert_eq!(write(vec![part(0, 3), part(9, 4)], 7), Ok(()));
        assert_eq!(write(vec![part(0, 3), part(9, 4)], 6), Err(Errno::EPROTO));
        assert_eq!(write(vec![part(0, 3), part(9, 4)], 8), Err(Errno::EPROTO));
        assert_eq!(write(vec![], 0), Ok(()));
        assert_eq!(request(&Request::StatFs, 1), Err(Errno::EPROTO));
    }

    #[test]
    fn repair_outside_of_its_block_is_refused() {
        let block = DamagedBlock { offset: 64, len: 10, sum: 1 };
        let repair = |block, at, bytes| request(&Request::Repair { object: OBJECT, block, at }, bytes);
        assert_eq!((repair(block, 64, 10), repair(block, 70, 4)), (Ok(()), Ok(())));
        for (at, bytes) in [(64, 0), (63, 2), (64, 11), (70, 5), (u64::MAX, 1)] {
            assert_eq!(repair(block, at, bytes), Err(Errno::EPROTO), "{at} {bytes}");
        }
        assert_eq!(repair(DamagedBlock { len: u64::MAX, ..block }, 64, 1), Err(Errno::EFBIG));
    }

    #[test]
    fn recreation_with_bad_sizes_times_or_bulks_is_refused() {
        let copy = 1;
        let step = |step, bytes| request(&Request::Recreate { object: OBJECT, step }, bytes);
        let write = |at, bytes| step(Recreate::Write { copy, at }, bytes);
        let begin = |size| step(Recreate::Begin { copy, size }, 0);
        let end = |nsec| step(Recreate::End { copy, mtime: Time { sec: 1, nsec } }, 0);
        assert_eq!((begin(OBJECT_SIZE_MAX), write(OBJECT_SIZE_MAX - 1, 1), end(7)), (Ok(()), Ok(()), Ok(())));
        assert_eq!((step(Recreate::Confirm, 0), step(Recreate::Abort { copy }, 0)), (Ok(()), Ok(())));
        assert_eq!((begin(OBJECT_SIZE_MAX + 1), write(OBJECT_SIZE_MAX, 1)), (Err(Errno::EFBIG), Err(Errno::EFBIG)));
        assert_eq!((write(u64::MAX, 1), end(NSEC_PER_SEC)), (Err(Errno::EFBIG), Err(Errno::EINVAL)));
        assert_eq!((write(0, 0), step(Recreate::Confirm, 1)), (Err(Errno::EPROTO), Err(Errno::EPROTO)));
        let unknown = |file| step(Recreate::Unknown { file }, 0);
        assert_eq!((unknown(OBJECT), unknown(Fid::ZERO)), (Ok(()), Err(Errno::EINVAL)));
        let invalid = Request::Recreate { object: Fid::ZERO, step: Recreate::Confirm };
        assert_eq!(request(&invalid, 0), Err(Errno::EINVAL));
    }

    #[test]
    fn change_past_the_largest_object_size_is_refused() {
        assert_eq!(write(vec![part(OBJECT_SIZE_MAX - 1, 1)], 1), Ok(()));
        assert_eq!(write(vec![part(OBJECT_SIZE_MAX, 1)], 1), Err(Errno::EFBIG));
        assert_eq!(write(vec![part(u64::MAX, 1)], 1), Err(Errno::EFBIG));
        let truncate = |size| request(&Request::Truncate { file: Fid::ZERO, objects: vec![(OBJECT, size)] }, 0);
        assert_eq!(truncate(OBJECT_SIZE_MAX), Ok(()));
        assert_eq!(truncate(OBJECT_SIZE_MAX + 1), Err(Errno::EFBIG));
        let punch = |offset, len| {
            let (file, mode) = (Fid::ZERO, Allocate::PunchHole);
            request(&Request::Allocate { file, mode, runs: vec![(OBJECT, offset, len)] }, 0)
        };
        assert_eq!(punch(0, OBJECT_SIZE_MAX), Ok(()));
        assert_eq!(punch(1, OBJECT_SIZE_MAX), Err(Errno::EFBIG));
        assert_eq!(punch(2, u64::MAX), Err(Errno::EFBIG));
        assert_eq!(punch(2, 0), Err(Errno::EINVAL));
    }

    #[test]
    fn requests_beyond_part_or_bulk_limits_are_refused() {
        let read = |parts| request(&Request::Read { parts }, 0);
        assert_eq!(read(vec![part(0, 1); PARTS_MAX]), Ok(()));
        assert_eq!(read(vec![part(0, 1); PARTS_MAX + 1]), Err(Errno::E2BIG));
        assert_eq!(read(vec![part(0, BULK_BYTES_MAX as u32)]), Ok(()));
        assert_eq!(read(vec![part(0, BULK_BYTES_MAX as u32), part(0, 1)]), Err(Errno::E2BIG));
        assert_eq!(read(vec![part(0, u32::MAX); PARTS_MAX]), Err(Errno::E2BIG));
        assert_eq!(read(vec![part(u64::MAX, 1)]), Ok(()), "past every end: reads as empty");
        let destroy = |n| request(&Request::Destroy { objects: vec![OBJECT; n] }, 0);
        assert_eq!(destroy(PARTS_MAX), Ok(()));
        assert_eq!(destroy(PARTS_MAX + 1), Err(Errno::E2BIG));
        let own = |object, n| {
            let owned = Owned { object, file: Fid::ZERO, owner: Owner::default() };
            request(&Request::SetOwners { owners: vec![owned; n], only_unowned: false }, 0)
        };
        assert_eq!((own(OBJECT, OWNERS_MAX), own(OBJECT, OWNERS_MAX + 1)), (Ok(()), Err(Errno::E2BIG)));
        assert_eq!(own(Fid::ZERO, 1), Err(Errno::EINVAL));
    }

    #[test]
    fn too_many_locks_or_locks_on_other_resources_are_refused() {
        let ask = |resource| Enqueue::new(resource, Mode::Pr, Policy::extent(0, u64::MAX), Cookie(1));
        let enqueue = |n| request(&Request::Enqueue { locks: vec![ask(Resource::extent(OBJECT)); n], want: 0 }, 0);
        let cancel = |n| request(&Request::Cancel { locks: vec![LockId(1); n] }, 0);
        assert_eq!((enqueue(PARTS_MAX), cancel(PARTS_MAX)), (Ok(()), Ok(())));
        assert_eq!((enqueue(PARTS_MAX + 1), cancel(PARTS_MAX + 1)), (Err(Errno::E2BIG), Err(Errno::E2BIG)));
        assert_eq!(lock(&ask(Resource::extent(OBJECT))), Ok(()));
        for other in [Resource::bits(OBJECT), Resource::flock(OBJECT), Resource::extent(Fid::ZERO)] {
            assert_eq!(lock(&ask(other)), Err(Errno::EINVAL), "{other:?}");
        }
    }

    #[test]
    fn requests_on_invalid_object_fids_are_refused() {
        for object in [Fid::ZERO, Fid::new(1, 0), Fid::new(0, 1), Fid { ver: 1, ..Fid::ZERO }] {
            assert_eq!(request(&Request::Attrs { objects: vec![OBJECT, object] }, 0), Err(Errno::EINVAL));
            assert_eq!(
                request(&Request::Read { parts: vec![Part { object, offset: 0, len: 0 }] }, 0),
                Err(Errno::EINVAL)
            );
        }
        assert_eq!(request(&Request::DestroyRange { seq: 5, first: 2, last: 1 }, 0), Err(Errno::EINVAL));
        assert_eq!(request(&Request::DestroyRange { seq: 5, first: 0, last: u32::MAX }, 0), Ok(()));
    }
}
