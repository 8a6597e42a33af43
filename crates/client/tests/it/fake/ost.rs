//! The fake OST.

use std::{collections::BTreeSet, time::Duration};

use sheen_rpc::Response;
use sheen_wire::{
    Bulk, Errno, Fid, Ost, Result, StatFs, Time,
    ast::Callback,
    ldlm::{LockId, Mode, Policy, Resource},
    ost::{Allocate, ObjectAttr, Reply, Request, Seek},
};

use super::{
    locks::FakeLocks,
    world::{Object, State, World},
};

const BLOCK: usize = 4096;

impl World {
    /// Waits until a request may be executed.
    pub async fn hold(&self, ost: u32, request: &Request) {
        let writes = matches!(request, Request::Write { .. });
        let looks = matches!(request, Request::Read { .. } | Request::Attrs { .. } | Request::Seek { .. });
        let locks = matches!(request, Request::Enqueue { locks, .. } if locks.iter().any(|lock| !lock.flags.nowait));
        let waits = |State { habits, locks: FakeLocks { others_group, .. }, .. }: &State| {
            writes && (habits.hold || habits.disconnected == Some(ost))
                || looks && habits.blind
                || locks && *others_group
        };
        self.state.lock().habits.held += usize::from(writes);
        while waits(&self.state.lock()) {
            self.rt.sleep(Duration::from_millis(1)).await;
        }
        self.state.lock().habits.held -= usize::from(writes);
    }

    /// Revokes all locks on an object, for a lock of this mode and range. Returns the number of
    /// locks.
    pub fn want(&self, object: Fid, mode: Mode, policy: Policy) -> usize {
        self.tell(object, |id, cookie, resource| Callback::Blocking { id, cookie, resource, wanted: (mode, policy) })
    }

    /// Sends a glimpse for each lock on an object. Returns the number of locks.
    pub fn glimpse(&self, object: Fid) -> usize {
        self.tell(object, |id, cookie, resource| Callback::Glimpse { id, cookie, resource })
    }

    fn tell(&self, object: Fid, callback: impl Fn(LockId, sheen_wire::ldlm::Cookie, Resource) -> Callback) -> usize {
        let resource = Resource::extent(object);
        let calls: Vec<_> = {
            let state = self.state.lock();
            let held = state.locks.held.iter().filter(|(_, held)| held.resource == resource);
            held.map(|(id, held)| (callback(*id, held.cookie, resource), state.locks.osts[&held.ost.unwrap()].clone()))
                .collect()
        };
        calls.iter().for_each(|(callback, export)| assert!(export.callback::<Ost>(*callback), "there is a connection"));
        calls.len()
    }
}

impl Object {
    pub fn fill(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[offset..end].copy_from_slice(bytes);
        self.blocks.extend(offset / BLOCK..end.div_ceil(BLOCK));
    }

    fn cut(&mut self, size: usize) {
        self.data.resize(size, 0);
        self.blocks.retain(|b| b * BLOCK < size);
    }
}

pub fn execute(state: &mut State, index: u32, request: Request, bulk: Bulk) -> Result<Response<Reply>> {
    let detail = match &request {
        Request::Write { parts, sync, .. } => format!(" parts={} len={} sync={sync}", parts.len(), bulk.len()),
        Request::Read { parts } => format!(" parts={}", parts.len()),
        Request::Attrs { objects } | Request::Sync { objects } => format!(" objects={}", objects.len()),
        Request::Truncate { objects, .. } => format!(" objects={}", objects.len()),
        Request::Enqueue { locks, .. } => format!(" locks={}", locks.len()),
        Request::Cancel { locks } => format!(" locks={}", locks.len()),
        Request::Allocate { runs, .. } => format!(" runs={}", runs.len()),
        _ => String::new(),
    };
    state.log.push(format!("ost{index} {}{detail}", request.op()));
    if let Request::Write { file, .. } | Request::Truncate { file, .. } | Request::Allocate { file, .. } = &request {
        state.habits.files.insert((request.op(), *file));
    }
    if meets(&state.habits.sealed, &request) {
        return Err(Errno::MOVED);
    }
    if matches!(request, Request::Write { .. } | Request::Truncate { .. }) && meets(&state.habits.destroyed, &request) {
        return Err(Errno::ESTALE);
    }
    let now = World::tick(state);
    match request {
        Request::Read { parts } => {
            let (mut lens, mut out) = (Vec::new(), Bulk::new());
            for part in parts {
                let data = state.objects.get(&(index, part.object)).map_or(&[][..], |o| &o.data);
                let start = data.len().min(part.offset as usize);
                let end = data.len().min(part.offset as usize + part.len as usize);
                lens.push((end - start) as u32);
                out.push(bytes::Bytes::copy_from_slice(&data[start..end]));
            }
            Ok(Response::with_bulk(Reply::Read(lens), out))
        }
        Request::Write { held: false, .. } if state.habits.only_held => Ok(Reply::LockFirst.into()),
        Request::Write { parts, mtime, grant, .. } => {
            if state.habits.lock_first > 0 {
                state.habits.lock_first -= 1;
                return Ok(Reply::LockFirst.into());
            }
            if parts.iter().any(|part| Some(part.object) == state.habits.refused) {
                return Ok(Reply::LockFirst.into());
            }
            if let Some(errno) = state.habits.write_error {
                return Err(errno);
            }
            if state.full.contains(&index) {
                return Err(Errno::ENOSPC);
            }
            assert_eq!(parts.iter().map(|p| p.len as usize).sum::<usize>(), bulk.len());
            let data = bulk.into_bytes();
            let mut at = 0;
            for part in parts {
                let object = object(state, index, part.object, now);
                object.fill(part.offset as usize, &data[at..at + part.len as usize]);
                object.mtime = mtime.or(object.mtime);
                at += part.len as usize;
            }
            state.habits.used += grant.used;
            Ok(done(state, index, state.habits.granted(grant.want)).into())
        }
        Request::Enqueue { locks, want } => {
            let answers = locks
                .iter()
                .map(|lock| (state.locks.enqueue(Some(index), lock), attr(state, index, &lock.resource.fid)));
            let answers = answers.collect::<Vec<_>>();
            let (granted, tight) = (state.habits.granted(want), state.habits.tight);
            Ok(Reply::Enqueued { locks: answers, granted, tight }.into())
        }
        Request::Cancel { locks } => {
            state.locks.cancel(Some(index), &locks);
            Ok(Reply::Ok.into())
        }
        Request::Attrs { objects } => {
            Ok(Reply::Attrs(objects.iter().map(|fid| attr(state, index, fid)).collect()).into())
        }
        Request::Truncate { objects, .. } => {
            for (fid, size) in objects {
                if size > 0 || state.objects.contains_key(&(index, fid)) {
                    object(state, index, fid, now).cut(size as usize);
                }
            }
            Ok(done(state, index, 0).into())
        }
        Request::Allocate { mode, runs, .. } => {
            for (fid, offset, len) in runs {
                allocate(object(state, index, fid, now), mode, offset as usize, len as usize);
            }
            Ok(done(state, index, 0).into())
        }
        Request::Seek { object, offset, what } => {
            let Some(object) = state.objects.get(&(index, object)) else { return Ok(Reply::Offset(None).into()) };
            Ok(Reply::Offset(seek(object, offset as usize, what)).into())
        }
        Request::Sync { .. } => Ok(done(state, index, 0).into()),
        Request::Glimpsed { answers } => {
            state.habits.glimpsed.extend(answers);
            Ok(Reply::Ok.into())
        }
        Request::Recover if state.habits.forgetful => Err(Errno::ESTALE),
        // It reports no lost epochs, so that clients notice them by themselves.
        Request::Recover => Ok(Reply::Recovering { epoch: 1, lost: Vec::new() }.into()),
        Request::Replay { changes, .. } => Ok(Reply::Replayed(vec![Ok(()); changes.len()]).into()),
        Request::Destroy { .. }
        | Request::DestroyRange { .. }
        | Request::Recovered { .. }
        | Request::Evict { .. }
        | Request::Present { .. } => Ok(Reply::Ok.into()),
        Request::List { .. }
        | Request::Versions { .. }
        | Request::Seal { .. }
        | Request::Unseal { .. }
        | Request::Link { .. }
        | Request::Follow { .. }
        | Request::SetOwners { .. }
        | Request::QuotaWait
        | Request::QuotaAllow { .. }
        | Request::QuotaUse { .. }
        | Request::Repair { .. }
        | Request::Recreate { .. }
        | Request::Stored { .. } => Err(Errno::EOPNOTSUPP),
        Request::StatFs => {
            let statfs =
                StatFs { bsize: 4096, blocks: 1000, bfree: 900, bavail: 800, files: 500, ffree: 400, state: 0 };
            Ok(Reply::StatFs(statfs).into())
        }
    }
}

/// Whether a request concerns one of these objects.
fn meets(closed: &BTreeSet<Fid>, request: &Request) -> bool {
    match request {
        Request::Read { parts } | Request::Write { parts, .. } => parts.iter().any(|p| closed.contains(&p.object)),
        Request::Attrs { objects } | Request::Sync { objects } => objects.iter().any(|o| closed.contains(o)),
        Request::Truncate { objects, .. } => objects.iter().any(|(o, _)| closed.contains(o)),
        Request::Enqueue { locks, .. } => locks.iter().any(|lock| closed.contains(&lock.resource.fid)),
        _ => false,
    }
}

fn attr(state: &State, index: u32, fid: &Fid) -> ObjectAttr {
    state.objects.get(&(index, *fid)).map_or_else(ObjectAttr::default, |o| ObjectAttr {
        size: o.data.len() as u64,
        blocks: (o.blocks.len() * BLOCK / 512) as u64,
        mtime: o.mtime,
    })
}

fn done(state: &State, index: u32, granted: u64) -> Reply {
    let epoch = state.epochs.get(&index).copied().unwrap_or(1);
    Reply::Done { epoch, granted, transnos: Vec::new(), tight: state.habits.tight }
}

fn object(state: &mut State, index: u32, fid: Fid, now: Time) -> &mut Object {
    let object = state.objects.entry((index, fid)).or_default();
    object.mtime = Some(now);
    object
}

fn allocate(object: &mut Object, mode: Allocate, offset: usize, len: usize) {
    let (end, size) = (offset + len, object.data.len());
    if !matches!(mode, Allocate::Reserve { .. }) {
        let cut = end.min(size);
        if offset < cut {
            object.data[offset..cut].fill(0);
        }
    }
    match mode {
        Allocate::PunchHole => {
            let whole = offset.div_ceil(BLOCK)..end / BLOCK;
            object.blocks.retain(|b| !whole.contains(b));
        }
        Allocate::Reserve { keep_size } | Allocate::ZeroRange { keep_size } => {
            if !keep_size && size < end {
                object.data.resize(end, 0);
            }
            let size = object.data.len();
            object.blocks.extend((offset / BLOCK..end.div_ceil(BLOCK)).filter(|b| b * BLOCK < size));
        }
    }
}

fn seek(object: &Object, offset: usize, what: Seek) -> Option<u64> {
    let size = object.data.len();
    let found = (offset / BLOCK..size.div_ceil(BLOCK)).find(|b| object.blocks.contains(b) == (what == Seek::Data));
    let at = found.map(|b| (b * BLOCK).max(offset));
    match what {
        Seek::Data => at.filter(|at| *at < size).map(|at| at as u64),
        Seek::Hole => Some(at.unwrap_or(size).min(size) as u64),
    }
}
