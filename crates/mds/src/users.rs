//! Clients that act as one user (their key is a user's). The MDT trusts nothing that they send:
//!
//! * This module rewrites the credentials of each request to the user's, whatever it says.
//! * Requests without credentials, which other clients check at the open, are checked here.
//! * A request names files by FIDs that the client may have guessed. So the user must be able to
//!   reach each of them ([`sheen_namespace::Namespace::reaches`]), as the kernel checks on a path.
//! * New files have FIDs of sequences that the MDT gave the user.
//! * The client gets capabilities for the objects of files that the user may read or write
//!   ([`Capability`]).
//! * A replay is executed only with a proof that an MDT has executed the change before. Layouts
//!   that the client knows are not adopted.
//!
//! An owner may do everything with a file, because the owner may change its mode. An open file
//! gives the rights of its flags.

use bytes::Bytes;
use serde::Serialize;
use sheen_lnet::Signer;
use sheen_namespace::{ClientId, Done, EXEC, Paths, READ, WRITE};
use sheen_rpc::Export;
use sheen_wire::auth::{Proof, User};
use sheen_wire::mds::{Call, Change, REOPENS_MAX, Replay, Reply, Request, SEQUENCES_MAX, flags};
use sheen_wire::ost::{CAPABILITIES_MAX, CAPABILITY_PURPOSE, CAPABILITY_SECS, Capability, rights};
use sheen_wire::{Cred, Errno, Fid, Result, Time, frame};

use crate::mdt::Mdt;
use crate::state::core::Core;

/// Purpose of the proofs of sequences.
const SEQUENCE_PURPOSE: &[u8] = b"sheen sequence 1";
/// Purpose of the proofs of changes.
const CHANGE_PURPOSE: &[u8] = b"sheen change 1";

/// Returns the credentials with which the MDT checks requests that have none.
fn cred(user: &User) -> Cred {
    let mut cred = Cred { uid: user.uid, gid: user.gid, groups: None };
    user.confine(&mut cred);
    cred
}

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

/// An executed change, as its proof covers it.
#[derive(Serialize)]
struct ProvedChange<'a> {
    mdt: &'a str,
    uid: u32,
    request: &'a Request,
    transno: u64,
    time: Time,
    layout: Option<&'a Bytes>,
    /// The file that the request opened.
    opened: Option<Fid>,
}

/// Returns the rights of the client's user on a file: none if the user cannot reach it.
fn rights(core: &mut Core, export: &Export, user: &User, fid: Fid, paths: &mut Paths) -> Result<u32> {
    let (client, cred) = (ClientId(export.id()), cred(user));
    let rights = core.ns.rights(client, &cred, fid)?;
    Ok(if core.ns.reaches(client, &cred, fid, paths)? { rights } else { 0 })
}

impl Mdt {
    fn may(&self, export: &Export, user: &User, fid: Fid, wanted: u32, paths: &mut Paths) -> Result<()> {
        let rights = rights(&mut self.core.lock(), export, user, fid, paths)?;
        if rights & wanted == wanted { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Returns the client's user with the signer for a purpose. `None`: the client needs no proofs.
    fn signing<'a>(&self, export: &'a Export, purpose: &[u8]) -> Option<(&'a User, Signer)> {
        let user = export.user()?;
        Some((user, self.net.signer(purpose)?))
    }

    /// Makes a request that of the client's user. Does nothing for other clients.
    ///
    /// # Errors
    /// EACCES: the user may not do this. [`Errno::UNKNOWN_SEQUENCE`]: a new file has a FID of
    /// others. E2BIG: too many files.
    pub(crate) fn confine(&self, export: &Export, call: &mut Call) -> Result<()> {
        let Some(user) = export.user() else { return Ok(()) };
        if let Some(cred) = call.request.cred_mut() {
            user.confine(cred);
        }
        let mut paths = Paths::default();
        self.check_fids(export, user, &call.request, &mut paths)?;
        match &mut call.request {
            Request::ReadDir { fid, attrs, .. } => {
                let rights = rights(&mut self.core.lock(), export, user, *fid, &mut paths)?;
                // Names need the right to read, everything else that to search.
                *attrs &= rights & EXEC != 0;
                if rights & READ != 0 { Ok(()) } else { Err(Errno::EACCES) }
            }
            Request::LayoutIntent { fid, .. } => self.may(export, user, *fid, WRITE, &mut paths),
            Request::Reopen { files, .. } if files.len() > REOPENS_MAX => Err(Errno::E2BIG),
            Request::Reopen { files, .. } => {
                for (fid, flags, _) in files {
                    *flags &= !flags::EXEC; // it would keep the owner from writing
                    if self.may(export, user, *fid, needed(*flags), &mut paths).is_err() {
                        *fid = Fid::ZERO; // there is no such file: the reply says so
                    }
                }
                Ok(())
            }
            Request::AdoptLayouts { layouts } => {
                layouts.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks the FIDs in a request.
    ///
    /// # Errors
    /// EACCES: the user cannot reach a file. [`Errno::UNKNOWN_SEQUENCE`]: a new file has a FID of
    /// others.
    fn check_fids(&self, export: &Export, user: &User, request: &Request, paths: &mut Paths) -> Result<()> {
        let fid = new_fid(request);
        if fid.is_some_and(|fid| !self.sequences.lock().has(user.uid, fid.seq)) {
            return Err(Errno::UNKNOWN_SEQUENCE);
        }
        let (mut core, client, cred) = (self.core.lock(), ClientId(export.id()), cred(user));
        let mut involved = Vec::new();
        core.ns.involved(request, &mut |fid| involved.push(fid));
        for fid in involved {
            if !core.ns.reaches(client, &cred, fid, paths)? {
                return Err(Errno::EACCES);
            }
        }
        Ok(())
    }

    /// Gives the client's user a new sequence. Returns the reply to the client.
    pub(crate) fn give_sequence(&self, export: &Export, reply: Reply) -> Reply {
        let Reply::Seq(seq) = reply else { return reply };
        let Some((user, signer)) = self.signing(export, SEQUENCE_PURPOSE) else {
            return reply;
        };
        self.sequences.lock().insert(user.uid, seq);
        signer.sign(&self.sequence(user, seq)).last().map_or(reply, |proof| Reply::OwnSeq(seq, proof))
    }

    /// Records the sequences that an earlier life of the MDT gave the client's user. Returns those
    /// that the client may still use.
    ///
    /// # Errors
    /// E2BIG: too many.
    pub(crate) fn own_sequences(&self, export: &Export, sequences: &[(u64, Proof)]) -> Result<Reply> {
        if sequences.len() > SEQUENCES_MAX {
            return Err(Errno::E2BIG);
        }
        if let Some((user, signer)) = self.signing(export, SEQUENCE_PURPOSE) {
            let valid = sequences.iter().filter(|(seq, proof)| signer.is_valid(&self.sequence(user, *seq), proof));
            valid.for_each(|(seq, _)| self.sequences.lock().insert(user.uid, *seq));
            let mut own = self.sequences.lock();
            let accepted = sequences.iter().map(|(seq, _)| *seq).filter(|seq| own.has(user.uid, *seq));
            return Ok(Reply::Sequences(accepted.collect()));
        }
        Ok(Reply::Sequences(sequences.iter().map(|(seq, _)| *seq).collect()))
    }

    /// Returns what the proof of a sequence covers.
    fn sequence(&self, user: &User, seq: u64) -> Vec<u8> {
        [&user.uid.to_le_bytes(), &seq.to_le_bytes()[..], self.name.as_bytes()].concat()
    }

    /// Removes what the client's user may not see from a reply: names in directories that the user
    /// may not read.
    pub(crate) fn censor(&self, export: &Export, reply: &mut Reply) {
        if let (Some(user), Reply::Parents(parents)) = (export.user(), reply) {
            parents.retain(|(parent, _)| self.may(export, user, *parent, READ, &mut Paths::default()).is_ok());
        }
    }

    /// Returns whether the client may read a file's bytes.
    pub(crate) fn may_read(&self, export: &Export, fid: Fid) -> bool {
        export.user().is_none_or(|user| self.may(export, user, fid, READ, &mut Paths::default()).is_ok())
    }

    /// Returns capabilities for all objects of a file, as far as the client's user may use it. None
    /// for clients that need none.
    ///
    /// # Errors
    /// ENOENT: the file is deleted.
    pub(crate) fn capabilities(&self, export: &Export, fid: Fid) -> Result<Vec<Capability>> {
        let Some((user, signer)) = self.signing(export, CAPABILITY_PURPOSE) else {
            return Ok(Vec::new());
        };
        let (allowed, layout) = {
            let mut core = self.core.lock();
            let allowed = rights(&mut core, export, user, fid, &mut Paths::default())? & (READ | WRITE);
            (allowed, if allowed == 0 { None } else { core.ns.layout(fid)? })
        };
        let right = |mask, right| if allowed & mask != 0 { right } else { 0 };
        let rights = right(READ, rights::READ) | right(WRITE, rights::WRITE);
        let expires = self.rt.wall().sec.saturating_add(CAPABILITY_SECS);
        let objects = layout.iter().flat_map(|layout| layout.all_objects()).map(|stripe| stripe.object);
        let capabilities = objects.flat_map(|object| {
            let message = Capability::message(&self.config.fsname, user.uid, object, rights, expires);
            let proofs: Vec<Proof> = signer.sign(&message).collect();
            proofs.into_iter().map(move |proof| Capability { object, rights, expires, proof })
        });
        Ok(capabilities.take(CAPABILITIES_MAX).collect())
    }

    /// Adds the proof of a change to the MDT's decisions about it, for a client that needs one.
    pub(crate) fn prove(&self, export: &Export, request: &Request, done: &Done, change: &mut Change) {
        let Some((user, signer)) = self.signing(export, CHANGE_PURPOSE) else {
            return;
        };
        let (mut request, is_new) = (request.clone(), matches!(done.reply, Reply::Opened { created: true, .. }));
        if let (Request::OpenCreate { flags, .. }, true) = (&mut request, is_new) {
            *flags |= flags::EXCL; // as in the client's replay
        }
        let layout = change.layout.as_ref().or(match &done.reply {
            Reply::Opened { entry, .. } | Reply::Entry(entry) => entry.layout.as_ref(),
            _ => None,
        });
        let opened = if let Reply::Opened { entry, .. } = &done.reply { Some(entry.attr.fid) } else { None };
        let (mdt, uid, transno, time) = (&self.name[..], user.uid, done.transno, change.time);
        let executed = ProvedChange { mdt, uid, request: &request, transno, time, layout, opened };
        change.proof = frame::to_body(&executed).ok().and_then(|message| signer.sign(&message).last());
    }

    /// Makes a replayed request that of the client's user, and checks its proof. Does nothing for
    /// other clients.
    ///
    /// # Errors
    /// EPERM: no MDT of the cluster has executed it for this user.
    pub(crate) fn confine_replay(&self, export: &Export, replay: &Replay, request: &mut Request) -> Result<()> {
        let Some(user) = export.user() else { return Ok(()) };
        if let Some(cred) = request.cred_mut() {
            user.confine(cred);
        }
        let Replay { transno, time, layout, named, proof, .. } = replay;
        let opens = matches!(request, Request::Open { .. } | Request::OpenCreate { .. } | Request::TmpFile { .. });
        let opened = named.first().copied().filter(|_| opens);
        let (mdt, uid, transno, time) = (&self.name[..], user.uid, *transno, *time);
        let message =
            frame::to_body(&ProvedChange { mdt, uid, request, transno, time, layout: layout.as_ref(), opened });
        match (message, self.net.signer(CHANGE_PURPOSE), proof) {
            (Ok(message), Some(signer), Some(proof)) if signer.is_valid(&message, proof) => {}
            _ => return Err(Errno::EPERM),
        }
        // The name may be absent now. Then this must not create a file with the objects of another.
        if let (Request::OpenCreate { cred, flags, .. }, Some(fid)) = (&*request, opened)
            && flags & flags::EXCL == 0
        {
            *request = Request::Open { cred: cred.clone(), fid, flags: *flags };
        }
        Ok(())
    }

    /// Adds the proof of a change, if it may have to be replayed. With the lock of the core held.
    pub(crate) fn decided(&self, core: &mut Core, export: &Export, request: &Request, done: &Done) -> Option<Change> {
        let mut change = core.decided(request, done)?;
        // The request could be another one than that which was executed.
        if done.repeated && export.user().is_some() {
            return None;
        }
        self.prove(export, request, done, &mut change);
        Some(change)
    }
}
