//! The OSTs that a survey can reach: those that processes of this host serve and, over the network,
//! those of its mounts.

use sheen_lnet::Nid;

use crate::{
    processes::{self, Process},
    survey::args::Case,
    target_nids::{of_import, of_process},
};

/// The parameter of an OST that starts a load.
pub const PARAM: &str = "survey";

/// An OST.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// The process that serves it, or whose mount uses it.
    pub process: Process,
    /// Whether the process serves it.
    pub is_served: bool,
    /// Its addresses, if the case needs them.
    pub nids: Vec<Nid>,
}

/// Returns the OSTs that a case can reach, by name. Two processes may serve one name.
pub fn find(case: Case) -> Vec<Target> {
    let mut targets = served(case);
    if case.is_remote() {
        for target in mounted() {
            if targets.iter().all(|known| known.name != target.name) {
                targets.push(target);
            }
        }
    }
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

fn served(case: Case) -> Vec<Target> {
    let found = processes::with(&format!("obdfilter.*.{PARAM}")).found;
    let target = |(param, process): (String, Process)| {
        let name = param.split('.').nth(1)?.to_owned();
        // Without an answer it has no address, which the plan refuses.
        let nids = if case.is_remote() { of_process(&process) } else { Vec::new() };
        Some(Target { name, is_served: true, nids, process })
    };
    found.into_iter().filter_map(target).collect()
}

fn mounted() -> Vec<Target> {
    let found = processes::with("osc.*.import").found;
    let target = |(param, process): (String, Process)| {
        let (name, nids) = of_import(&process.get(&param).ok()?).filter(|(name, _)| is_ost(name))?;
        Some(Target { name, is_served: false, nids, process })
    };
    found.into_iter().filter_map(target).collect()
}

/// Whether this is the name of an OST, and not that of the data service of an MDT.
fn is_ost(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(_, target)| target.starts_with("OST"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_service_of_an_mdt_is_no_ost() {
        assert!(is_ost("my-fs-OST000a"));
        for other in ["my-fs-MDT0000-dom", "my-fs-MDT0000", "MGS"] {
            assert!(!is_ost(other), "{other}");
        }
    }
}
