//! The file system of a parameter or device, read from its name.
//!
//! Names are Lustre's. The component that names a target, a mount or one of its devices begins with
//! the name of the file system: `osc.scratch-OST0000-osc-ff00.active`, `llite.scratch-ff00.stats`,
//! `ldlm.namespaces.filter-scratch-OST0000_UUID.stats`. A file system's name has letters, digits,
//! `_` and `-`. It therefore ends at the first part such as `-OST0000`, not at the first `-`.

/// Returns the file system that a name belongs to. `None`: the name belongs to the whole process,
/// such as `version` and `lnet.delay_us`.
pub fn fsname_of(name: &str) -> Option<&str> {
    // A registered name has `/` between components, a printed one has `.`.
    let parts: Vec<&str> = name.split(['.', '/']).collect();
    match parts[..] {
        ["mgs", "MGS", "live", "params"] => None,
        ["mgs", "MGS", "live" | "nodemaps" | "pools", fsname] | ["mgc", fsname, "params"] | ["srpc", fsname, ..] => {
            Some(fsname)
        }
        ["llite", mount, ..] => mount.rsplit_once('-').map(|(fsname, _)| fsname),
        ["ldlm", "namespaces", locks, ..] => fsname_of_device(target_of_locks(locks)),
        _ => parts.iter().find_map(|part| fsname_of_device(part)),
    }
}

/// Returns the target in the name of a lock namespace: `filter-TARGET_UUID` or `mdt-TARGET_UUID` on
/// a server, the name of the device on a client.
fn target_of_locks(name: &str) -> &str {
    let server = name.strip_suffix("_UUID");
    server.and_then(|name| name.strip_prefix("filter-").or_else(|| name.strip_prefix("mdt-"))).unwrap_or(name)
}

/// Returns `scratch` for `scratch-OST0000-osc-ff00`, `scratch-MDT0000` and `scratch-clilov-ff00`.
fn fsname_of_device(name: &str) -> Option<&str> {
    let mut parts = name.match_indices('-').map(|(at, _)| name.split_at(at));
    parts.find(|(fsname, rest)| !fsname.is_empty() && ends_fsname(rest)).map(|(fsname, _)| fsname)
}

/// Returns the target in the name of a device: `sheen-OST0000` for `sheen-OST0000-osc-ff00` and
/// `filter-sheen-OST0000_UUID`.
pub(crate) fn target_of(device: &str) -> Option<&str> {
    let device = target_of_locks(device);
    let (fsname, rest) = device.split_at(fsname_of_device(device)?.len());
    begins_with_index(rest).then(|| &device[..fsname.len() + "-OST0000".len()])
}

/// Returns whether a file system's name ends before `rest`: `-OST0000…`, `-MDT0000…`, `-QMT0000…`,
/// `-clilov-…`.
fn ends_fsname(rest: &str) -> bool {
    begins_with_index(rest) || rest.starts_with("-clilov-")
}

/// Returns whether `rest` is `-OST0000…`, `-MDT0000…` or `-QMT0000…`.
fn begins_with_index(rest: &str) -> bool {
    let index = ["-OST", "-MDT", "-QMT"].into_iter().find_map(|kind| rest.strip_prefix(kind));
    let index = index.and_then(|index| index.get(..4));
    index.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::fsname_of;

    #[test]
    fn fsname_of_finds_the_file_system_of_targets_mounts_and_the_mgs() {
        for (name, fsname) in [
            ("osc.sheen-OST0000-osc-ff00.active", "sheen"),
            ("osc/a-b-OST001f-osc-MDT0000/active", "a-b"),
            ("osp.sheen-OST0003-osc-MDT0000.max_create_count", "sheen"),
            ("mdc.sheen-MDT0000-mdc-ff00.stats", "sheen"),
            ("dom.sheen-MDT0000-dom-ff00.stats", "sheen"),
            ("obdfilter.sheen-OST0000.degraded", "sheen"),
            ("mdt.sheen-MDT0000.md_stats", "sheen"),
            ("lod.sheen-MDT0000-mdtlov.stripecount", "sheen"),
            ("lov.sheen-clilov-ff00.pools.fast", "sheen"),
            ("llite.a-b-ff3298de21e05800.stats", "a-b"),
            ("ldlm.namespaces.filter-sheen-OST0000_UUID.stats", "sheen"),
            ("ldlm.namespaces.mdt-sheen-MDT0000_UUID.stats", "sheen"),
            ("ldlm.namespaces.filter-a-OST0000-osc-ff00.lru_size", "filter-a"),
            ("mgc.sheen.params", "sheen"),
            ("srpc.a-b.flavor", "a-b"),
            ("mgs.MGS.live.sheen", "sheen"),
            ("mgs.MGS.pools.sheen", "sheen"),
            ("mgs.MGS.nodemaps.sheen", "sheen"),
            ("sheen-OST0000-osc-ff00", "sheen"),
            ("qmt.a-b-QMT0000.dt-0x0.glb-usr", "a-b"),
            ("osd-sheen.a-b-OST0000.quota_slave.acct_user", "a-b"),
        ] {
            assert_eq!(fsname_of(name), Some(fsname), "{name}");
        }
    }

    #[test]
    fn fsname_of_finds_none_for_process_wide_names() {
        for name in [
            "version",
            "lnet.delay_us",
            "mgs.MGS.live.params",
            "mgs.MGS.filesystems",
            "mgs.MGS.nodemaps",
            "nodemap.a.id",
            "MGC10.0.2.15@tcp",
            "",
        ] {
            assert_eq!(fsname_of(name), None, "{name}");
        }
        for odd in ["osc.-OST0000.a", "osc.sheen-OST1.a", "osc.sheen-OSTé00.a", "mdt.sheen-MDT.a"] {
            assert_eq!(fsname_of(odd), None, "{odd}");
        }
    }
}
