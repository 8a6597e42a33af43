//! Reasons why a connection is not authenticated, as its client and as its server see them.

use std::io;

use sheen_keys::KeyError;
use sheen_wire::{
    Errno,
    auth::{ClusterId, KeyId, Route},
    frame::FrameError,
    protocol::PROTOCOL_VERSION,
};

/// Why the ends of a connection are not authenticated.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The server gave no key, and this process demands one.
    #[error(
        "the server has no key, and this process does not trust it; start the server with its key, or use auth=none"
    )]
    ServerOpen,
    /// This process has no key of the server.
    #[error(
        "this user has no key of the file system there (cluster {0}) that its servers accept; get a key file from its owner, then run `sheen key add FILE`"
    )]
    NoKey(ClusterId),
    /// This process has no key, and cannot prove as which user it or the server runs.
    #[error(
        "this user has no key of the file system there (cluster {0}), and cannot get one: {1}; start MUNGE on this host, or get a key file from the file system's owner and run `sheen key add FILE`"
    )]
    NoWitness(ClusterId, io::Error),
    /// The server refused to issue a key.
    #[error("this user has no key of the file system there (cluster {0}), and its server issues none: {1}")]
    NotIssued(ClusterId, &'static str),
    /// A server that issues keys runs as a user whom this process does not trust.
    #[error(
        "the server runs as user {0}, whom this mount does not trust to issue keys; if that is right, use munge={0}"
    )]
    ServerOfUser(u32),
    /// A key file of this user is not usable.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The server refused this process.
    #[error("the server refused key {key}: {reason}")]
    Refused {
        /// The key that was used.
        key: KeyId,
        /// The reason.
        reason: &'static str,
    },
    /// The server demands a key, and this process was started without authentication.
    #[error("the server demands a key, and this process runs with auth=none")]
    Demanded,
    /// The server demands more protection than this process knows.
    #[error("the server demands more protection than this release has; does it run the same release?")]
    Flavor,
    /// The server speaks another version of the protocol.
    #[error(transparent)]
    Version(FrameError),
    /// Somebody on the server's host passes the connection on.
    #[error(
        "the connection does not lead to the server directly; for a tunnel or a forwarded port, start the server with --allow-relays"
    )]
    Relayed,
    /// The server admits nobody at the moment.
    #[error("the server is starting, or too many clients connect at once")]
    Busy,
    /// The server did not prove that it knows the key.
    #[error("the server does not know the secret of key {0}: it is not the file system's server")]
    Impostor(KeyId),
    /// The server sent something else.
    #[error("unexpected answer during authentication; does the server run the same release?")]
    Unexpected,
}

impl AuthError {
    /// Returns the error of a client to which the server issues no key.
    pub(crate) fn of_refused_applicant(errno: Errno, cluster: ClusterId) -> AuthError {
        let reason = match errno {
            Errno::ENOENT => "this user's key was withdrawn",
            Errno::EPERM => "it knows no such user, or gives root no key",
            Errno::EACCES => {
                "it does not accept the credential of MUNGE; do both hosts have the same munge.key and time?"
            }
            _ => return AuthError::Unexpected,
        };
        AuthError::NotIssued(cluster, reason)
    }
}

/// Why a server does not admit a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stranger {
    /// It sent another message first.
    #[error("it did not authenticate")]
    Silent,
    /// It ended the connection when it learned the server's cluster.
    #[error("it has no key of this server")]
    NoKey,
    /// Somebody on this host passes the connection on.
    #[error("it is passed on by another process: the client sees {} and {}", .0.client, .0.server)]
    Relayed(Route),
    /// It accepts no flavor of this server.
    #[error("it accepts no protection that this server demands; does it run the same release?")]
    Flavor,
    /// It named a key that this server does not accept.
    #[error("this server does not accept key {0}")]
    UnknownKey(KeyId),
    /// It named a key and does not know its secret.
    #[error("it does not know the secret of key {0}")]
    NoSecret(KeyId),
    /// It applied for a key without proving as which user it runs.
    #[error("it applied for a key, and its credential is not valid")]
    Unproved,
    /// It applied for a key, and this server cannot check that at the moment.
    #[error(
        "it applied for a key; MUNGE, the directory of users or the disk of this host does not work (see debug lines)"
    )]
    NoWitness,
    /// This user gets no key.
    #[error("it applied for a key, and this server issues none to user {0}")]
    NotIssued(u32),
    /// This server does not know its keys yet.
    #[error("this server has not got its key from the MGS yet")]
    Starting,
    /// It did not finish in time.
    #[error("it did not authenticate in time")]
    Slow,
    /// Too many connections authenticate at the same time.
    #[error("too many connections authenticate at the same time")]
    Crowd,
    /// It speaks another version of the protocol.
    #[error(
        "it speaks protocol version {0}, this server speaks {PROTOCOL_VERSION}; run the same release on both sides"
    )]
    Version(u16),
    /// Something that is no message of the handshake.
    #[error("it sent an invalid message")]
    Invalid,
}

impl Stranger {
    /// Returns the key that it named.
    pub fn key(self) -> Option<KeyId> {
        match self {
            Stranger::UnknownKey(key) | Stranger::NoSecret(key) => Some(key),
            _ => None,
        }
    }

    /// Returns the errno in the refusal.
    pub(crate) fn errno(self) -> Errno {
        match self {
            Stranger::Starting | Stranger::NoWitness => Errno::EAGAIN,
            Stranger::Crowd => Errno::EBUSY,
            Stranger::UnknownKey(_) => Errno::ENOENT,
            Stranger::Relayed(_) => Errno::EREMOTE,
            Stranger::Silent | Stranger::Slow | Stranger::NoKey | Stranger::NoSecret(_) | Stranger::Unproved => {
                Errno::EACCES
            }
            Stranger::NotIssued(_) => Errno::EPERM,
            Stranger::Flavor => Errno::EOPNOTSUPP,
            Stranger::Version(_) | Stranger::Invalid => Errno::EPROTO,
        }
    }
}
