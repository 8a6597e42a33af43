//! The fake MDT. It checks no permissions.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_layout::{Asked, Count, Defaults, Layout, Stripe, resolve_asked};
use sheen_wire::{
    Attr, Cred, Errno, Fid, FileKind, Result, StatFs, Time, changelog, fid,
    ldlm::bits,
    mds::{Closed, DirEntry, Entry, NO_HANDLE, NewNode, Reply, Request, SetTime, flags},
    seq::{MdtIndex, ost_seq},
};

use super::world::{Node, State, World};

fn unlinked(state: &mut State, fid: Fid) {
    let now = World::tick(state);
    if let Some(Node { attr, .. }) = state.nodes.get_mut(&fid) {
        (attr.nlink, attr.ctime) = (attr.nlink - 1, now);
    }
}

pub fn format(state: &mut State) {
    make(state, fid::ROOT, fid::ROOT, FileKind::Dir, 0o755);
}

fn make(state: &mut State, fid: Fid, parent: Fid, kind: FileKind, perm: u32) {
    let now = World::tick(state);
    let attr = Attr::new(fid, kind, perm, now);
    let (entries, xattrs, target) = (BTreeMap::new(), BTreeMap::new(), Bytes::new());
    state.nodes.insert(fid, Node { attr, layout: None, entries, parent, target, xattrs });
}

fn next(state: &mut State) -> u64 {
    state.next += 1;
    state.next
}

fn object(state: &mut State, ost: u32) -> Fid {
    Fid::new(ost_seq(MdtIndex::ZERO, ost), next(state) as u32)
}

/// Creates `count` objects, on the first OSTs.
fn objects(state: &mut State, count: Count) -> Vec<Stripe> {
    let osts = state.config.targets.len() as u16 - 1;
    let count = if let Count::Stripes(n) = count { n.min(osts) } else { osts };
    (0..u32::from(count)).map(|ost| Stripe { object: object(state, ost), ost }).collect()
}

/// Replaces a file's layout.
pub fn change(state: &mut State, fid: Fid, change: impl FnOnce(Layout) -> Layout) -> Layout {
    let node = state.nodes.get_mut(&fid).expect("the file");
    let layout = change(Layout::decode(node.layout.as_ref().expect("its layout")).expect("a layout"));
    node.layout = Some(layout.encode().into());
    layout
}

/// Adds objects to a file in a range, and chooses one mirror to write to.
pub fn intend(state: &mut State, fid: Fid, start: u64, end: u64) -> Result<Layout> {
    let bytes = state.nodes.get(&fid).and_then(|node| node.layout.clone()).ok_or(Errno::ENODATA)?;
    let mut layout = Layout::decode(&bytes)?;
    if let Some(primary) = layout.primary(|_| true).filter(|_| !layout.takes_writes()) {
        layout = change(state, fid, |layout| layout.with_stale_others(primary).expect("it is fresh"));
    }
    let wanting = layout.wanting(start, end - start);
    if !wanting.is_empty() {
        let give = |i: usize| (i, objects(state, layout.wanted_of(i).expect("it wants some").count));
        let given = wanting.into_iter().map(give).collect();
        layout.instantiate(given)?;
        state.nodes.get_mut(&fid).expect("it is there").layout = Some(layout.encode().into());
    }
    Ok(layout)
}

fn give_layout(state: &mut State, fid: Fid) {
    if let Some(template) = state.template.clone() {
        let wanted = resolve_asked(&Asked::Composite(template), None, None, &Defaults::default(), 0);
        let first = wanted.first().into_iter().map(|(i, wanted)| (i, objects(state, wanted.count))).collect();
        let layout = wanted.layout(fid, first).expect("a layout");
        state.nodes.get_mut(&fid).expect("the file").layout = Some(layout.encode().into());
        return;
    }
    let Some((stripe_size, osts)) = state.layout.clone() else { return };
    let stripe = |ost: &u32| Stripe { object: object(state, *ost), ost: *ost };
    let stripes = osts.iter().map(stripe).collect();
    let layout = Layout::new(fid, stripe_size, None, stripes).expect("a layout");
    state.nodes.get_mut(&fid).expect("the file").layout = Some(layout.encode().into());
}

fn entry(state: &State, fid: Fid) -> Result<Entry> {
    let node = state.nodes.get(&fid).ok_or(Errno::ESTALE)?;
    Ok(Entry { attr: node.attr, layout: node.layout.clone(), xattrs: !node.xattrs.is_empty() })
}

fn link(state: &mut State, parent: Fid, name: Bytes, fid: Fid) -> Result<()> {
    let cookie = next(state);
    let entries = &mut state.nodes.get_mut(&parent).ok_or(Errno::ENOENT)?.entries;
    if entries.contains_key(&name) {
        return Err(Errno::EEXIST);
    }
    entries.insert(name, (fid, cookie));
    Ok(())
}

fn open(state: &mut State, fid: Fid, open_flags: u32, created: bool) -> Result<Reply> {
    let node = state.nodes.get(&fid).ok_or(Errno::ESTALE)?;
    if node.attr.kind == FileKind::Regular && node.layout.is_none() && flags::writes(open_flags) {
        give_layout(state, fid);
    }
    if open_flags & flags::TRUNC != 0 {
        touch(state, fid);
    }
    let handle = next(state);
    state.open.insert(handle, fid);
    Ok(Reply::Opened { handle, entry: entry(state, fid)?, created, tight: state.habits.tight_opens })
}

fn touch(state: &mut State, fid: Fid) {
    let now = World::tick(state);
    if let Some(Node { attr, .. }) = state.nodes.get_mut(&fid) {
        (attr.mtime, attr.mtime_set, attr.ctime) = (now, now, now);
    }
}

fn check(state: &State, cred: &Cred) -> Result<()> {
    match (&state.groups_wanted, &cred.groups) {
        (None, _) => Ok(()),
        (Some(_), None) => Err(Errno::NEED_GROUPS),
        (Some(wanted), Some(groups)) if wanted == groups => Ok(()),
        _ => Err(Errno::EACCES),
    }
}

/// Returns the inodes in a reply, and the lock bits to grant on each.
pub fn inodes(reply: &Reply) -> Vec<(Fid, u64)> {
    let of = |entry: &Entry| {
        let opens = entry.attr.kind == FileKind::Regular && entry.attr.nlink > 0;
        let open = if opens { bits::OPEN } else { 0 };
        (entry.attr.fid, open | bits::LOOKUP | bits::UPDATE | bits::PERM | bits::XATTR | bits::LAYOUT)
    };
    match reply {
        Reply::Entry(entry) | Reply::Opened { entry, .. } => vec![of(entry)],
        Reply::Entries { entries, .. } => entries.iter().filter_map(|e| e.entry.as_ref().map(of)).collect(),
        _ => Vec::new(),
    }
}

/// Returns the inodes behind the names that a request removes.
pub fn behind(state: &State, request: &Request) -> Vec<Fid> {
    let names = match request {
        Request::Unlink { parent, name, .. } => vec![(parent, name)],
        Request::Rename { parent, name, new_parent, new_name, .. } => vec![(parent, name), (new_parent, new_name)],
        _ => return Vec::new(),
    };
    names.into_iter().filter_map(|(dir, name)| Some(state.nodes.get(dir)?.entries.get(name)?.0)).collect()
}

pub fn execute(state: &mut State, request: Request) -> Result<Reply> {
    match request {
        Request::AllocSeq => Ok(Reply::Seq(fid::SEQ_NORMAL + next(state))),
        Request::Root { .. } => Ok(Reply::Root { fid: fid::ROOT, read_only: false }),
        Request::Lookup { cred, parent, name } => {
            check(state, &cred)?;
            let node = state.nodes.get(&parent).ok_or(Errno::ENOENT)?;
            if node.attr.kind != FileKind::Dir {
                return Err(Errno::ENOTDIR);
            }
            let fid = match &name[..] {
                b"." => parent,
                b".." => node.parent,
                _ => node.entries.get(&name).ok_or(Errno::ENOENT)?.0,
            };
            Ok(Reply::Entry(entry(state, fid)?))
        }
        Request::GetAttr { fid, layout_known } => {
            let mut entry = entry(state, fid)?;
            if layout_known {
                entry.layout = None;
            }
            Ok(Reply::Entry(entry))
        }
        Request::SetAttr { fid, set, handle, .. } => {
            if handle.is_some_and(|h| state.open.get(&h) != Some(&fid)) {
                return Err(Errno::EBADF);
            }
            let now = World::tick(state);
            if set.size.is_some() && state.nodes.get(&fid).is_some_and(|n| n.layout.is_none()) {
                give_layout(state, fid);
            }
            let attr = &mut state.nodes.get_mut(&fid).ok_or(Errno::ESTALE)?.attr;
            attr.ctime = now;
            attr.perm = set.perm.unwrap_or(attr.perm);
            if set.size.is_some() {
                attr.mtime = now;
            }
            if set.size.is_some() || set.mtime.is_some() {
                attr.mtime_set = now;
            }
            match set.mtime {
                Some(SetTime::Now) => attr.mtime = now,
                Some(SetTime::At(time)) => attr.mtime = time,
                None => {}
            }
            if set.kill_priv {
                attr.perm &= 0o1777;
            }
            Ok(Reply::Entry(entry(state, fid)?))
        }
        Request::Create { parent, name, fid, node, mode, .. } => {
            let (kind, target) = match node {
                NewNode::Dir => (FileKind::Dir, Bytes::new()),
                NewNode::Symlink(target) => (FileKind::Symlink, target),
                NewNode::Node { kind, .. } => (kind, Bytes::new()),
            };
            link(state, parent, name, fid)?;
            make(state, fid, parent, kind, mode);
            state.nodes.get_mut(&fid).expect("just made").target = target;
            Ok(Reply::Entry(entry(state, fid)?))
        }
        Request::Open { fid, flags, .. } => open(state, fid, flags, false),
        Request::OpenCreate { parent, name, fid, flags, mode, .. } => {
            let there = state.nodes.get(&parent).and_then(|n| n.entries.get(&name)).map(|e| e.0);
            if let Some(there) = there {
                return open(state, there, flags, false);
            }
            link(state, parent, name, fid)?;
            make(state, fid, parent, FileKind::Regular, mode);
            give_layout(state, fid);
            open(state, fid, flags, true)
        }
        Request::Close { files } => {
            let with_handle = files.iter().filter(|closed| closed.handle != NO_HANDLE).count();
            let read = files.iter().filter(|closed| closed.read.is_some()).count();
            state.log.push(format!("mds closed {with_handle} read {read}"));
            let mut attrs = Vec::new();
            for Closed { fid, handle, read } in files {
                if state.open.get(&handle) == Some(&fid) {
                    state.open.remove(&handle);
                }
                if read.is_some() {
                    // Later than any later change, also by the client's clock.
                    state.nodes.get_mut(&fid).ok_or(Errno::ESTALE)?.attr.atime = Time { sec: i64::MAX, nsec: 0 };
                    attrs.push(entry(state, fid)?.attr);
                }
            }
            Ok(Reply::Attrs(attrs))
        }
        Request::Unlink { parent, name, .. } => {
            let entries = &mut state.nodes.get_mut(&parent).ok_or(Errno::ENOENT)?.entries;
            let (fid, _) = entries.remove(&name).ok_or(Errno::ENOENT)?;
            touch(state, parent);
            unlinked(state, fid);
            Ok(Reply::Ok)
        }
        Request::ReadLink { fid } => Ok(Reply::Bytes(state.nodes.get(&fid).ok_or(Errno::ESTALE)?.target.clone())),
        Request::ReadDir { fid, cookie, max_bytes, attrs } => {
            let node = state.nodes.get(&fid).ok_or(Errno::ESTALE)?;
            let mut all: Vec<_> = node.entries.iter().map(|(n, (f, c))| (*c, n.clone(), *f)).collect();
            all.sort();
            all.retain(|e| e.0 > cookie);
            let eof = all.len() <= max_bytes as usize / 64;
            all.truncate(max_bytes as usize / 64);
            let item = |(cookie, name, fid)| {
                let kind = state.nodes[&fid].attr.kind;
                let entry = if attrs { Some(entry(state, fid)?) } else { None };
                Ok(DirEntry { name, fid, kind, cookie, entry })
            };
            Ok(Reply::Entries { entries: all.into_iter().map(item).collect::<Result<_>>()?, eof })
        }
        Request::GetXattr { fid, name, .. } => {
            let node = state.nodes.get(&fid).ok_or(Errno::ESTALE)?;
            if &name[..] == b"lustre.lov" {
                return node.layout.clone().map(Reply::Bytes).ok_or(Errno::ENODATA);
            }
            node.xattrs.get(&name).cloned().map(Reply::Bytes).ok_or(Errno::ENODATA)
        }
        Request::SetXattr { fid, name, value, .. } => {
            state.nodes.get_mut(&fid).ok_or(Errno::ESTALE)?.xattrs.insert(name, value);
            Ok(Reply::Ok)
        }
        Request::ListXattr { fid, .. } => {
            Ok(Reply::Names(state.nodes.get(&fid).ok_or(Errno::ESTALE)?.xattrs.keys().cloned().collect()))
        }
        Request::StatFs => Ok(Reply::StatFs(StatFs { bsize: 4096, files: 1000, ffree: 900, ..StatFs::default() })),
        Request::Sync { .. } | Request::Access { .. } => Ok(Reply::Ok),
        Request::Paths { cred, fid } => match (cred.uid, state.nodes.contains_key(&fid)) {
            (0, true) => Ok(Reply::Paths(vec![Bytes::from_static(b"a/b")])),
            (0, false) => Err(Errno::ENOENT),
            _ => Err(Errno::EPERM),
        },
        Request::Parents { fid } => {
            let parent = state.nodes.get(&fid).ok_or(Errno::ESTALE)?.parent;
            let named = state.nodes.get(&parent).is_some_and(|n| n.entries.values().any(|(f, _)| *f == fid));
            Ok(Reply::Parents(if named { vec![(parent, Bytes::from_static(b"b"))] } else { vec![] }))
        }
        Request::Reopen { files, .. } => {
            let mut handles = Vec::new();
            for file in files {
                let handle = next(state);
                state.open.insert(handle, file.fid);
                handles.push(Ok(handle));
            }
            Ok(Reply::Handles(handles))
        }
        Request::Rename { parent, name, new_parent, new_name, .. } => {
            let entries = &mut state.nodes.get_mut(&parent).ok_or(Errno::ENOENT)?.entries;
            let (fid, cookie) = entries.remove(&name).ok_or(Errno::ENOENT)?;
            touch(state, fid);
            let entries = &mut state.nodes.get_mut(&new_parent).ok_or(Errno::ENOENT)?.entries;
            if let Some((victim, _)) = entries.insert(new_name, (fid, cookie)) {
                unlinked(state, victim);
            }
            Ok(Reply::Ok)
        }
        Request::Link { fid, parent, name, .. } => {
            link(state, parent, name, fid)?;
            let now = World::tick(state);
            let attr = &mut state.nodes.get_mut(&fid).ok_or(Errno::ESTALE)?.attr;
            (attr.nlink, attr.ctime) = (attr.nlink + 1, now);
            Ok(Reply::Entry(entry(state, fid)?))
        }
        Request::LayoutIntent { fid, start, end, .. } => {
            intend(state, fid, start, end)?;
            Ok(Reply::Entry(entry(state, fid)?))
        }
        Request::LayoutMoved { fid, .. } => {
            if state.habits.unseals {
                state.habits.sealed.clear();
            }
            if let Some(layout) = state.moving.remove(&fid) {
                change(state, fid, |_| layout);
            }
            Ok(Reply::Entry(entry(state, fid)?))
        }
        Request::Cancel | Request::Recovered | Request::AdoptLayouts { .. } => Ok(Reply::Ok),
        // It loses nothing.
        Request::Replay { .. } => Ok(Reply::Replayed(Vec::new())),
        Request::Enqueue(lock) => Ok(Reply::Enqueued(state.locks.flock(&lock))),
        Request::Changelog { start, .. } => {
            let records: Vec<_> = state.changelog.iter().filter(|record| record.index >= start).cloned().collect();
            Ok(Reply::Bytes(changelog::encode(&records).expect("they are encoded").into()))
        }
        _ => Err(Errno::ENOSYS),
    }
}
