//! The OSTs that a survey can reach: those that processes of this host serve and, over the network,
//! those of its mounts.

use sheen_lnet::Nid;

use crate::{
    processes::{self, Process},
    survey::args::Case,
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
        let nids = if case.is_remote() { process.nids().unwrap_or_default() } else { Vec::new() };
        Some(Target { name, is_served: true, nids: addresses(nids.iter().map(String::as_str)), process })
    };
    found.into_iter().filter_map(target).collect()
}

fn mounted() -> Vec<Target> {
    let found = processes::with("osc.*.import").found;
    let target = |(param, process): (String, Process)| {
        let (name, nids) = of_import(&process.get(&param).ok()?)?;
        Some(Target { name, is_served: false, nids, process })
    };
    found.into_iter().filter_map(target).collect()
}

/// Returns name and addresses of the OST of an import. `None`: it is the data service of an MDT, a
/// deactivated OST, or one of the same process.
fn of_import(text: &str) -> Option<(String, Vec<Nid>)> {
    let value = |key: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(key));
    let name = value("target: ")?.strip_suffix("_UUID")?;
    let is_ost = name.rsplit_once('-').is_some_and(|(_, target)| target.starts_with("OST"));
    let nids = addresses(value("failover_nids: ")?.split('"'));
    (is_ost && !text.contains("IMPF_DEACTIVE") && !nids.is_empty()).then(|| (name.to_owned(), nids))
}

/// Returns the addresses in a network among some texts.
fn addresses<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<Nid> {
    texts.filter_map(|text| text.parse::<Nid>().ok()).filter(|nid| matches!(nid, Nid::Tcp(_))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(target: &str, flags: &str, nids: &str) -> String {
        format!(
            "import:\n    name: x-osc-1\n    target: {target}_UUID\n    state: FULL\n    import_flags: [ {flags} ]\n    \
             connection:\n       failover_nids: [ {nids} ]\n       current_connection: \"10.0.0.9@tcp\"\n"
        )
    }

    #[test]
    fn import_names_its_ost_and_all_addresses() {
        let nids = "\"10.0.0.1@tcp\", \"10.0.0.2:7990@tcp\", \"0@lo\"";
        let (name, found) = of_import(&import("my-fs-OST000a", "", nids)).unwrap();
        let found: Vec<String> = found.iter().map(Nid::to_string).collect();
        assert_eq!((name.as_str(), found.len(), found[0].as_str()), ("my-fs-OST000a", 2, "10.0.0.1@tcp"));
        for other in [
            import("my-fs-MDT0000-dom", "", nids),
            import("my-fs-OST000a", "IMPF_DEACTIVE", nids),
            import("my-fs-OST000a", "", "\"0@lo\""),
            import("my-fs-OST000a", "", ""),
            "import:\n".to_owned(),
        ] {
            assert_eq!(of_import(&other), None, "{other}");
        }
    }
}
