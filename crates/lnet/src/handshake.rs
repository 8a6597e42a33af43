//! The two sides of the authentication of a connection ([`sheen_wire::auth`]).

use std::{io, net::SocketAddr, time::Duration};

use sheen_keys::{Key, Keyring};
use sheen_wire::{
    Errno,
    auth::{Auth, ClusterId, FLAVOR_NULL},
    frame::{self, Kind},
};

use crate::{
    Connection, Frame, Net, Nid, Receiver, RecvError, Sender, Trust,
    auth_error::{AuthError, Stranger},
    noise::{Answered, Challenger, Entropy, Terms},
};

/// Flavors of this release.
const FLAVORS: u8 = FLAVOR_NULL;
/// Time for one server to admit or refuse a process, in [`Net::refusal`].
const REFUSAL: Duration = Duration::from_secs(2);

impl Net {
    fn entropy(&self) -> Entropy {
        let mut entropy = Entropy::default();
        self.rt().fill_random(&mut entropy);
        entropy
    }

    /// Returns why the first of these servers that answers refuses this process, or why this
    /// process does not trust it. `None`: it would admit this process, or no server answers. For
    /// commands, which report that instead of trying again.
    pub async fn refusal(&self, nids: &[Nid]) -> Option<io::Error> {
        for nid in nids {
            let Nid::Tcp(addr) = nid else { continue };
            if self.is_own(nid) {
                return None;
            }
            match self.rt().timeout(REFUSAL, self.try_connect(*addr)).await {
                Ok(Ok(())) => return None,
                Ok(Err(e)) if e.kind() == io::ErrorKind::PermissionDenied => return Some(e),
                _ => {}
            }
        }
        None
    }

    async fn try_connect(&self, addr: SocketAddr) -> io::Result<()> {
        let Connection { sender, mut receiver } = self.connect(addr).await?;
        // A client without keys sends no message of its own before its hello.
        if matches!(self.trust(), Trust::All) {
            post(&sender, &Auth::Begin { flavors: FLAVORS })?;
            if reply(&mut receiver).await? != Ok(Auth::Open) {
                return Err(denied(AuthError::Demanded));
            }
        }
        Ok(())
    }

    /// Authenticates a connection as its client.
    pub(crate) async fn introduce(&self, sender: &Sender, receiver: &mut Receiver) -> io::Result<()> {
        let Trust::Keys { keyring, open_servers } = self.trust() else { return Ok(()) };
        post(sender, &Auth::Begin { flavors: FLAVORS })?;
        let (terms, challenge) = match reply(receiver).await? {
            Ok(Auth::Challenge { cluster, flavor, noise }) if flavor == FLAVOR_NULL => {
                (Terms { offered: FLAVORS, flavor, cluster }, noise)
            }
            Ok(Auth::Open) if *open_servers => return Ok(()),
            Ok(Auth::Open) => return Err(denied(AuthError::ServerOpen)),
            Err(Errno::EAGAIN) => return Err(io::Error::new(io::ErrorKind::WouldBlock, AuthError::Starting)),
            _ => return Err(denied(AuthError::Unexpected)),
        };
        let key = key_for(keyring, terms.cluster).map_err(denied)?;
        let answer = Answered::answer(self.entropy(), &terms, &key, &challenge);
        let (answered, noise) = answer.map_err(|_| denied(AuthError::Unexpected))?;
        post(sender, &Auth::Answer { key: key.id, noise })?;
        let proof = match reply(receiver).await? {
            Ok(Auth::Accepted { noise }) => noise,
            Err(Errno::ENOENT) => return Err(denied(AuthError::Refused { key: key.id, reason: "it was withdrawn" })),
            Err(_) => {
                return Err(denied(AuthError::Refused { key: key.id, reason: "the secrets of the two sides differ" }));
            }
            Ok(_) => return Err(denied(AuthError::Unexpected)),
        };
        answered.check(&proof).map_err(|_| denied(AuthError::Impostor(key.id)))?;
        if let Err(error) = keyring.confirmed(&key) {
            tracing::warn!(%error, "cannot store the key of the file system: after a restart this server needs it again");
        }
        Ok(())
    }

    /// Authenticates a connection as its server. Returns the client's first frame afterwards. The
    /// caller limits the time.
    ///
    /// # Errors
    /// [`RecvError::Stranger`]: the client was refused, and was sent the reason. The connection is
    /// to be closed. Otherwise as [`Receiver::recv`].
    pub async fn admit(&self, sender: &Sender, receiver: &mut Receiver) -> Result<Frame, RecvError> {
        let Trust::Keys { keyring, .. } = self.trust() else {
            let first = receiver.recv().await?;
            if first.header.kind != Kind::Auth {
                return Ok(first);
            }
            post(sender, &Auth::Open)?;
            return receiver.recv().await;
        };
        let admitted = match self.strangers().count(self.limits().strangers_max) {
            Some(_counted) => match self.challenge(keyring, sender, receiver).await {
                Err(RecvError::Frame(_)) => Err(Stranger::Invalid),
                Err(RecvError::Stalled) => Err(Stranger::Slow),
                admitted => admitted?,
            },
            None => Err(Stranger::Crowd),
        };
        match admitted {
            Ok(()) => receiver.recv().await,
            Err(stranger) => {
                // It fails if the client has ended the connection.
                let _ = refuse(sender, stranger.errno());
                Err(RecvError::Stranger(stranger))
            }
        }
    }

    async fn challenge(
        &self,
        keyring: &Keyring,
        sender: &Sender,
        receiver: &mut Receiver,
    ) -> Result<Result<(), Stranger>, RecvError> {
        let first = receiver.recv().await?;
        if first.header.kind != Kind::Auth {
            return Ok(Err(Stranger::Silent));
        }
        let Ok(Auth::Begin { flavors: offered }) = frame::from_body(&first.body) else {
            return Ok(Err(Stranger::Invalid));
        };
        if offered & FLAVOR_NULL == 0 {
            return Ok(Err(Stranger::Flavor));
        }
        let Some(cluster) = keyring.cluster() else { return Ok(Err(Stranger::Starting)) };
        let terms = Terms { offered, flavor: FLAVOR_NULL, cluster };
        let Ok((challenger, noise)) = Challenger::begin(self.entropy(), &terms) else {
            return Ok(Err(Stranger::Invalid));
        };
        post(sender, &Auth::Challenge { cluster, flavor: terms.flavor, noise })?;
        let answer = match receiver.recv().await {
            Err(RecvError::Eof) => return Ok(Err(Stranger::NoKey)),
            answer => answer?,
        };
        let answer = if answer.header.kind == Kind::Auth { frame::from_body(&answer.body) } else { Ok(Auth::Open) };
        let Ok(Auth::Answer { key: id, noise }) = answer else { return Ok(Err(Stranger::Invalid)) };
        let Some(key) = keyring.accepted(id) else { return Ok(Err(Stranger::UnknownKey(id))) };
        match challenger.check(&key, &noise) {
            Ok(noise) => Ok(Ok(post(sender, &Auth::Accepted { noise })?)),
            Err(_) => Ok(Err(Stranger::NoSecret(id))),
        }
    }
}

fn key_for(keyring: &Keyring, cluster: ClusterId) -> Result<Key, AuthError> {
    keyring.key_for(cluster)?.ok_or(AuthError::NoKey(cluster))
}

fn denied(error: AuthError) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

fn post(sender: &Sender, message: &Auth) -> io::Result<()> {
    let body = frame::to_body(message).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    sender.post(Frame { body: body.into(), ..Frame::new(Kind::Auth, 0) })
}

/// Sends a refusal.
fn refuse(sender: &Sender, errno: Errno) -> io::Result<()> {
    let mut frame = Frame::new(Kind::Auth, 0);
    frame.header.status = errno.0;
    sender.post(frame)
}

/// Returns the server's message, or the errno of its refusal.
async fn reply(receiver: &mut Receiver) -> io::Result<Result<Auth, Errno>> {
    let frame = receiver.recv().await.map_err(|e| match e {
        RecvError::Io(e) => e,
        RecvError::Eof => denied(AuthError::Unexpected),
        e => io::Error::other(e),
    })?;
    match (frame.header.kind, frame.header.status) {
        (Kind::Auth, 0) => frame::from_body(&frame.body).map(Ok).map_err(|_| denied(AuthError::Unexpected)),
        (Kind::Auth, errno) => Ok(Err(Errno(errno))),
        _ => Err(denied(AuthError::Unexpected)),
    }
}
