//! The audit trail of a server: what it refused, and the keys that it issued.
//!
//! This crate and `rpc` report the events. The process that runs the server writes them down, so
//! the trail is a trait here.

use std::{fmt::Display, net::SocketAddr};

use serde::{Serialize, Serializer};
use sheen_wire::{Fid, auth::KeyId};

use crate::{Nid, Stranger};

/// The audit trail of a process.
pub trait Audit: Send + Sync {
    /// Records an event. Must not wait.
    fn record(&self, event: Event);
}

/// An event of an audit trail.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A connection was refused before any request was read.
    RefusedConnection {
        /// The client's address.
        #[serde(serialize_with = "text")]
        nid: Nid,
        /// The reason.
        reason: String,
        /// The key that the client named. It may not know its secret.
        #[serde(serialize_with = "text_if_any", skip_serializing_if = "Option::is_none")]
        key: Option<KeyId>,
    },
    /// A key was issued to a client that had none.
    IssuedKey {
        /// The client's address.
        #[serde(serialize_with = "text")]
        nid: Nid,
        /// The key.
        #[serde(serialize_with = "text")]
        key: KeyId,
        /// The key's authority.
        role: String,
        /// The user as whom the client has proved to run.
        uid: u32,
    },
    /// A request was denied.
    Denied(Box<Denied>),
    /// Events are missing here, because they came faster than they could be written.
    Dropped {
        /// Their number.
        count: u64,
    },
}

/// A request that a service denied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Denied {
    /// The service.
    pub target: String,
    /// The client's address.
    #[serde(serialize_with = "text")]
    pub nid: Nid,
    /// The name under which the service knows the client.
    pub client: String,
    /// The key of the client's connection. `None`: it has none, or the connection has ended.
    #[serde(serialize_with = "text_if_any", skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// The client's authority.
    pub role: String,
    /// The request's name.
    pub op: &'static str,
    /// The error's name.
    pub error: &'static str,
    /// The error's number.
    pub errno: i32,
    /// The user for whom the request was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group of that user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// The file, the object, or the directory of `name`.
    #[serde(serialize_with = "text_if_any", skip_serializing_if = "Option::is_none")]
    pub fid: Option<Fid>,
    /// The entry of the directory, or the extended attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Event {
    /// Returns the event that the connection from an address was refused.
    pub fn refused(peer: SocketAddr, stranger: Stranger) -> Event {
        Event::RefusedConnection { nid: Nid::Tcp(peer), reason: stranger.to_string(), key: stranger.key() }
    }
}

fn text<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn text_if_any<S: Serializer>(value: &Option<impl Display>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(value),
        None => to.serialize_none(),
    }
}
