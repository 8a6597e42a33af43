//! Commands of Lustre's `lctl` that Sheen refuses.

const BARRIERS: &str =
    "changes of a running file system cannot be suspended; stop it with 'sheen down' before a backup";
const SNAPSHOTS: &str = "Sheen makes no snapshots; stop the file system with 'sheen down', and make snapshots of all \
     servers' directories with LVM, ZFS or Btrfs";
const LOGS: &str = "Sheen stores no logs; 'lctl set_param -P -d PATTERN' deletes a permanent setting";

/// Returns why a command is refused, and the alternative. `None`: Lustre has no such command, or
/// it is not known here.
pub fn reason(command: &str) -> Option<&'static str> {
    Some(match command {
        "barrier_freeze" | "barrier_thaw" | "barrier_stat" | "barrier_rescan" => BARRIERS,
        "snapshot_create" | "snapshot_destroy" | "snapshot_list" | "snapshot_modify" | "snapshot_mount"
        | "snapshot_umount" => SNAPSHOTS,
        "llog_cancel" | "llog_remove" | "llog_info" | "llog_check" => LOGS,
        _ => return None,
    })
}
