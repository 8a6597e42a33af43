//! `--auth`, `--flavor` and the mount options of the same names: whom a process trusts.

use std::{net::SocketAddr, sync::Arc};

use sheen_keys::Keyring;
use sheen_lnet::{Applying, Issuing, Keys, Trust};
use sheen_wire::auth::Flavor;

use crate::{
    args::{AuthArg, AuthMode, MungeArg},
    error::{Failure, Result},
    munge::Munge,
};

/// Returns whom a server trusts that was started with these options.
pub fn of_server(auth: &AuthArg) -> Trust {
    match auth.auth {
        AuthMode::Key => {
            let issuing =
                auth.munge.map(|whom| Issuing { witness: Arc::new(Munge::new()), hosts: whom == MungeArg::Hosts });
            Keys { relays: auth.allow_relays, flavor: auth.flavor, issuing, ..Keys::new(Keyring::of_user()) }.into()
        }
        AuthMode::None => Trust::All,
    }
}

/// Returns whom a mount trusts. `servers`: the user as whom servers run that issue keys by MUNGE,
/// if it is neither root nor this user.
pub fn of_mount(auth: AuthMode, flavor: Option<Flavor>, servers: Option<u32>) -> Trust {
    match auth {
        AuthMode::Key => Keys { flavor, applying: Some(applying(servers)), ..Keys::new(Keyring::of_user()) }.into(),
        AuthMode::None => Trust::All,
    }
}

/// Returns whom a tool of this user trusts, which only asks or measures.
pub fn of_tools() -> Trust {
    Keys { open_servers: true, applying: Some(applying(None)), ..Keys::new(Keyring::of_user()) }.into()
}

fn applying(servers: Option<u32>) -> Applying {
    let servers = servers.map_or_else(|| vec![0, rustix::process::geteuid().as_raw()], |servers| vec![servers]);
    Applying { witness: Arc::new(Munge::new()), servers }
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
    if auth.auth == AuthMode::None && auth.munge.is_some() {
        return Err(Failure::new("--munge issues keys, and auth is none").advise("omit one of the two"));
    }
    if auth.auth == AuthMode::Key || addr.ip().is_loopback() || auth.trust_network {
        return Ok(());
    }
    Err(Failure::new(format!("with --auth none, everybody who reaches {addr} could read and change all files")).advise(
        "omit --auth none, listen on 127.0.0.1, or add --trust-network if all hosts and users there are trusted",
    ))
}
