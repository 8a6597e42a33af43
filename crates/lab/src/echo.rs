//! A request of the self-test, whose data travels in one direction.

use std::io;

use sheen_rpc::Import;
use sheen_wire::{Bulk, Selftest, selftest::Request};

/// Sends data, and waits for a reply with this many bytes.
///
/// # Errors
/// Of the request. The reply has another length.
pub async fn echo(import: &Import<Selftest>, bulk: Bulk, reply_bytes: u32) -> io::Result<()> {
    let reply = import.request(Request::Echo { reply_bytes }).bulk(bulk).send().await.map_err(io::Error::other)?;
    if reply.bulk.len() == reply_bytes as usize { Ok(()) } else { Err(io::Error::other("the reply is too short")) }
}
