//! The addresses of targets, as far as processes of this host know them.

use sheen_lnet::Nid;

use crate::processes::{self, Process};

/// Returns the addresses of a target by its name, such as `scratch-OST0001` or `MGS`. They are
/// those of the process that serves it, those of a mount's connection, or those in the list of an
/// MGS. None: no process of this user knows it.
///
/// # Errors
/// Several targets have the name. The text is for the user.
pub fn of_target(name: &str) -> Result<Vec<Nid>, String> {
    for source in [served, mounted, managed] {
        let mut found = source(name);
        found.retain(|nids| !nids.is_empty());
        let Some(first) = found.first() else { continue };
        return if found.iter().all(|nids| nids.iter().any(|nid| first.contains(nid))) {
            Ok(first.clone())
        } else {
            Err("several targets known to this host have the name; take a NID".into())
        };
    }
    Ok(Vec::new())
}

fn served(name: &str) -> Vec<Vec<Nid>> {
    let found = ["obdfilter.*", "mdt.*", "mgs.*"].into_iter().flat_map(|pattern| processes::with(pattern).found);
    let its = found.filter(|(param, _)| param.split('.').nth(1) == Some(name));
    its.map(|(_, process)| of_process(&process)).collect()
}

fn mounted(name: &str) -> Vec<Vec<Nid>> {
    let found = ["osc.*.import", "mdc.*.import"].into_iter().flat_map(|pattern| processes::with(pattern).found);
    let its = found.filter_map(|(param, process)| of_import(&process.get(&param).ok()?));
    its.filter(|(target, _)| target == name).map(|(_, nids)| nids).collect()
}

fn managed(name: &str) -> Vec<Vec<Nid>> {
    let lists = processes::with("mgs.MGS.targets.*").found;
    lists.into_iter().filter_map(|(param, process)| of_list(&process.get(&param).ok()?, name)).collect()
}

/// Returns the addresses in a network at which a process listens. None: it does not answer.
pub fn of_process(process: &Process) -> Vec<Nid> {
    addresses(process.nids().unwrap_or_default().iter().map(String::as_str))
}

/// Returns name and addresses of the target of an import. `None`: it is a deactivated target, or
/// one of the same process.
pub fn of_import(text: &str) -> Option<(String, Vec<Nid>)> {
    let value = |key: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(key));
    let name = value("target: ")?.strip_suffix("_UUID")?;
    let nids = addresses(value("failover_nids: ")?.split('"'));
    (!text.contains("IMPF_DEACTIVE") && !nids.is_empty()).then(|| (name.to_owned(), nids))
}

/// Returns the addresses of a target in the list of an MGS. `None`: it is not in the list.
fn of_list(text: &str, name: &str) -> Option<Vec<Nid>> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(name))?;
    Some(addresses(line.split(' ').nth(2)?.split(',')))
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

    fn texts(nids: &[Nid]) -> Vec<String> {
        nids.iter().map(Nid::to_string).collect()
    }

    #[test]
    fn import_names_its_target_and_all_addresses() {
        let nids = "\"10.0.0.1@tcp\", \"10.0.0.2:7990@tcp\", \"0@lo\"";
        for target in ["my-fs-OST000a", "my-fs-MDT0000"] {
            let (name, found) = of_import(&import(target, "", nids)).unwrap();
            assert_eq!(
                (name.as_str(), texts(&found)),
                (target, vec!["10.0.0.1@tcp".into(), "10.0.0.2:7990@tcp".into()])
            );
        }
        for other in [
            import("my-fs-OST000a", "IMPF_DEACTIVE", nids),
            import("my-fs-OST000a", "", "\"0@lo\""),
            import("my-fs-OST000a", "", ""),
            "import:\n".to_owned(),
        ] {
            assert_eq!(of_import(&other), None, "{other}");
        }
    }

    #[test]
    fn list_of_an_mgs_has_the_addresses_of_each_target() {
        let list = "a-MDT0000 u1 10.0.0.1:7989@tcp\na-OST0000 u2 10.0.0.2@tcp,10.0.0.3@tcp\na-OST0001 u3 removed\n";
        let found = |name: &str| of_list(list, name).map(|nids| texts(&nids));
        assert_eq!(found("a-MDT0000").unwrap(), ["10.0.0.1:7989@tcp"]);
        assert_eq!(found("a-OST0000").unwrap(), ["10.0.0.2@tcp", "10.0.0.3@tcp"]);
        assert_eq!((found("a-OST0001"), found("a-OST")), (Some(Vec::new()), None));
    }
}
