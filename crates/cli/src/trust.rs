//! `--auth`, `--flavor` and the mount options of the same names: whom a process trusts.

use std::net::SocketAddr;

use sheen_keys::Keyring;
use sheen_lnet::{Keys, Protection, Trust};
use sheen_wire::auth::Flavor;

use crate::{
    args::{AuthArg, AuthMode},
    error::{Failure, Result},
};

/// Returns whom a process trusts that was started with these options.
pub fn trust(auth: &AuthArg) -> Trust {
    match auth.auth {
        AuthMode::Key => {
            let protection = auth.flavor.map_or_else(Protection::default, Protection::from);
            Keys { relays: auth.allow_relays, protection, ..Keys::new(Keyring::of_user()) }.into()
        }
        AuthMode::None => Trust::All,
    }
}

/// Refuses a protection that needs a key, without one.
pub fn check_flavor(auth: AuthMode, flavor: Option<Flavor>) -> Result {
    match flavor {
        Some(flavor @ (Flavor::Integrity | Flavor::Privacy)) if auth == AuthMode::None => {
            Err(Failure::new(format!("flavor {flavor} needs a key, and auth is none")).advise("omit one of the two"))
        }
        _ => Ok(()),
    }
}

/// Refuses to serve a network without authentication, unless the user insists, and options that
/// contradict each other.
pub fn check(auth: &AuthArg, addr: SocketAddr) -> Result {
    check_flavor(auth.auth, auth.flavor)?;
    if auth.auth == AuthMode::Key || addr.ip().is_loopback() || auth.trust_network {
        return Ok(());
    }
    Err(Failure::new(format!("with --auth none, everybody who reaches {addr} could read and change all files")).advise(
        "omit --auth none, listen on 127.0.0.1, or add --trust-network if all hosts and users there are trusted",
    ))
}
