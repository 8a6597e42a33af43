//! `lctl` of ordinary users: they read public parameters of root's processes, and set none.

use std::path::Path;

use sheen_tests::{Ran, sandbox::Sandbox};

/// Runs `lctl` as a user who is in no group.
const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_RUNTIME_DIR lctl";

fn root(s: &Sandbox, line: &str) -> Ran {
    s.sh(Path::new("/"), &format!("lctl {line}"))
}

fn nobody(s: &Sandbox, line: &str) -> Ran {
    s.sh(Path::new("/"), &format!("{NOBODY} {line}"))
}

#[test]
fn ordinary_users_read_public_parameters_of_roots_processes() {
    Sandbox::enter("public_params", |s| {
        s.up("sheen", "/mnt/here");
        s.mount_again("/mnt/there");
        for line in [
            "get_param version 'osc.*.max_rpcs_in_flight' 'llite.*.mount_point'",
            "get_param -F 'lod.*.qos_threshold_rr'",
            "get_param --json 'lod.*.qos_threshold_rr' 'mdt.*.uuid'",
            "get_param --fsname sheen -n 'lov.*.target_obd'",
            "list_param -F 'obdfilter.*.kbytes*'",
            "list_param 'llite.*'",
        ] {
            assert_eq!(nobody(s, line).ok(), root(s, line).ok(), "{line}");
        }
        assert_eq!(root(s, "get_param -N 'llite.*.stats'").ok().lines().count(), 2, "both processes answer");
        let modes = "stat -c '%a %U' /run/sheen-public /run/sheen-public/*.sock | sort -u";
        assert_eq!(s.sh(Path::new("/"), modes).ok(), "666 root\n755 root\n");
    });
}

#[test]
fn ordinary_users_are_refused_other_parameters_and_changes() {
    Sandbox::enter("public_params_refused", |s| {
        s.up("sheen", "/mnt/here");
        for hidden in [
            "mdt.*.job_stats",
            "mdt.*.exports.*.uuid",
            "*.*.waits",
            "nodemap.*.*",
            "srpc.*.*",
            "mgs.MGS.live.*",
            "mdd.*.changelog_users",
            "llite.*.extents_stats_per_process",
        ] {
            root(s, &format!("get_param '{hidden}'")).ok();
            let refused = nobody(s, &format!("get_param '{hidden}'"));
            assert_eq!((refused.code, refused.out.as_str()), (13, ""), "{hidden}");
        }
        let read = "get_param -n 'lod.*.qos_threshold_rr'";
        let set = nobody(s, "set_param 'lod.*.qos_threshold_rr=20'");
        let said = "\
error: set_param: setting lod/sheen-MDT0000-mdtlov/qos_threshold_rr=20: Permission denied
error: set_param: setting 'lod/*/qos_threshold_rr'='20': Permission denied\n";
        assert_eq!((set.code, set.out.as_str(), set.err.as_str()), (13, "", said));
        for line in ["set_param 'mdt.*.abort_recovery=1'", "set_param -P 'osc.*.max_dirty_mb=1'"] {
            let refused = nobody(s, line);
            assert!(refused.code != 0 && refused.out.is_empty(), "{line}: {}", refused.err);
        }
        assert_eq!(root(s, read).ok(), "17%\n");
        assert_eq!(root(s, "llog_print params").ok(), "");
        // Nobody can put a socket beside those of root.
        let made =
            s.sh(Path::new("/"), &format!("{} touch /run/sheen-public/1.sock", NOBODY.trim_end_matches(" lctl")));
        assert_ne!(made.code, 0);
    });
}
