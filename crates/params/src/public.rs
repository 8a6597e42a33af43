//! The parameters of a process that every user of the machine may read.
//!
//! In Lustre the mode of each file decides. Here one list decides, and a parameter that it does not
//! name is hidden. The list has tunables, space, states, and statistics of a whole mount or target.
//! It must not have:
//! * what single users, jobs, processes or clients do: `job_stats`, `exports`, `waits`, tables of
//!   reads and writes;
//! * names of files and objects: `lfsck_*`, `access_patterns`;
//! * rules for access: nodemaps, flavors, quotas, permanent settings, users of changelogs;
//! * parameters of the MGS, by which `lctl` finds a process that executes changes;
//! * parameters that execute an operation when they are written.

/// Kinds of parameters, and the names that are public in each of them.
const PUBLIC: &[(&[&str], &[&str])] = &[
    // Parameters of the whole process.
    (&[""], &["jobid_name", "jobid_var", "version"]),
    (
        &["dom", "llite", "mdc", "mdt", "obdfilter", "osc", "osp"],
        &["blocksize", "filesfree", "filestotal", "kbytesavail", "kbytesfree", "kbytestotal"],
    ),
    (
        &["llite"],
        &[
            "cache_stats",
            "cached_inodes",
            "cached_layouts",
            "client_type",
            "fstype",
            "fuse_stats",
            "lockless_write_kb",
            "max_read_ahead_mb",
            "max_read_ahead_per_file_mb",
            "mount_point",
            "open_files",
            "read_ahead_stats",
            "root_fid",
            "statahead_agl",
            "statahead_batch_max",
            "statahead_max",
            "statahead_min",
            "statahead_running_max",
            "statahead_stats",
            "statahead_timeout",
            "stats",
            "uuid",
            "writeback",
        ],
    ),
    (
        &["dom", "mdc", "osc"],
        &[
            "active",
            "checksum_type",
            "checksums",
            "connect_flags",
            "cur_dirty_bytes",
            "cur_grant_bytes",
            "import",
            "max_dirty_mb",
            "max_mod_rpcs_in_flight",
            "max_pages_per_rpc",
            "max_rpcs_in_flight",
            "md_stats",
            "mds_conn_uuid",
            "mds_server_uuid",
            "ost_conn_uuid",
            "ost_server_uuid",
            "rpc_stats",
            "state",
            "stats",
            "timeouts",
            "unstable_stats",
        ],
    ),
    (&["osc", "osp"], &["active", "max_create_count"]),
    (
        &["lod", "lov"],
        &[
            "activeobd",
            "dom_stripesize",
            "dom_stripesize_max_kb",
            "dom_threshold_free_mb",
            "numobd",
            "qos_prio_free",
            "qos_threshold_rr",
            "stripecount",
            "stripeoffset",
            "stripesize",
            "stripetype",
            "target_obd",
            "uuid",
        ],
    ),
    (
        &["ldlm.namespaces"],
        &[
            "contended_locks",
            "contention_seconds",
            "contention_window_ms",
            "lock_adaptive",
            "lock_count",
            "lock_expand",
            "lock_timeout",
            "lock_timeout_ms",
            "lock_timeouts",
            "lock_unused_count",
            "lru_max_age",
            "lru_size",
            "max_locks",
            "max_locks_per_client",
            "resource_count",
            "stats",
        ],
    ),
    (
        &["dom", "mdt", "obdfilter"],
        &[
            "commit_interval_ms",
            "job_cleanup_interval",
            "num_exports",
            "recovery_status",
            "recovery_time_hard",
            "recovery_time_soft",
            "uuid",
        ],
    ),
    (
        &["mdt"],
        &[
            "commit_on_sharing",
            "commit_ops_max",
            "enable_chprojid_gid",
            "enable_remote_dir_gid",
            "health",
            "last_committed",
            "last_transno",
            "md_stats",
            "sync_permission",
        ],
    ),
    (
        &["dom", "obdfilter"],
        &[
            "brw_size",
            "brw_stats",
            "checksums_at_rest",
            "degraded",
            "maxbytes",
            "open_files",
            "scrub_quiet_secs",
            "scrub_speed_mb",
            "stats",
            "tot_granted",
        ],
    ),
    (&["osd-sheen"], &["brw_stats"]),
    (
        &["mdd"],
        &[
            "changelog_current_mask",
            "changelog_deniednext",
            "changelog_gc",
            "changelog_mask",
            "changelog_max_idle_indexes",
            "changelog_max_idle_time",
            "changelog_min_gc_interval",
            "changelog_size",
        ],
    ),
];

/// Returns whether every user may read a parameter. `path`: its name, with `/` between components.
pub(crate) fn is_public(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let (kind, name) = match parts[..] {
        // The OSTs of a pool.
        ["lov", _, "pools", _] => return true,
        ["ldlm", "namespaces", _, name] => ("ldlm.namespaces", name),
        [kind, _, name] => (kind, name),
        [name] => ("", name),
        _ => return false,
    };
    PUBLIC.iter().any(|(kinds, names)| kinds.contains(&kind) && names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_parameters_are_those_of_the_list() {
        for path in [
            "version",
            "llite/sheen-ff00/stats",
            "osc/sheen-OST0000-osc-ff00/max_rpcs_in_flight",
            "osp/sheen-OST0000-osc-MDT0000/active",
            "lov/sheen-clilov-ff00/pools/flash",
            "lod/sheen-MDT0000-mdtlov/stripecount",
            "ldlm/namespaces/filter-sheen-OST0000_UUID/lock_count",
            "obdfilter/sheen-OST0000/kbytesfree",
            "mdt/sheen-MDT0000/md_stats",
        ] {
            assert!(is_public(path), "{path}");
        }
    }

    #[test]
    fn other_parameters_are_hidden() {
        for path in [
            "",
            "lnet/delay_us",
            "nodemap/active",
            "nodemap/site/ranges",
            "srpc/sheen/flavor",
            "mgc/sheen/params",
            "mgs/MGS/filesystems",
            "mgs/MGS/live/params",
            "mgs/MGS/nodemaps",
            "mdt/sheen-MDT0000/job_stats",
            "mdt/sheen-MDT0000/waits",
            "mdt/sheen-MDT0000/nodemaps",
            "mdt/sheen-MDT0000/abort_recovery",
            "mdt/sheen-MDT0000/exports/10.0.0.1@tcp/stats",
            "obdfilter/sheen-OST0000/quota",
            "obdfilter/sheen-OST0000/new_and_unknown",
            "llite/sheen-ff00/extents_stats_per_process",
            "llite/sheen-ff00/access_patterns",
            "osc/sheen-OST0000-osc-ff00/srpc_info",
            "mdd/sheen-MDT0000/changelog_users",
            "stats",
            "ldlm/namespaces/stats",
            "other/stats",
            "llite/a/b/stats",
        ] {
            assert!(!is_public(path), "{path}");
        }
    }

    #[test]
    fn public_parameters_are_documented() {
        let text = include_str!("../../../docs/lctl.md");
        let section = text.split("\n## ").find(|section| section.starts_with("Parameters for all users\n")).unwrap();
        for (kinds, names) in PUBLIC {
            for name in kinds.iter().chain(*names).filter(|name| !name.is_empty()) {
                let is_named = section.contains(&format!("`{name}`")) || section.contains(&format!("`{name}."));
                assert!(is_named, "docs/lctl.md does not name {name}");
            }
        }
    }
}
