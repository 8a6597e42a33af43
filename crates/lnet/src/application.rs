//! Keys for clients that have none: such a client proves as which user it runs, and the server
//! issues the key of that user.
//!
//! Invariants:
//! * The proofs of both ends are for this handshake alone. So nobody between the ends learns the
//!   key, and a proof is of no use elsewhere.
//! * The client accepts a key only from a server that runs as a user whom it trusts.
//! * A few clients are served at a time: a check starts programs and asks for a user's groups.

use std::{io, sync::Arc};

use sheen_keys::{Key, KeyError, Keyring, Witness};
use sheen_rt::Rt;
use sheen_wire::{
    Errno,
    auth::{Auth, ClusterId, IssuedKey, Role},
    frame,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    Audit, Event, Nid, Receiver, Sender,
    auth_error::{AuthError, Stranger},
    auth_message::{denied, post, reply},
    noise::Exchange,
};

/// The name of an end in the text of its proof.
const CLIENT: &str = "client";
const SERVER: &str = "server";

/// How a client applies for a key.
#[derive(Clone, Debug)]
pub struct Applying {
    /// Proves as which user this process runs, and the server.
    pub witness: Arc<dyn Witness>,
    /// Users as whom a server may run that issues keys.
    pub servers: Vec<u32>,
}

/// How a server issues keys.
#[derive(Clone, Debug)]
pub struct Issuing {
    /// Proves as which user this process runs, and the client.
    pub witness: Arc<dyn Witness>,
    /// Root of a host gets a key of the host. Otherwise root gets none.
    pub hosts: bool,
}

/// Runs what blocks.
async fn blocking<T: Send + 'static>(
    rt: &Rt,
    witness: &Arc<dyn Witness>,
    work: impl FnOnce(&dyn Witness) -> T + Send + 'static,
) -> T {
    let witness = witness.clone();
    rt.run_blocking(move || work(&*witness)).await
}

impl Applying {
    /// Applies for a key of this cluster. `exchange`: after `noise 2`, which is sent here.
    pub(crate) async fn apply(
        &self,
        rt: &Rt,
        (sender, receiver): (&Sender, &mut Receiver),
        (mut exchange, noise): (Exchange, Vec<u8>),
        cluster: ClusterId,
    ) -> io::Result<Key> {
        let text = exchange.text(CLIENT);
        let credential = blocking(rt, &self.witness, move |witness| witness.attest(&text)).await;
        let credential = credential.map_err(|e| denied(AuthError::NoWitness(cluster, e)))?;
        post(sender, &Auth::Apply { noise, credential })?;
        let (noise, credential) = match reply(receiver).await? {
            Ok(Auth::Issued { noise, credential }) => (noise, credential),
            Ok(_) => return Err(denied(AuthError::Unexpected)),
            Err(Errno::EAGAIN | Errno::EBUSY) => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, AuthError::Busy));
            }
            Err(errno) => return Err(denied(AuthError::of_refused_applicant(errno, cluster))),
        };
        let text = exchange.text(SERVER);
        let server = blocking(rt, &self.witness, move |witness| witness.check(&credential, &text)).await;
        let server = server.map_err(|e| denied(AuthError::NoWitness(cluster, e)))?;
        if !self.servers.contains(&server) {
            return Err(denied(AuthError::ServerOfUser(server)));
        }
        let issued = exchange.open(&noise).ok().and_then(|plain| frame::from_body::<IssuedKey>(&plain).ok());
        let key = issued.ok_or_else(|| denied(AuthError::Unexpected))?;
        Ok(Key::from_issued(cluster, key))
    }
}

impl Issuing {
    /// Answers an application. `permit` is held until it is checked, also if the client has
    /// ended the connection. An issued key is recorded in `audit`.
    pub(crate) async fn answer(
        &self,
        (rt, audit): (&Rt, Option<&Arc<dyn Audit>>),
        (keyring, permit): (&Arc<Keyring>, OwnedSemaphorePermit),
        sender: &Sender,
        mut exchange: Exchange,
        credential: String,
    ) -> io::Result<Result<(), Stranger>> {
        let (text, own) = (exchange.text(CLIENT), exchange.text(SERVER));
        let hosts = self.hosts;
        let checked = blocking(rt, &self.witness, move |witness| {
            let _permit = permit;
            let absent = |error: io::Error| {
                tracing::debug!(%error, "MUNGE or the directory of users does not answer");
                Stranger::NoWitness
            };
            let uid = match witness.check(&credential, &text) {
                Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(Stranger::Unproved),
                checked => checked.map_err(absent)?,
            };
            let role = match uid {
                0 if hosts => Role::Host(None),
                0 => return Err(Stranger::NotIssued(uid)),
                _ => {
                    let user = witness.user(uid).map_err(absent)?.filter(|user| user.uid == uid);
                    Role::User(user.ok_or(Stranger::NotIssued(uid))?)
                }
            };
            Ok((uid, role, witness.attest(&own).map_err(absent)?))
        });
        let (uid, role, credential) = match checked.await {
            Ok(checked) => checked,
            Err(stranger) => return Ok(Err(stranger)),
        };
        let (keyring, peer) = (keyring.clone(), sender.peer());
        let issued = rt.run_blocking(move || keyring.issue(role, peer.ip())).await;
        let (key, is_first) = match issued {
            Ok(issued) => issued,
            Err(KeyError::Withdrawn(id)) => return Ok(Err(Stranger::UnknownKey(id))),
            Err(KeyError::NoKeyYet) => return Ok(Err(Stranger::Starting)),
            Err(KeyError::CannotIssue(_)) => return Ok(Err(Stranger::NotIssued(uid))),
            Err(error) => {
                tracing::debug!(%error, uid, %peer, "cannot issue a key");
                return Ok(Err(Stranger::NoWitness));
            }
        };
        let plain = key.to_issued().and_then(|issued| frame::to_body(&issued).ok());
        let Some(noise) = plain.and_then(|plain| exchange.seal(&plain).ok()) else {
            return Ok(Err(Stranger::NotIssued(uid)));
        };
        if let Some(audit) = audit {
            audit.record(Event::IssuedKey { nid: Nid::Tcp(peer), key: key.id, role: key.role().to_string(), uid });
        }
        post(sender, &Auth::Issued { noise, credential })?;
        if is_first {
            tracing::info!(key = %key.id, role = %key.role(), %peer, "issued a key");
        }
        Ok(Ok(()))
    }
}
