//! Log lines of slow requests. The log adds the operation's id to them, so the lines of a client
//! and of the servers that worked for it can be matched.

use std::time::Duration;

use sheen_rt::operation::SLOW_AFTER;

use crate::service::Export;

/// Logs a request of this client that took long, the waits for connections and replies included.
pub(crate) fn client_request(target: &str, request: &str, took: Duration) {
    if took >= SLOW_AFTER {
        let seconds = took.as_secs();
        tracing::warn!(target_name = %target, request, seconds, "slow request: see the target's log for the reason");
    }
}

/// Logs a request that took this server long.
pub(crate) fn server_request(target: &str, export: &Export, xid: u64, request: &str, took: Duration) {
    if took >= SLOW_AFTER {
        let (client, nid, seconds) = (export.client(), export.nid(), took.as_secs());
        tracing::warn!(
            target_name = %target,
            client,
            %nid,
            xid,
            request,
            seconds,
            "slow request: it waited for a lock, another server or the disk"
        );
    }
}
