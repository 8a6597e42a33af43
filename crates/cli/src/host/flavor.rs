//! `srpc.FSNAME.flavor`: the least protection of connections that a file system demands.
//!
//! Each process with a target or a mount of the file system has the parameter. `lctl conf_param
//! FSNAME.srpc.flavor.default` sets it in all of them.

use std::sync::Arc;

use sheen_lnet::{Net, Trust};
use sheen_params::{Param, Params};
use sheen_rpc::Server;
use sheen_wire::{Errno, auth::Flavor};

use super::Host;

/// Value of the parameter as long as no flavor is set.
const DEFAULT: &str = "default";

impl Host {
    /// Registers the parameter, once for each file system.
    pub(super) fn register_flavor(&self, fsname: &str) {
        register(&self.params, &self.net, &self.server, fsname);
    }
}

fn register(params: &Params, net: &Arc<Net>, server: &Arc<Server>, fsname: &str) {
    let name = format!("srpc.{fsname}.flavor");
    if params.get(&name).is_ok() {
        return;
    }
    let (read, of) = (net.clone(), fsname.to_owned());
    let get = move || read.demanded(&of).map_or_else(|| DEFAULT.to_owned(), |flavor| flavor.to_string());
    let (net, server, of) = (net.clone(), Arc::downgrade(server), fsname.to_owned());
    let set = move |text: &str| {
        let flavor = parse(text)?;
        if matches!(net.trust(), Trust::All) && flavor.is_some_and(|flavor| flavor != Flavor::Null) {
            return Err(Errno::EOPNOTSUPP);
        }
        net.demand(&of, flavor);
        // Clients connect again with the new flavor.
        let ended = server.upgrade().map_or(0, |server| server.end_refused());
        tracing::info!("{of} demands the flavor {}: closed {ended} connections with less", text.trim());
        Ok(())
    };
    params.register(&name, Param::text_rw(get, set));
}

/// Parses a value of the parameter. `None`: the default.
///
/// # Errors
/// EINVAL: it is neither a flavor nor `default`.
pub fn parse(text: &str) -> Result<Option<Flavor>, Errno> {
    match text.trim() {
        DEFAULT => Ok(None),
        flavor => flavor.parse().map(Some).map_err(|_| Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use sheen_keys::{Key, Keyring};
    use sheen_lnet::Keys;
    use sheen_rt::sim::{Sim, SimConfig};
    use sheen_wire::auth::ClusterId;

    use super::*;

    fn flavor_of(trust: Trust, values: &[&str]) -> (Vec<i32>, String) {
        let sim = Sim::new(1, SimConfig::default());
        let (params, net) = (Params::new(), Net::trusting(sim.rt(1), trust));
        let server = Server::new(net.clone());
        register(&params, &net, &server, "scratch");
        register(&params, &net, &server, "scratch");
        let set = |value: &&str| params.set("srpc.scratch.flavor", value).unwrap().remove(0).result;
        let errors = values.iter().map(|value| set(value).map_or_else(|e| e.errno.0, |()| 0)).collect();
        (errors, params.get("srpc.*.flavor").unwrap().remove(0).value)
    }

    #[test]
    fn flavor_of_a_file_system_is_a_parameter() {
        let keys = || Keys::new(Keyring::of(vec![Key::new(ClusterId(7), 1, [1; 32], 0)])).into();
        assert_eq!(flavor_of(keys(), &[]), (vec![], "default".into()));
        assert_eq!(flavor_of(keys(), &["privacy"]), (vec![0], "privacy".into()));
        assert_eq!(flavor_of(keys(), &["privacy", "default"]), (vec![0, 0], "default".into()));
        assert_eq!(flavor_of(keys(), &["integrity", "ski"]), (vec![0, Errno::EINVAL.0], "integrity".into()));
        let (errors, value) = flavor_of(Trust::All, &["privacy", "null"]);
        assert_eq!((errors, &value[..]), (vec![Errno::EOPNOTSUPP.0, 0], "null"));
    }
}
