//! `--auth` and `-o auth`: whom a process trusts.

use std::{net::SocketAddr, sync::Arc};

use sheen_keys::Keyring;
use sheen_lnet::Trust;

use crate::{
    args::{AuthArg, AuthMode},
    error::{Failure, Result},
};

/// Returns whom a process trusts that was started with these options.
pub fn trust(auth: &AuthArg) -> Trust {
    match auth.auth {
        AuthMode::Key => {
            let keyring = Arc::new(Keyring::of_user());
            Trust::Keys { keyring, open_servers: false, relays: auth.allow_relays }
        }
        AuthMode::None => Trust::All,
    }
}

/// Refuses to serve a network without authentication, unless the user insists.
pub fn check_open(auth: &AuthArg, addr: SocketAddr) -> Result {
    if auth.auth == AuthMode::Key || addr.ip().is_loopback() || auth.trust_network {
        return Ok(());
    }
    Err(Failure::new(format!("with --auth none, everybody who reaches {addr} could read and change all files")).advise(
        "omit --auth none, listen on 127.0.0.1, or add --trust-network if all hosts and users there are trusted",
    ))
}
