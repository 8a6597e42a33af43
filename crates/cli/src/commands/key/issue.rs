//! `sheen key issue`: makes a key with less authority than that of a key of the cluster.
//!
//! Servers need no copy of it: they derive its secret. The directory of the MGS gets a record of
//! it, without the secret, so that an administrator can list and withdraw it.

use std::io::{self, IsTerminal, Write};

use sheen_keys::{Found, record};
use sheen_rt::{RealOptions, Rt};
use sheen_wire::{
    auth::{Issued, KeyId, Role, User},
    nodemap::is_name,
};

use super::dirs::{of_mgs, served};
use crate::{
    accounts::account,
    args::KeyIssueArgs,
    error::{Context, Failure, Result},
};

/// Runs the command.
pub fn issue(args: &KeyIssueArgs) -> Result {
    let mut out = io::stdout();
    if out.is_terminal() {
        return Err(Failure::new("the key would be shown on the terminal")
            .advise("pass it on, as in `sheen key issue … | ssh HOST sheen key add -`, or redirect it to a file"));
    }
    if args.nodemap.as_deref().is_some_and(|name| !is_name(name)) {
        return Err(Failure::new("invalid name of a nodemap: expected 1 to 16 letters, digits or '_'"));
    }
    of_mgs(&args.dir)?;
    let (dir, served) = served(&args.dir)?;
    let Some(Found { key: newest, .. }) = served.last() else {
        return Err(Failure::new(format!("{} has no key yet; the first start of the server makes one", dir.display())));
    };
    let role = match &args.user {
        None => Role::Host(args.nodemap.clone()),
        Some(name) => {
            let user = account(name).ok_or_else(|| {
                Failure::new(format!("this host has no user {name}, or that user is in too many groups"))
            })?;
            if user.uid == 0 {
                return Err(Failure::new("root may act as any user").advise("issue a key of a host: --host"));
            }
            Role::User(User { nodemap: args.nodemap.clone(), ..user })
        }
    };
    let (runtime, rt) = Rt::real(RealOptions::default()).context("cannot start")?;
    let mut id = [0; 8];
    rt.fill_random(&mut id);
    let created = rt.wall().sec.max(newest.created);
    drop(runtime);
    let key = newest.issue(Issued { id: KeyId(u64::from_le_bytes(id)), role }, created);
    let key = key.context("cannot issue the key")?;
    record(&dir, &key).context("cannot record the key")?;
    out.write_all(key.to_text().as_bytes()).and_then(|()| out.flush()).context("cannot write the key")
}
