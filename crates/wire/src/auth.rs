//! Mutual authentication of the two ends of a connection, before any other message.
//!
//! ```text
//! client                                   server
//!   Begin { flavors, route }         →
//!                                    ←     Challenge { cluster, keys, flavor, noise 1 } (or Open)
//!   Answer { claim, noise 2 }        →
//!                                    ←     Accepted { noise 3 }
//! ```
//!
//! `noise 1` and `noise 2` are the messages of the pattern `NNpsk2` of the Noise protocol, with the
//! server as its initiator. `noise 3` is its first transport message, without content: only a
//! server that knows the key can make it. A refusal is a frame of the same kind with an errno.
//!
//! A client without a key can apply for one after the challenge, if the server issues keys. Then it
//! begins again, with that key:
//!
//! ```text
//!   Apply { noise 2, credential }    →
//!                                    ←     Issued { noise 3, credential }
//! ```
//!
//! The secret of this handshake is known to all, so it only encrypts. Each end proves as which user
//! it runs by a credential for a text that has the hash of the handshake. `noise 3` has the key.

use std::{fmt, net::SocketAddr, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Cred;

/// Bytes of the largest Noise message of a handshake without content.
pub const NOISE_BYTES_MAX: usize = 128;

/// Number of keys that a server offers: the newest.
pub const KEYS_MAX: usize = 64;

/// Number of supplementary groups of a user's key.
pub const GROUPS_MAX: usize = 512;

/// Bytes of a message authentication code.
pub const PROOF_BYTES: usize = 16;

/// Bytes of a tag, which protects a piece of a frame.
pub const TAG_LEN: usize = 16;
/// Bytes of bulk that one tag protects; fewer in the last piece of a frame. A piece stays in a
/// processor's cache from the copy to the tag.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// Protection of the frames after the handshake, from the least to the most. The names are
/// Lustre's (`srpc.flavor`).
///
/// Protected frames have tags behind their header: one for the header, one for the body unless it
/// is empty, and one for each [`PIECE_BYTES_MAX`] of bulk. A tag is that of AES-256-GCM, with a key
/// for each direction of the connection. The nonce is the number of the tags before, so no piece
/// can be repeated, left out or moved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Flavor {
    /// The frames are as without authentication.
    Null = 1,
    /// Changed frames are refused.
    Integrity = 2,
    /// Header, body and bulk are encrypted as well.
    Privacy = 4,
}

impl Flavor {
    /// All flavors, the least protection first.
    pub const ALL: [Flavor; 3] = [Flavor::Null, Flavor::Integrity, Flavor::Privacy];

    /// Returns its bit in a sum of flavors.
    pub const fn bit(self) -> u8 {
        self as u8
    }

    /// Returns the flavor of a bit.
    pub fn of_bit(bit: u8) -> Option<Flavor> {
        Flavor::ALL.into_iter().find(|flavor| flavor.bit() == bit)
    }

    /// Returns the sum of this flavor and those with more protection.
    pub fn and_more(self) -> u8 {
        Flavor::ALL.into_iter().filter(|flavor| *flavor >= self).map(Flavor::bit).sum()
    }

    /// Returns the flavor with the least protection in `offered` that is at least this one.
    pub fn choose(self, offered: u8) -> Option<Flavor> {
        Flavor::ALL.into_iter().find(|flavor| *flavor >= self && offered & flavor.bit() != 0)
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flavor::Null => "null",
            Flavor::Integrity => "integrity",
            Flavor::Privacy => "privacy",
        })
    }
}

impl FromStr for Flavor {
    type Err = InvalidFlavor;

    fn from_str(text: &str) -> Result<Flavor, InvalidFlavor> {
        Flavor::ALL.into_iter().find(|flavor| flavor.to_string() == text).ok_or(InvalidFlavor)
    }
}

/// A text that is not a flavor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected null, integrity or privacy")]
pub struct InvalidFlavor;

/// Length of an id in hexadecimal digits.
const DIGITS: usize = 16;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<$name, InvalidId> {
                let digits = text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
                let id = if digits { u64::from_str_radix(text, 16).ok() } else { None };
                id.map($name).ok_or(InvalidId)
            }
        }
    };
}

id! {
    /// Id of the servers that share their keys: those of one MGS. Random, no secret.
    ClusterId
}

id! {
    /// Id of a key. Random, no secret.
    KeyId
}

/// The addresses of a connection, as one of its ends sees them. The views of the ends differ if
/// somebody between them passes the bytes on: a tunnel, a router that translates addresses, or an
/// attacker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The client's address.
    pub client: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
}

impl Route {
    /// Returns the route with IPv4 addresses as such: a socket for IPv6 shows them mapped.
    pub fn canonical(self) -> Route {
        let canonical = |addr: SocketAddr| SocketAddr::new(addr.ip().to_canonical(), addr.port());
        Route { client: canonical(self.client), server: canonical(self.server) }
    }

    /// Returns whether both ends are on one host: an end is on loopback, or they have one address.
    pub fn is_local(self) -> bool {
        let Route { client, server } = self.canonical();
        let (client, server) = (client.ip(), server.ip());
        client.is_loopback() || server.is_loopback() || client == server
    }
}

/// A user: the only one as whom the holder of a key may act.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct User {
    /// User id, not 0.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, at most [`GROUPS_MAX`].
    pub groups: Vec<u32>,
    /// The nodemap of the clients that use the key. `None`: that of their address.
    pub nodemap: Option<String>,
}

impl User {
    /// Makes the credentials of a request those of this user. The request may choose among the
    /// user's groups.
    pub fn confine(&self, cred: &mut Cred) {
        let gid = if self.groups.contains(&cred.gid) { cred.gid } else { self.gid };
        let mut groups = self.groups.clone();
        groups.push(self.gid);
        *cred = Cred { uid: self.uid, gid, groups: Some(groups) };
    }
}

/// Authority of a key, and of the connections that use it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Everything: servers have it, and everybody who has a key of the cluster itself.
    Server,
    /// May act as any user that its nodemap permits, and may not add servers. With the nodemap of
    /// the clients that use the key, or `None`: that of their address.
    Host(Option<String>),
    /// May act as this user only.
    User(User),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Server => f.write_str("server"),
            Role::Host(_) => f.write_str("host"),
            Role::User(user) => write!(f, "user {}", user.uid),
        }?;
        self.nodemap().map_or(Ok(()), |nodemap| write!(f, " in nodemap {nodemap}"))
    }
}

impl Role {
    /// Returns the nodemap that the key names.
    pub fn nodemap(&self) -> Option<&str> {
        match self {
            Role::Server => None,
            Role::Host(nodemap) | Role::User(User { nodemap, .. }) => nodemap.as_deref(),
        }
    }

    /// Returns the text to which capabilities and proofs of such clients are bound. `None`: they
    /// need none.
    pub fn holder(&self) -> Option<String> {
        match self {
            Role::Server => None,
            Role::Host(nodemap) => Some(format!("host {}", nodemap.as_deref().unwrap_or_default())),
            Role::User(User { uid, nodemap, .. }) => {
                Some(format!("user {uid} {}", nodemap.as_deref().unwrap_or_default()))
            }
        }
    }
}

/// A key that was issued by a key of the cluster. Its secret is derived of that key's secret and of
/// this, so servers need no copy of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Issued {
    /// Its id.
    pub id: KeyId,
    /// Its authority, less than [`Role::Server`].
    pub role: Role,
}

/// The key by which a client proves who it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// A key of the cluster.
    pub key: KeyId,
    /// The key that this one has issued, if that is used.
    pub issued: Option<Issued>,
}

impl Claim {
    /// Returns the authority of the key.
    pub fn role(&self) -> &Role {
        self.issued.as_ref().map_or(&Role::Server, |issued| &issued.role)
    }

    /// Returns the id of the key that was used.
    pub fn id(&self) -> KeyId {
        self.issued.as_ref().map_or(self.key, |issued| issued.id)
    }
}

/// The key that was used.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id().fmt(f)
    }
}

/// A message authentication code by a secret that is derived of a key of the cluster: only its
/// servers can make it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proof {
    /// The key of the cluster.
    pub key: KeyId,
    /// The code.
    pub mac: [u8; PROOF_BYTES],
}

/// A text that is not an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {DIGITS} hexadecimal digits")]
pub struct InvalidId;

/// Body of a frame of kind [`crate::frame::Kind::Auth`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Auth {
    /// The client's first message.
    Begin {
        /// The flavors that it accepts: the sum of their bits.
        flavors: u8,
        /// The addresses of the connection as the client sees them.
        route: Route,
    },
    /// The server's reply.
    Challenge {
        /// The cluster of its keys.
        cluster: ClusterId,
        /// The keys that it accepts, at most [`KEYS_MAX`]. The client uses one of them.
        keys: Vec<KeyId>,
        /// The bit of the flavor that it chose.
        flavor: u8,
        /// First message of the Noise handshake.
        noise: Vec<u8>,
        /// Whether the server issues keys to clients that prove as which user they run.
        issues: bool,
    },
    /// The server's reply if it authenticates nobody.
    Open,
    /// The client proves that it knows a key.
    Answer {
        /// The key that the client uses.
        claim: Claim,
        /// Second message of the Noise handshake.
        noise: Vec<u8>,
    },
    /// The server proves that it knows the key.
    Accepted {
        /// An empty transport message.
        noise: Vec<u8>,
    },
    /// The client applies for a key.
    Apply {
        /// Second message of a Noise handshake without a secret.
        noise: Vec<u8>,
        /// Proves as which user the client runs.
        credential: String,
    },
    /// The server issues a key to the client.
    Issued {
        /// A transport message with an [`IssuedKey`].
        noise: Vec<u8>,
        /// Proves as which user the server runs.
        credential: String,
    },
}

/// A key that a server issued to a client that has applied for one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedKey {
    /// The key of the cluster that has issued it.
    pub by: KeyId,
    /// Its id and authority.
    pub issued: Issued,
    /// Time at which it was made, in seconds since 1970.
    pub created: i64,
    /// Its secret.
    pub secret: [u8; 32],
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{from_body, to_body};

    #[test]
    fn key_id_is_sixteen_hexadecimal_digits() {
        let id = KeyId(0x1a2b);
        assert_eq!(id.to_string(), "0000000000001a2b");
        assert_eq!("0000000000001a2b".parse(), Ok(id));
        for bad in ["", "1a2b", "+000000000001a2b", "0000000000001a2bc", "000000000000zzzz"] {
            assert_eq!(bad.parse::<KeyId>(), Err(InvalidId), "{bad}");
        }
    }

    #[test]
    fn flavor_with_the_least_protection_that_both_accept_is_chosen() {
        let (null, integrity, privacy) = (Flavor::Null, Flavor::Integrity, Flavor::Privacy);
        for client in Flavor::ALL {
            for server in Flavor::ALL {
                assert_eq!(server.choose(client.and_more()), Some(client.max(server)));
            }
            assert_eq!(client.to_string().parse(), Ok(client));
            assert_eq!(Flavor::of_bit(client.bit()), Some(client));
        }
        assert_eq!((null.bit(), integrity.bit(), privacy.bit()), (1, 2, 4));
        assert_eq!(integrity.choose(null.bit()), None);
        assert_eq!(null.choose(0b1000), None);
        assert_eq!(Flavor::of_bit(3), None);
        assert_eq!("ski".parse::<Flavor>(), Err(InvalidFlavor));
    }

    #[test]
    fn auth_messages_are_pinned() {
        let route = Route { client: ([127, 0, 0, 1], 1).into(), server: ([10, 0, 0, 1], 7988).into() };
        let begin = [0, 1, 0, 127, 0, 0, 1, 1, 0, 10, 0, 0, 1, 180, 62];
        assert_eq!(to_body(&Auth::Begin { flavors: Flavor::Null.bit(), route }).unwrap(), begin);
        let user = User { uid: 6, gid: 7, groups: vec![8], nodemap: None };
        let claim = Claim { key: KeyId(2), issued: Some(Issued { id: KeyId(5), role: Role::User(user) }) };
        let keys = vec![KeyId(5)];
        let challenge = Auth::Challenge { cluster: ClusterId(1), keys, flavor: 1, noise: vec![7, 8], issues: true };
        assert_eq!(to_body(&challenge).unwrap(), [1, 1, 1, 5, 1, 2, 7, 8, 1]);
        assert_eq!(to_body(&Auth::Answer { claim, noise: vec![9] }).unwrap(), [3, 2, 1, 5, 2, 6, 7, 1, 8, 0, 1, 9]);
        let credential = "a".to_owned();
        assert_eq!(to_body(&Auth::Apply { noise: vec![9], credential }).unwrap(), [5, 1, 9, 1, 97]);
    }

    #[test]
    fn user_acts_with_the_own_id_and_groups_only() {
        let user = User { uid: 6, gid: 7, groups: vec![8, 9], nodemap: None };
        let confined = |gid| {
            let mut cred = Cred { gid, ..Cred::ROOT };
            user.confine(&mut cred);
            cred
        };
        let groups = Some(vec![8, 9, 7]);
        assert_eq!(confined(0), Cred { uid: 6, gid: 7, groups: groups.clone() });
        assert_eq!(confined(9), Cred { uid: 6, gid: 9, groups });
    }

    #[test]
    fn route_is_local_on_loopback_and_between_ports_of_an_address() {
        let route = |client: &str, server: &str| {
            Route { client: client.parse().unwrap(), server: server.parse().unwrap() }.is_local()
        };
        assert!(route("127.0.0.1:1", "127.0.0.2:2"));
        assert!(route("[::1]:1", "[::1]:2"));
        assert!(route("[::ffff:127.0.0.1]:1", "10.0.0.1:2"));
        assert!(route("10.0.0.1:1", "127.0.0.1:2"));
        assert!(route("10.0.0.1:1", "10.0.0.1:2"));
        assert!(!route("10.0.0.1:1", "10.0.0.2:2"));
    }

    proptest! {
        #[test]
        fn auth_decode_of_arbitrary_bytes_never_panics(bytes: Vec<u8>) {
            let _ = from_body::<Auth>(&bytes);
        }
    }
}
