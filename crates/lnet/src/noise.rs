//! The Noise handshake of [`sheen_wire::auth`], as pure functions of messages.
//!
//! The server is the initiator of the pattern `NNpsk2`: it sends an ephemeral key first. So it
//! needs the secret only when it reads the client's answer, which names the key. The prologue has
//! all that the two ends agree on in clear, so that nobody can change it on the way.

use sheen_keys::Key;
use sheen_wire::auth::{ClusterId, Flavor, KeyId, NOISE_BYTES_MAX, Route};
use snow::{
    Builder, Error, HandshakeState,
    params::{CipherChoice, DHChoice, HashChoice, NoiseParams},
    resolvers::{CryptoResolver, DefaultResolver},
    types::{Cipher, Dh, Hash, Random},
};

/// The pattern and its algorithms.
const PATTERN: &str = "Noise_NNpsk2_25519_ChaChaPoly_BLAKE2s";
/// Place of the secret in the pattern.
const PSK_PLACE: u8 = 2;
/// The secret of a client without a key. Everybody knows it, so the handshake only encrypts.
const NO_SECRET: [u8; 32] = [0; 32];
/// Bytes that encryption adds to a message.
const OVERHEAD: usize = 16;
/// Version of the handshake: the first bytes of the prologue.
const VERSION: &[u8] = b"sheen auth 1";

/// Random bytes for one handshake, from which the ephemeral key is made.
pub(crate) type Entropy = [u8; 32];

/// The part of a handshake that travels in clear and that both ends must know alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms<'a> {
    /// The flavors that the client offered.
    pub(crate) offered: u8,
    /// The flavor that the server chose.
    pub(crate) flavor: Flavor,
    /// The server's cluster.
    pub(crate) cluster: ClusterId,
    /// The keys that the server accepts.
    pub(crate) keys: &'a [KeyId],
    /// The addresses as the client sees them.
    pub(crate) route: Route,
}

/// A server that waits for the client's answer.
pub(crate) struct Challenger(HandshakeState);

/// A client that waits for the server's proof.
pub(crate) struct Answered {
    transport: snow::TransportState,
    secrets: Secrets,
}

/// An encrypted exchange of two ends, none of which has proved who it is yet.
pub(crate) struct Exchange {
    transport: snow::TransportState,
    hash: Vec<u8>,
}

/// Secrets of a connection, of which both ends derive keys. They differ for each connection.
pub(crate) struct Secrets {
    /// For the frames from the server.
    pub(crate) of_server: [u8; 32],
    /// For the frames from the client.
    pub(crate) of_client: [u8; 32],
}

/// Gives the random bytes of one handshake.
struct Once(Option<Entropy>);

impl Random for Once {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        match self.0.take() {
            Some(entropy) if entropy.len() == out.len() => {
                out.copy_from_slice(&entropy);
                Ok(())
            }
            _ => Err(Error::Rng),
        }
    }
}

/// The algorithms of `snow`, with random bytes from the caller.
struct Algorithms(Entropy);

impl CryptoResolver for Algorithms {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

impl Terms<'_> {
    fn prologue(&self) -> Vec<u8> {
        let mut prologue = [VERSION, &[self.offered, self.flavor.bit()], &self.cluster.0.to_le_bytes()].concat();
        prologue.extend(self.keys.len().to_le_bytes());
        prologue.extend(self.keys.iter().flat_map(|key| key.0.to_le_bytes()));
        let Route { client, server } = self.route.canonical();
        for addr in [client, server] {
            prologue.extend(addr.ip().to_string().as_bytes());
            prologue.push(0);
            prologue.extend(addr.port().to_le_bytes());
        }
        prologue
    }
}

/// Sets up one end and passes it to `build`.
fn start(
    entropy: Entropy,
    terms: &Terms,
    build: impl FnOnce(Builder<'_>) -> Result<HandshakeState, Error>,
) -> Result<HandshakeState, Error> {
    let params: NoiseParams = PATTERN.parse()?;
    let prologue = terms.prologue();
    build(Builder::with_resolver(params, Box::new(Algorithms(entropy))).prologue(&prologue)?)
}

/// Returns what `write` puts into a message without content.
fn message(write: impl FnOnce(&mut [u8]) -> Result<usize, Error>) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; NOISE_BYTES_MAX];
    let len = write(&mut out)?;
    out.truncate(len);
    Ok(out)
}

/// Returns the secrets after the last message of the pattern.
fn secrets(state: &mut HandshakeState) -> Secrets {
    // The initiator's direction is the first.
    let (of_server, of_client) = state.dangerously_get_raw_split();
    Secrets { of_server, of_client }
}

/// Accepts only messages without content.
fn empty(len: usize) -> Result<(), Error> {
    if len == 0 { Ok(()) } else { Err(Error::Input) }
}

impl Challenger {
    /// Begins a handshake as the server. Returns `noise 1`.
    pub(crate) fn begin(entropy: Entropy, terms: &Terms) -> Result<(Challenger, Vec<u8>), Error> {
        let mut state = start(entropy, terms, |builder| builder.build_initiator())?;
        let challenge = message(|out| state.write_message(&[], out))?;
        Ok((Challenger(state), challenge))
    }

    /// Checks the client's answer, `noise 2`. Returns `noise 3` and the connection's secrets.
    ///
    /// # Errors
    /// The client does not know the secret of this key, or somebody changed a message.
    pub(crate) fn check(mut self, key: &Key, answer: &[u8]) -> Result<(Vec<u8>, Secrets), Error> {
        self.0.set_psk(usize::from(PSK_PLACE), &key.secret.0)?;
        empty(self.0.read_message(answer, &mut [0; NOISE_BYTES_MAX])?)?;
        let secrets = secrets(&mut self.0);
        let mut transport = self.0.into_transport_mode()?;
        Ok((message(|out| transport.write_message(&[], out))?, secrets))
    }

    /// Begins an exchange with a client that has no key.
    ///
    /// # Errors
    /// The answer, `noise 2`, is invalid.
    pub(crate) fn exchange(mut self, answer: &[u8]) -> Result<Exchange, Error> {
        self.0.set_psk(usize::from(PSK_PLACE), &NO_SECRET)?;
        empty(self.0.read_message(answer, &mut [0; NOISE_BYTES_MAX])?)?;
        Exchange::after(self.0)
    }
}

impl Exchange {
    /// Answers `noise 1` as a client that has no key. Returns `noise 2`.
    ///
    /// # Errors
    /// The message is invalid.
    pub(crate) fn answer(entropy: Entropy, terms: &Terms, challenge: &[u8]) -> Result<(Exchange, Vec<u8>), Error> {
        let mut state = start(entropy, terms, |builder| builder.psk(PSK_PLACE, &NO_SECRET)?.build_responder())?;
        empty(state.read_message(challenge, &mut [0; NOISE_BYTES_MAX])?)?;
        let answer = message(|out| state.write_message(&[], out))?;
        Ok((Exchange::after(state)?, answer))
    }

    fn after(state: HandshakeState) -> Result<Exchange, Error> {
        let hash = state.get_handshake_hash().to_vec();
        Ok(Exchange { transport: state.into_transport_mode()?, hash })
    }

    /// Returns the text that an end has to prove to have said. It differs for each exchange, and
    /// for each `end`.
    pub(crate) fn text(&self, end: &str) -> String {
        let hash: String = self.hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sheen {end} 1 {hash}")
    }

    /// Encrypts a message.
    ///
    /// # Errors
    /// It is too long.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; plain.len() + OVERHEAD];
        let len = self.transport.write_message(plain, &mut out)?;
        out.truncate(len);
        Ok(out)
    }

    /// Decrypts a message.
    ///
    /// # Errors
    /// It is not from the other end.
    pub(crate) fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; sealed.len()];
        let len = self.transport.read_message(sealed, &mut out)?;
        out.truncate(len);
        Ok(out)
    }
}

impl Answered {
    /// Answers `noise 1` as the client. Returns `noise 2`.
    ///
    /// # Errors
    /// The message is invalid.
    pub(crate) fn answer(
        entropy: Entropy,
        terms: &Terms,
        key: &Key,
        challenge: &[u8],
    ) -> Result<(Answered, Vec<u8>), Error> {
        let mut state = start(entropy, terms, |builder| builder.psk(PSK_PLACE, &key.secret.0)?.build_responder())?;
        empty(state.read_message(challenge, &mut [0; NOISE_BYTES_MAX])?)?;
        let answer = message(|out| state.write_message(&[], out))?;
        let secrets = secrets(&mut state);
        Ok((Answered { transport: state.into_transport_mode()?, secrets }, answer))
    }

    /// Checks the server's proof, `noise 3`. Returns the connection's secrets.
    ///
    /// # Errors
    /// The server does not know the secret.
    pub(crate) fn check(mut self, proof: &[u8]) -> Result<Secrets, Error> {
        empty(self.transport.read_message(proof, &mut [0; NOISE_BYTES_MAX])?)?;
        Ok(self.secrets)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use sheen_keys::Key;

    use super::*;

    const ROUTE: Route = Route { client: addr(1000), server: addr(7988) };
    const TERMS: Terms =
        Terms { offered: 1, flavor: Flavor::Null, cluster: ClusterId(7), keys: &[KeyId(1)], route: ROUTE };

    const fn addr(port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
    }

    fn key(secret: u8) -> Key {
        Key::new(ClusterId(7), 1, [secret; 32], 0)
    }

    /// Runs a handshake. Each end has its own terms and key; `change` may change the messages.
    fn run(
        server: (&Terms, &Key),
        client: (&Terms, &Key),
        mut change: impl FnMut(usize, &mut Vec<u8>),
    ) -> Result<(), (&'static str, Error)> {
        let (challenger, mut one) = Challenger::begin([1; 32], server.0).unwrap();
        change(1, &mut one);
        let (answered, mut two) = Answered::answer([2; 32], client.0, client.1, &one).map_err(|e| ("client", e))?;
        change(2, &mut two);
        let (mut three, of_server) = challenger.check(server.1, &two).map_err(|e| ("server", e))?;
        change(3, &mut three);
        let of_client = answered.check(&three).map_err(|e| ("client", e))?;
        assert_eq!(of_server.of_server, of_client.of_server);
        assert_eq!(of_server.of_client, of_client.of_client);
        assert_ne!(of_server.of_server, of_server.of_client);
        Ok(())
    }

    #[test]
    fn handshake_succeeds_only_with_the_same_key_and_terms() {
        let (a, b) = (key(1), key(2));
        assert_eq!(run((&TERMS, &a), (&TERMS, &a), |_, _| {}), Ok(()));
        assert_eq!(run((&TERMS, &a), (&TERMS, &b), |_, _| {}).unwrap_err().0, "server");
        for terms in [
            Terms { cluster: ClusterId(8), ..TERMS },
            Terms { offered: 3, ..TERMS },
            Terms { keys: &[], ..TERMS },
            Terms { keys: &[KeyId(1), KeyId(2)], ..TERMS },
            Terms { flavor: Flavor::Integrity, ..TERMS },
            Terms { route: Route { client: addr(1001), ..ROUTE }, ..TERMS },
            Terms { route: Route { server: addr(7989), ..ROUTE }, ..TERMS },
        ] {
            assert_eq!(run((&TERMS, &a), (&terms, &a), |_, _| {}).unwrap_err().0, "client", "{terms:?}");
        }
    }

    #[test]
    fn changed_or_cut_handshake_messages_are_refused() {
        let key = key(1);
        let lengths = [48, 48, 16];
        for (number, len) in (1..).zip(lengths) {
            for bit in 0..len * 8 {
                // X25519 ignores the highest bit of a public key, but the hash of the handshake
                // covers it.
                let flipped = run((&TERMS, &key), (&TERMS, &key), |n, m| {
                    if n == number {
                        assert_eq!(m.len(), len);
                        m[bit / 8] ^= 1 << (bit % 8);
                    }
                });
                assert!(flipped.is_err(), "message {number}, bit {bit}");
            }
            for end in 0..len {
                let cut = run((&TERMS, &key), (&TERMS, &key), |n, m| {
                    if n == number {
                        m.truncate(end);
                    }
                });
                assert!(cut.is_err(), "message {number} cut to {end}");
            }
            let longer = run((&TERMS, &key), (&TERMS, &key), |n, m| {
                if n == number {
                    m.push(0);
                }
            });
            assert!(longer.is_err(), "message {number} with a byte more");
        }
    }

    #[test]
    fn captured_handshake_cannot_be_played_again() {
        let key = key(1);
        let (challenger, one) = Challenger::begin([1; 32], &TERMS).unwrap();
        let (_, two) = Answered::answer([2; 32], &TERMS, &key, &one).unwrap();
        let (three, _) = challenger.check(&key, &two).unwrap();
        // The client's answer, to another challenge of the server.
        let (challenger, other) = Challenger::begin([3; 32], &TERMS).unwrap();
        assert!(challenger.check(&key, &two).is_err());
        // The server's messages, to another connection of the client.
        for one in [&one, &other] {
            let (answered, _) = Answered::answer([4; 32], &TERMS, &key, one).unwrap();
            assert!(answered.check(&three).is_err());
        }
        // The client's own message, reflected.
        let (answered, mine) = Answered::answer([5; 32], &TERMS, &key, &one).unwrap();
        assert!(answered.check(&mine).is_err());
    }
}
