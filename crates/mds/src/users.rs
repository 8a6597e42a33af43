//! Clients with a host's or user's key. The MDT trusts nothing that they send:
//!
//! * It makes the ids in each request those of the file system ([`Limits::map`]).
//! * Requests without credentials, which other clients check at the open, are checked here.
//! * A request names files by FIDs that the client may have guessed. So the client must be able to
//!   reach each of them ([`sheen_namespace::Namespace::reaches`]).
//! * New files have FIDs of sequences that the MDT gave the client.
//! * The client gets capabilities for the objects of files that it may read or write
//!   ([`Capability`]).
//! * A replay is executed only with a proof that an MDT has executed the change before. Layouts
//!   that the client knows are not adopted.
//!
//! An owner may do everything with a file, because the owner may change its mode. An open file
//! gives the rights of its flags.
//!
//! A host without limits gets capabilities and proofs, too, so that limits can be set at any time.

use bytes::Bytes;
use serde::Serialize;
use sheen_lnet::Signer;
use sheen_namespace::{ClientId, Done, EXEC, READ, Reach, WRITE};
use sheen_rpc::Export;
use sheen_wire::auth::{Proof, Role};
use sheen_wire::ldlm::{Enqueue, Mode};
use sheen_wire::mds::{
    Answer, Call, Change, Closed, Opener, REOPENS_MAX, Reopened, Replay, Reply, Request, SEQUENCES_MAX, flags,
};
use sheen_wire::nodemap::Nodemaps;
use sheen_wire::ost::{CAPABILITIES_MAX, CAPABILITY_PURPOSE, CAPABILITY_SECS, Capability, rights};
use sheen_wire::{Errno, Fid, Result, Time, frame};

use crate::limits::{Limits, limits_of_users};
use crate::mdt::Mdt;
use crate::state::core::Core;
use crate::state::sequences::Holder;

/// Purpose of the proofs of sequences.
const SEQUENCE_PURPOSE: &[u8] = b"sheen sequence 1";
/// Purpose of the proofs of changes.
const CHANGE_PURPOSE: &[u8] = b"sheen change 1";

/// Returns the rights that open files with these flags give.
fn needed(flags: u32) -> u32 {
    let writes = if flags & flags::ACCMODE == flags::RDONLY { 0 } else { WRITE };
    let reads = if flags & flags::ACCMODE == flags::WRONLY { 0 } else { READ };
    writes | reads
}

/// Returns the FID for a new file in a request.
fn new_fid(request: &Request) -> Option<Fid> {
    match request {
        Request::Create { fid, .. } | Request::OpenCreate { fid, .. } | Request::TmpFile { fid, .. } => Some(*fid),
        Request::Rename { whiteout, .. } => whiteout.as_deref().copied(),
        _ => None,
    }
}

/// Whether a request unlocks what a program has locked.
fn is_unlock(want: &Enqueue) -> bool {
    want.mode == Mode::Nl
}

/// Whether a file exists, and the client can reach it.
fn is_reached(core: &mut Core, export: &Export, fid: Fid, reach: &mut Reach<'_>) -> bool {
    let exists = core.ns.exists(fid).unwrap_or(false);
    exists && core.ns.reaches(ClientId(export.id()), fid, reach).unwrap_or(false)
}

/// Prepares a request of a client that may do nothing any more: it may end its use of files.
/// `None`: it must not be executed.
fn end_use(request: &mut Request) -> Option<()> {
    match request {
        Request::Cancel | Request::OwnSequences { .. } | Request::Recovered | Request::Replay { .. } => {}
        Request::Close { files } => files.iter_mut().for_each(|closed| closed.read = None),
        Request::Reopen { files, .. } => files.iter_mut().for_each(|file| file.fid = Fid::ZERO),
        Request::AdoptLayouts { layouts } => layouts.clear(),
        Request::Relock { locks } => locks.iter_mut().for_each(|want| want.resource.fid = Fid::ZERO),
        Request::Enqueue(want) if is_unlock(want) => {}
        _ => return None,
    }
    Some(())
}

/// Removes the user who opened the file: the user is for the changelog alone, and the rules that
/// mapped the ids may have changed since.
fn forget_opener(request: &mut Request) {
    if let Request::LayoutIntent { opener, .. } = request {
        *opener = Opener::UNKNOWN;
    }
}

/// An executed change, as its proof covers it.
#[derive(Serialize)]
struct ProvedChange<'a> {
    mdt: &'a str,
    holder: &'a str,
    request: &'a Request,
    transno: u64,
    time: Time,
    layout: Option<&'a Bytes>,
    /// The file that the request opened.
    opened: Option<Fid>,
}

/// Returns the holder of a client's sequences.
fn holder_of(export: &Export) -> Holder {
    match export.role() {
        Role::User(user) => Holder::User(user.uid),
        Role::Server | Role::Host(_) => Holder::Client(export.id()),
    }
}

fn may(
    core: &mut Core,
    export: &Export,
    limits: &Limits<'_>,
    fid: Fid,
    wanted: u32,
    reach: &mut Reach<'_>,
) -> Result<()> {
    let rights = limits.rights(core, export, fid, reach)?;
    if rights & wanted == wanted { Ok(()) } else { Err(Errno::EACCES) }
}

impl Mdt {
    /// Returns the holder of the client's capabilities and proofs, with the signer for a purpose.
    /// `None`: the client needs none.
    fn signing(&self, export: &Export, purpose: &[u8]) -> Option<(String, Signer)> {
        let holder = export.role().holder()?;
        Some((holder, self.net.signer(purpose)?))
    }

    /// Makes a request one that the client may send. Does nothing for clients without limits.
    ///
    /// # Errors
    /// EACCES: the client may not do this. EROFS: it may change nothing. EINVAL: an owner is not
    /// known. [`Errno::UNKNOWN_SEQUENCE`]: a new file has a FID of others. E2BIG: too many files.
    pub(crate) fn confine(&self, export: &Export, call: &mut Call) -> Result<()> {
        // The directory to be mounted is found with the limits of the client.
        if *export.role() == Role::Server || matches!(call.request, Request::Root { .. }) {
            return Ok(());
        }
        let nodemaps = self.nodemaps.get();
        let limits = match self.limits(&nodemaps, export) {
            Ok(Some(limits)) => limits,
            Ok(None) => return Ok(()),
            Err(errno) => return end_use(&mut call.request).ok_or(errno),
        };
        limits.check_change(&mut call.request)?;
        limits.check_xattr(&call.request)?;
        let (mut core, mut reach) = (self.core.lock(), limits.reach());
        let own_work = limits.is_own_work(&mut core, export, &call.request);
        limits.map(&mut call.request, own_work)?;
        let new = new_fid(&call.request);
        if new.is_some_and(|fid| !self.sequences.lock().has(holder_of(export), fid.seq)) {
            return Err(Errno::UNKNOWN_SEQUENCE);
        }
        match &mut call.request {
            Request::ReadDir { fid, attrs, .. } => {
                let rights = limits.rights(&mut core, export, *fid, &mut reach)?;
                // Names need the right to read, everything else that to search.
                *attrs &= rights & EXEC != 0;
                if rights & READ != 0 { Ok(()) } else { Err(Errno::EACCES) }
            }
            Request::LayoutIntent { fid, .. } => may(&mut core, export, &limits, *fid, WRITE, &mut reach),
            Request::Reopen { files, .. } if files.len() > REOPENS_MAX => Err(Errno::E2BIG),
            Request::Reopen { files, .. } => {
                for Reopened { fid, flags, .. } in files {
                    let rights = limits.rights_to_reopen(&mut core, export, *fid, &mut reach);
                    if limits.user().is_some() || rights.is_ok_and(|rights| rights & EXEC == 0) {
                        *flags &= !flags::EXEC; // it would keep the owner from writing
                    }
                    if !rights.is_ok_and(|rights| rights & needed(*flags) == needed(*flags)) {
                        *fid = Fid::ZERO; // there is no such file: the reply says so
                    }
                }
                Ok(())
            }
            // It may read the attributes of these files, and so set their access times.
            Request::Close { files } => {
                for Closed { fid, read, .. } in files.iter_mut().filter(|closed| closed.read.is_some()) {
                    *read = read.filter(|_| is_reached(&mut core, export, *fid, &mut reach));
                }
                Ok(())
            }
            Request::Enqueue(want) if is_unlock(want) => Ok(()),
            Request::Enqueue(want) => {
                let is_reached = is_reached(&mut core, export, want.resource.fid, &mut reach);
                if is_reached { Ok(()) } else { Err(Errno::EACCES) }
            }
            Request::Relock { locks } => {
                for want in locks {
                    if !is_reached(&mut core, export, want.resource.fid, &mut reach) {
                        want.resource.fid = Fid::ZERO; // a lock on nothing
                    }
                }
                Ok(())
            }
            Request::AdoptLayouts { layouts } => {
                layouts.clear();
                Ok(())
            }
            request @ (Request::TakeLayout { .. } | Request::SwapLayouts { .. }) => {
                self.check_fids(&mut core, export, request, Some(&limits))
            }
            _ => Ok(()), // checked when it is executed
        }
    }

    /// Checks that the client can reach the files in a request. With the lock of the core held in
    /// which the request is executed: another client could create a missing file before.
    ///
    /// # Errors
    /// EACCES: it cannot reach one. ENOENT: it cannot reach an orphan.
    pub(crate) fn check_fids(
        &self,
        core: &mut Core,
        export: &Export,
        request: &Request,
        limits: Option<&Limits<'_>>,
    ) -> Result<()> {
        let Some(limits) = limits else { return Ok(()) };
        let (mut involved, mut reach) = (Vec::new(), limits.reach());
        core.ns.involved(request, &mut |fid| involved.push(fid));
        for fid in involved {
            if !core.ns.reaches(ClientId(export.id()), fid, &mut reach)? {
                return Err(if core.ns.has_name(fid)? { Errno::EACCES } else { Errno::ENOENT });
            }
        }
        Ok(())
    }

    /// Returns the limits with which a request is executed, after [`Mdt::confine`].
    ///
    /// # Errors
    /// As [`Mdt::limits`], unless the request only ends the use of files.
    pub(crate) fn limits_to_execute<'a>(
        &self,
        nodemaps: &'a Nodemaps,
        export: &'a Export,
        request: &Request,
    ) -> Result<Option<Limits<'a>>> {
        match self.limits(nodemaps, export) {
            Err(_) if matches!(request, Request::Close { .. } | Request::Reopen { .. }) => Ok(None),
            limits => limits,
        }
    }

    /// Gives the client a new sequence. Returns the reply to it.
    pub(crate) fn give_sequence(&self, export: &Export, reply: Reply) -> Reply {
        let Reply::Seq(seq) = reply else { return reply };
        let Some((holder, signer)) = self.signing(export, SEQUENCE_PURPOSE) else {
            return reply;
        };
        self.sequences.lock().insert(holder_of(export), seq);
        if export.is_ended() {
            self.sequences.lock().disconnected(export.id()); // that is not reported again
        }
        signer.sign(&self.sequence(&holder, seq)).last().map_or(reply, |proof| Reply::OwnSeq(seq, proof))
    }

    /// Records the sequences that an earlier life of the MDT gave the client. Returns those that it
    /// may still use.
    ///
    /// # Errors
    /// E2BIG: too many.
    pub(crate) fn own_sequences(&self, export: &Export, sequences: &[(u64, Proof)]) -> Result<Reply> {
        if sequences.len() > SEQUENCES_MAX {
            return Err(Errno::E2BIG);
        }
        if let Some((holder, signer)) = self.signing(export, SEQUENCE_PURPOSE) {
            let is_valid = |(seq, proof): &&(u64, Proof)| signer.is_valid(&self.sequence(&holder, *seq), proof);
            // Before the lock that all clients share.
            let valid: Vec<_> = sequences.iter().filter(is_valid).collect();
            let (owner, mut own) = (holder_of(export), self.sequences.lock());
            valid.into_iter().filter(|_| !export.is_ended()).for_each(|(seq, _)| own.insert(owner, *seq));
            let accepted = sequences.iter().map(|(seq, _)| *seq).filter(|seq| own.has(owner, *seq));
            return Ok(Reply::Sequences(accepted.collect()));
        }
        Ok(Reply::Sequences(sequences.iter().map(|(seq, _)| *seq).collect()))
    }

    /// Returns what the proof of a sequence covers.
    fn sequence(&self, holder: &str, seq: u64) -> Vec<u8> {
        [&seq.to_le_bytes()[..], self.name.as_bytes(), b" ", holder.as_bytes()].concat()
    }

    /// Makes an answer one that the client may see: with its ids, and without names that it may not
    /// see.
    ///
    /// # Errors
    /// As [`Mdt::limits`]: the rules have changed since the request was executed.
    pub(crate) fn show(&self, export: &Export, request: &Request, answer: &mut Answer) -> Result<()> {
        if *export.role() == Role::Server {
            return Ok(());
        }
        let nodemaps = self.nodemaps.get();
        match self.limits(&nodemaps, export) {
            Ok(limits) => {
                limits.inspect(|limits| limits.show(&self.core, export, request, answer));
                Ok(())
            }
            // It has ended its use of files ([`end_use`]).
            Err(errno) => match &mut answer.reply {
                Reply::Attrs(attrs) => {
                    attrs.clear();
                    Ok(())
                }
                Reply::Ok | Reply::Handles(_) | Reply::Sequences(_) | Reply::Replayed(_) | Reply::Enqueued(_) => Ok(()),
                _ => Err(errno),
            },
        }
    }

    /// Returns whether the client may read a file's bytes.
    pub(crate) fn may_read(&self, export: &Export, fid: Fid) -> bool {
        if *export.role() == Role::Server {
            return true;
        }
        self.rights_of(export, fid).is_ok_and(|rights| rights & READ != 0)
    }

    /// Returns the client's rights on a file.
    ///
    /// # Errors
    /// As [`Limits::rights`].
    fn rights_of(&self, export: &Export, fid: Fid) -> Result<u32> {
        let nodemaps = self.nodemaps.get();
        match self.limits(&nodemaps, export)? {
            Some(limits) => limits.rights(&mut self.core.lock(), export, fid, &mut limits.reach()),
            None => Ok(READ | WRITE),
        }
    }

    /// Returns capabilities for all objects of a file, as far as the client may use it. None for
    /// clients that need none.
    ///
    /// # Errors
    /// ENOENT: the file is deleted.
    pub(crate) fn capabilities(&self, export: &Export, fid: Fid) -> Result<Vec<Capability>> {
        let Some((holder, signer)) = self.signing(export, CAPABILITY_PURPOSE) else {
            return Ok(Vec::new());
        };
        let allowed = self.rights_of(export, fid)? & (READ | WRITE);
        let layout = if allowed == 0 { None } else { self.core.lock().ns.layout(fid)? };
        let right = |mask, right| if allowed & mask != 0 { right } else { 0 };
        let rights = right(READ, rights::READ) | right(WRITE, rights::WRITE);
        let expires = self.rt.wall().sec.saturating_add(CAPABILITY_SECS);
        let objects = layout.iter().flat_map(|layout| layout.all_objects()).map(|stripe| stripe.object);
        let capabilities = objects.flat_map(|object| {
            let message = Capability::message(&self.config.fsname, &holder, object, rights, expires);
            let proofs: Vec<Proof> = signer.sign(&message).collect();
            proofs.into_iter().map(move |proof| Capability { object, rights, expires, proof })
        });
        Ok(capabilities.take(CAPABILITIES_MAX).collect())
    }

    /// Adds the proof of a change to the MDT's decisions about it, for a client that needs one.
    pub(crate) fn prove(&self, export: &Export, request: &Request, done: &Done, change: &mut Change) {
        let Some((holder, signer)) = self.signing(export, CHANGE_PURPOSE) else {
            return;
        };
        let mut request = request.clone();
        request.prepare_replay(&done.reply, change.time);
        forget_opener(&mut request);
        let layout = change.layout.as_ref().or(match &done.reply {
            Reply::Opened { entry, .. } | Reply::Entry(entry) => entry.layout.as_ref(),
            _ => None,
        });
        let opened = if let Reply::Opened { entry, .. } = &done.reply { Some(entry.attr.fid) } else { None };
        let (mdt, holder, transno, time) = (&self.name[..], &holder[..], done.transno, change.time);
        let executed = ProvedChange { mdt, holder, request: &request, transno, time, layout, opened };
        change.proof = frame::to_body(&executed).ok().and_then(|message| signer.sign(&message).last());
    }

    /// Makes a replayed request one that the client may send, and checks its proof. Does nothing
    /// for clients without limits.
    ///
    /// # Errors
    /// EPERM: no MDT of the cluster has executed it for this client. Others as [`Limits::map`].
    pub(crate) fn confine_replay(&self, export: &Export, replay: &Replay, request: &mut Request) -> Result<()> {
        let Some(holder) = export.role().holder() else { return Ok(()) };
        let nodemaps = self.nodemaps.get();
        let Some(limits) = limits_of_users(&nodemaps, export)? else { return Ok(()) };
        // The proof says whether it was executed so: as the work of the mount itself, or before the
        // client had limits.
        if !self.is_proved(&holder, replay, request) {
            limits.map(request, false)?;
            if !self.is_proved(&holder, replay, request) {
                return Err(Errno::EPERM);
            }
        } else if let Request::LayoutIntent { opener, .. } = request {
            limits.map_opener(opener); // the proof does not cover it
        }
        // The name may be absent now. Then this must not create a file with the objects of another.
        if let (Request::OpenCreate { cred, flags, .. }, Some(fid)) = (&*request, replay.named.first().copied())
            && flags & flags::EXCL == 0
        {
            *request = Request::Open { cred: cred.clone(), fid, flags: *flags };
        }
        Ok(())
    }

    /// Whether an MDT has executed a replayed request for this holder.
    fn is_proved(&self, holder: &str, replay: &Replay, request: &Request) -> bool {
        let mut request = request.clone();
        forget_opener(&mut request);
        let Replay { transno, time, layout, named, proof, .. } = replay;
        let opens = matches!(request, Request::Open { .. } | Request::OpenCreate { .. } | Request::TmpFile { .. });
        let opened = named.first().copied().filter(|_| opens);
        let (mdt, transno, time) = (&self.name[..], *transno, *time);
        let message = frame::to_body(&ProvedChange {
            mdt,
            holder,
            request: &request,
            transno,
            time,
            layout: layout.as_ref(),
            opened,
        });
        match (message, self.net.signer(CHANGE_PURPOSE), proof) {
            (Ok(message), Some(signer), Some(proof)) => signer.is_valid(&message, proof),
            _ => false,
        }
    }

    /// Adds the proof of a change, if it may have to be replayed. With the lock of the core held.
    pub(crate) fn decided(&self, core: &mut Core, export: &Export, request: &Request, done: &Done) -> Option<Change> {
        let mut change = core.decided(request, done)?;
        // The request could be another one than that which was executed.
        if done.repeated && *export.role() != Role::Server {
            return None;
        }
        self.prove(export, request, done, &mut change);
        Some(change)
    }
}
