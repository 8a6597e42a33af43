//! Mutual authentication of the two ends of a connection, before any other message.
//!
//! ```text
//! client                                   server
//!   Begin { flavors, route }         →
//!                                    ←     Challenge { cluster, flavor, noise 1 } (or Open)
//!   Answer { key, noise 2 }          →
//!                                    ←     Accepted { noise 3 }
//! ```
//!
//! `noise 1` and `noise 2` are the messages of the pattern `NNpsk2` of the Noise protocol, with the
//! server as its initiator. `noise 3` is its first transport message, without content: only a
//! server that knows the key can make it. A refusal is a frame of the same kind with an errno.

use std::{fmt, net::SocketAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// Bytes of the largest Noise message of a handshake.
pub const NOISE_BYTES_MAX: usize = 128;

/// Flavor: the two ends are authenticated when they connect; the frames afterwards are as without
/// authentication. Lustre's word is `null`.
pub const FLAVOR_NULL: u8 = 1;

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

/// A text that is not an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {DIGITS} hexadecimal digits")]
pub struct InvalidId;

/// Body of a frame of kind [`crate::frame::Kind::Auth`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Auth {
    /// The client's first message.
    Begin {
        /// The flavors that it accepts, `FLAVOR_*`, added up.
        flavors: u8,
        /// The addresses of the connection as the client sees them.
        route: Route,
    },
    /// The server's reply.
    Challenge {
        /// The keys to choose from.
        cluster: ClusterId,
        /// The flavor that it chose.
        flavor: u8,
        /// First message of the Noise handshake.
        noise: Vec<u8>,
    },
    /// The server's reply if it authenticates nobody.
    Open,
    /// The client proves that it knows a key.
    Answer {
        /// The key.
        key: KeyId,
        /// Second message of the Noise handshake.
        noise: Vec<u8>,
    },
    /// The server proves that it knows the key.
    Accepted {
        /// An empty transport message.
        noise: Vec<u8>,
    },
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
    fn auth_messages_are_pinned() {
        let route = Route { client: ([127, 0, 0, 1], 1).into(), server: ([10, 0, 0, 1], 7988).into() };
        let begin = [0, 1, 0, 127, 0, 0, 1, 1, 0, 10, 0, 0, 1, 180, 62];
        assert_eq!(to_body(&Auth::Begin { flavors: FLAVOR_NULL, route }).unwrap(), begin);
        let challenge = Auth::Challenge { cluster: ClusterId(1), flavor: 1, noise: vec![7, 8] };
        assert_eq!(to_body(&challenge).unwrap(), [1, 1, 1, 2, 7, 8]);
        assert_eq!(to_body(&Auth::Answer { key: KeyId(2), noise: vec![9] }).unwrap(), [3, 2, 1, 9]);
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
