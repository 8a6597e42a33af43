//! The two sides of the authentication of a connection ([`sheen_wire::auth`]).

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use sheen_keys::{Key, Keyring};
use sheen_wire::{
    Errno,
    auth::{Auth, ClusterId, Flavor, KeyId, Route},
    frame::{self, FrameError, Kind},
};

use crate::{
    Connection, Frame, Keys, Net, Nid, Receiver, RecvError, Sender, Trust,
    auth_error::{AuthError, Stranger},
    auth_message::{denied, post, reply},
    noise::{Answered, Challenger, Entropy, Exchange, Terms},
    seal::Seals,
    sender::Ends,
};

/// Time for one server to admit or refuse this process, in [`Net::refused`].
const RECEPTION: Duration = Duration::from_secs(2);
/// Wait before the servers are asked again, if none answers.
const RECEPTION_RETRY: Duration = Duration::from_millis(500);

/// How a handshake ended.
enum Step {
    /// The ends are authenticated.
    Admitted,
    /// The server has issued a key. Another handshake follows, with that key.
    Issued,
}

/// The answer of servers that were asked once.
enum Reception {
    /// One admits this process.
    Admitted,
    /// None admits it, and one refuses it, or is refused by it.
    Refused(AuthError),
    /// None answers.
    Silent,
}

impl Net {
    fn entropy(&self) -> Entropy {
        let mut entropy = Entropy::default();
        self.rt().fill_random(&mut entropy);
        entropy
    }

    /// Returns when one of these servers refuses this process, or is refused by it, and no other
    /// one admits it. Never returns once a server admits it. For commands: they report the refusal
    /// instead of trying to connect again and again.
    pub async fn refused(&self, nids: &[Nid]) -> AuthError {
        loop {
            match self.reception(nids).await {
                Reception::Admitted => return std::future::pending().await,
                Reception::Refused(reason) => return reason,
                Reception::Silent => self.rt().sleep(RECEPTION_RETRY).await,
            }
        }
    }

    async fn reception(&self, nids: &[Nid]) -> Reception {
        let mut reception = Reception::Silent;
        for nid in nids {
            let Nid::Tcp(addr) = nid else { continue };
            if self.is_own(nid) {
                return Reception::Admitted;
            }
            match self.rt().timeout(RECEPTION, self.try_connect(*addr)).await {
                Ok(Ok(())) => return Reception::Admitted,
                Ok(Err(e)) => {
                    if let Some(refusal) = refusal(e) {
                        reception = Reception::Refused(refusal);
                    }
                }
                Err(_) => {}
            }
        }
        reception
    }

    async fn try_connect(&self, addr: SocketAddr) -> io::Result<()> {
        let Connection { sender, mut receiver } = self.connect(addr).await?;
        // A client without keys sends no message of its own before its hello.
        if matches!(self.trust(), Trust::All) {
            post(&sender, &Auth::Begin { flavors: Flavor::Null.and_more(), route: route_of_client(&sender)? })?;
            if reply(&mut receiver).await? != Ok(Auth::Open) {
                return Err(denied(AuthError::Demanded));
            }
        }
        Ok(())
    }

    /// Returns the key for a server of a cluster that accepts these keys, if there is one. Files
    /// are read for the first connection, and if the server has withdrawn the keys that this
    /// process has used.
    async fn key_for(&self, keyring: &Arc<Keyring>, cluster: ClusterId, accepted: &[KeyId]) -> io::Result<Option<Key>> {
        let known = || keyring.known(cluster, accepted).map_err(|e| denied(e.into()));
        if let Some(key) = known()? {
            return Ok(Some(key));
        }
        // The files may lie on a file system that does not answer, such as this one: one thread at
        // most waits for it.
        let searching = self.key_search().clone().lock_owned().await;
        if let Some(key) = known()? {
            return Ok(Some(key));
        }
        let (keyring, accepted) = (keyring.clone(), accepted.to_owned());
        let find = move || {
            let found = keyring.find(cluster, &accepted);
            drop(searching);
            found
        };
        self.rt().run_blocking(find).await.map_err(|e| denied(e.into()))
    }

    /// Authenticates a connection as its client.
    pub(crate) async fn introduce(&self, sender: &Sender, receiver: &mut Receiver) -> io::Result<()> {
        let Trust::Keys(keys) = self.trust() else { return Ok(()) };
        // A client that gets a key begins again with it, once.
        for _ in 0..2 {
            if let Step::Admitted = self.introduce_once(keys, sender, receiver).await? {
                return Ok(());
            }
        }
        Err(denied(AuthError::Unexpected))
    }

    async fn introduce_once(&self, keys: &Keys, sender: &Sender, receiver: &mut Receiver) -> io::Result<Step> {
        let Keys { keyring, open_servers, applying, .. } = keys;
        let route = route_of_client(sender)?;
        let least = self.least_flavor(keys, route.is_local());
        let offered = least.and_more();
        post(sender, &Auth::Begin { flavors: offered, route })?;
        let (cluster, accepted, flavor, challenge, issues) = match reply(receiver).await? {
            Ok(Auth::Challenge { cluster, keys, flavor, noise, issues }) => match Flavor::of_bit(flavor) {
                Some(flavor) if flavor >= least => (cluster, keys, flavor, noise, issues),
                _ => return Err(denied(AuthError::Unexpected)),
            },
            Ok(Auth::Open) if *open_servers => return Ok(Step::Admitted),
            Ok(Auth::Open) => return Err(denied(AuthError::ServerOpen)),
            Err(Errno::EREMOTE) => return Err(denied(AuthError::Relayed)),
            Err(Errno::EOPNOTSUPP) => return Err(denied(AuthError::Flavor)),
            Err(Errno::EAGAIN | Errno::EBUSY) => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, AuthError::Busy));
            }
            _ => return Err(denied(AuthError::Unexpected)),
        };
        let terms = Terms { offered, flavor, cluster, keys: &accepted, route };
        let applying = applying.as_ref().filter(|_| issues);
        // The files of a process that has got its key by an application may lie on the file system
        // itself, which has to wait for the key.
        let known = match applying.is_some() && keyring.has_received() {
            true => keyring.known(cluster, &accepted).map_err(|e| denied(e.into()))?,
            false => self.key_for(keyring, cluster, &accepted).await?,
        };
        let key = match (known, applying) {
            (Some(key), _) => key,
            (None, None) => return Err(denied(AuthError::NoKey(cluster))),
            (None, Some(applying)) => {
                let _one_at_a_time = self.applying().lock().await;
                // Another connection may have got it meanwhile.
                match keyring.known(cluster, &accepted).map_err(|e| denied(e.into()))? {
                    Some(key) => key,
                    None => {
                        let exchange = Exchange::answer(self.entropy(), &terms, &challenge);
                        let exchange = exchange.map_err(|_| denied(AuthError::Unexpected))?;
                        let key = applying.apply(self.rt(), (sender, receiver), exchange, cluster).await?;
                        keyring.received(key).map_err(|e| denied(e.into()))?;
                        return Ok(Step::Issued);
                    }
                }
            }
        };
        let answer = Answered::answer(self.entropy(), &terms, &key, &challenge);
        let (answered, noise) = answer.map_err(|_| denied(AuthError::Unexpected))?;
        let claim = key.claim();
        post(sender, &Auth::Answer { claim: claim.clone(), noise })?;
        let proof = match reply(receiver).await? {
            Ok(Auth::Accepted { noise }) => noise,
            Ok(_) => return Err(denied(AuthError::Unexpected)),
            Err(errno) => {
                if errno == Errno::ENOENT {
                    keyring.refused(&key);
                }
                let reason = match errno {
                    Errno::ENOENT => "it is not one of its keys",
                    Errno::EACCES => "the secrets of the two sides differ",
                    _ => "it understood no message of this process; does it run the same release?",
                };
                return Err(denied(AuthError::Refused { key: key.id, reason }));
            }
        };
        let secrets = answered.check(&proof).map_err(|_| denied(AuthError::Impostor(key.id)))?;
        keyring.confirmed(&key, &accepted).map_err(|e| denied(e.into()))?;
        sender.set_claim(claim);
        if flavor != Flavor::Null {
            let seals = Seals::of_client(flavor, &secrets).map_err(|_| denied(AuthError::Unexpected))?;
            sender.protect(seals.send);
            receiver.protect(seals.receive);
        }
        Ok(Step::Admitted)
    }

    /// Authenticates a connection as its server. Returns the client's first frame afterwards. The
    /// caller limits the time.
    ///
    /// # Errors
    /// [`RecvError::Stranger`]: the client was refused, and was sent the reason. The connection is
    /// to be closed. Otherwise as [`Receiver::recv`].
    pub async fn admit(&self, sender: &Sender, receiver: &mut Receiver) -> Result<Frame, RecvError> {
        let Trust::Keys(keys) = self.trust() else {
            let first = receiver.recv().await?;
            if first.header.kind != Kind::Auth {
                return Ok(first);
            }
            post(sender, &Auth::Open)?;
            return receiver.recv().await;
        };
        let admitted = match self.strangers().count(self.limits().strangers_max) {
            Some(_counted) => match self.authenticate(keys, sender, receiver).await {
                Err(RecvError::Frame(FrameError::Version(version))) => Err(Stranger::Version(version)),
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

    async fn authenticate(
        &self,
        keys: &Keys,
        sender: &Sender,
        receiver: &mut Receiver,
    ) -> Result<Result<(), Stranger>, RecvError> {
        for _ in 0..2 {
            match self.challenge(keys, sender, receiver).await? {
                Ok(Step::Issued) => {}
                ended => return Ok(ended.map(drop)),
            }
        }
        Ok(Err(Stranger::Invalid))
    }

    async fn challenge(
        &self,
        keys: &Keys,
        sender: &Sender,
        receiver: &mut Receiver,
    ) -> Result<Result<Step, Stranger>, RecvError> {
        let first = receiver.recv().await?;
        if first.header.kind != Kind::Auth {
            return Ok(Err(Stranger::Silent));
        }
        let Ok(Auth::Begin { flavors: offered, route }) = frame::from_body(&first.body) else {
            return Ok(Err(Stranger::Invalid));
        };
        let relayed = is_relayed(route, sender);
        if !keys.relays && relayed {
            return Ok(Err(Stranger::Relayed(route)));
        }
        // The two ends of a relay may be on different hosts.
        let least = self.least_flavor(keys, route.is_local() && !relayed);
        let Some(flavor) = least.choose(offered) else { return Ok(Err(Stranger::Flavor)) };
        let Some(cluster) = keys.keyring.cluster() else { return Ok(Err(Stranger::Starting)) };
        let accepted = keys.keyring.accepted_ids();
        let terms = Terms { offered, flavor, cluster, keys: &accepted, route };
        let Ok((challenger, noise)) = Challenger::begin(self.entropy(), &terms) else {
            return Ok(Err(Stranger::Invalid));
        };
        let issues = keys.issuing.is_some();
        post(sender, &Auth::Challenge { cluster, keys: accepted.clone(), flavor: flavor.bit(), noise, issues })?;
        let answer = match receiver.recv().await {
            Err(RecvError::Eof) => return Ok(Err(Stranger::NoKey)),
            answer => answer?,
        };
        let answer = if answer.header.kind == Kind::Auth { frame::from_body(&answer.body) } else { Ok(Auth::Open) };
        let (claim, noise) = match (answer, &keys.issuing) {
            (Ok(Auth::Answer { claim, noise }), _) => (claim, noise),
            (Ok(Auth::Apply { noise, credential }), Some(issuing)) => {
                let Ok(exchange) = challenger.exchange(&noise) else { return Ok(Err(Stranger::Invalid)) };
                let Ok(permit) = self.applicants().clone().acquire_owned().await else {
                    return Ok(Err(Stranger::Crowd));
                };
                let process = (self.rt(), self.audit());
                let issued = issuing.answer(process, (&keys.keyring, permit), sender, exchange, credential).await?;
                return Ok(issued.map(|()| Step::Issued));
            }
            _ => return Ok(Err(Stranger::Invalid)),
        };
        let id = claim.id();
        let Some(key) = keys.keyring.claimed(&claim) else { return Ok(Err(Stranger::UnknownKey(id))) };
        match challenger.check(&key, &noise) {
            Ok((noise, secrets)) => {
                sender.set_claim(claim.clone());
                // The key may have been withdrawn since it was looked up, before the connection
                // was known to use it.
                if !keys.keyring.accepts(&claim) {
                    return Ok(Err(Stranger::UnknownKey(id)));
                }
                post(sender, &Auth::Accepted { noise })?;
                if flavor != Flavor::Null {
                    let seals = Seals::of_server(flavor, &secrets).map_err(|_| RecvError::Forged)?;
                    sender.protect(seals.send);
                    receiver.protect(seals.receive);
                }
                Ok(Ok(Step::Admitted))
            }
            Err(_) => Ok(Err(Stranger::NoSecret(id))),
        }
    }
}

/// Returns the addresses of a connection as its client sees them.
fn route_of_client(sender: &Sender) -> io::Result<Route> {
    let Ends { peer, own } = sender.ends();
    Ok(Route { client: own.ok_or(io::ErrorKind::NotConnected)?, server: peer })
}

/// Returns whether somebody on this host passes the connection on. `route`: the client's view. A
/// connection between hosts may pass translators of addresses, and is not judged.
fn is_relayed(route: Route, sender: &Sender) -> bool {
    let Ends { peer, own } = sender.ends();
    let Some(own) = own else { return true };
    let here = Route { client: peer, server: own };
    (here.is_local() || route.is_local()) && here.canonical() != route.canonical()
}

/// Returns the refusal in an error of [`Net::connect`]. `None`: the server was not reached, or may
/// admit this process later.
fn refusal(error: io::Error) -> Option<AuthError> {
    let refusal = error.into_inner()?.downcast::<AuthError>().ok()?;
    Some(*refusal).filter(|refusal| !matches!(refusal, AuthError::Busy))
}

/// Sends a refusal.
fn refuse(sender: &Sender, errno: Errno) -> io::Result<()> {
    let mut frame = Frame::new(Kind::Auth, 0);
    frame.header.status = errno.0;
    sender.post(frame)
}
