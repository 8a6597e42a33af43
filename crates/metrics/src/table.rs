//! All metrics, and the parameters that they come from. docs/monitoring.md explains them.
//!
//! Names that begin with `lustre_` or `recovery_` are those of lustrefs-exporter, with its labels.

use std::collections::BTreeSet;

use Field::*;
use Select::*;
use Take::*;

/// A metric.
#[derive(Debug)]
pub struct Family {
    /// Name of its samples. Samples of a histogram have a suffix.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Meaning, as a sentence.
    pub help: &'static str,
    /// The parameters with its values.
    pub sources: &'static [Source],
}

/// Parameters of one kind, and how they become samples.
#[derive(Debug)]
pub struct Source {
    /// Pattern of their names, as for `lctl get_param`.
    pub param: &'static str,
    /// The part of Sheen that has them, which determines the labels.
    pub component: Component,
    /// The part of the value.
    pub take: Take,
}

/// Type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only increases until it is cleared. Its name ends with `_total`.
    Counter,
    /// Any number.
    Gauge,
    /// A counter with a name that OpenMetrics does not allow for counters.
    Unknown,
    /// Counts of values by size.
    Histogram,
    /// Text as a label; the value is 1. Its name ends with `_info`.
    Info,
}

/// A part of Sheen that has parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Component {
    /// An OST.
    Ost,
    /// An MDT.
    Mdt,
    /// The data service of an MDT.
    Dom,
    /// The MDT's device for an OST. As in lustrefs-exporter, its name is the label `target`.
    Osp,
    /// The quota master of an MDT: without the label `component`, as in lustrefs-exporter.
    Qmt,
    /// A mount. As in lustrefs-exporter, its name is the label `target`.
    Client,
    /// A mount's device for an OST, or for the data service of an MDT.
    Osc,
    /// A mount's device for an MDT.
    Mdc,
    /// A whole process: without labels.
    Process,
}

/// The part of a parameter's value that becomes samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// The number; a switch is 0 or 1.
    Number,
    /// 1 if the text is `healthy`, otherwise 0.
    Health,
    /// 1 if the text is the state `FULL` of an import, otherwise 0.
    Connected,
    /// As `Connected`, and nothing for the state `NEW`: a mount does not connect to the data
    /// service of an MDT that has none.
    ConnectedIfUsed,
    /// The text, as the label `version`.
    Version,
    /// A field of the text of `recovery_status`.
    Recovery(RecoveryField),
    /// The field with this name of each id in a text of quotas.
    Quota(&'static str),
    /// Time since which statistics count, in seconds since 1970.
    Since,
    /// One statistic, by its name. The second text is the label `operation`; empty: no such label.
    One(&'static str, &'static str, Field),
    /// Several statistics. Their names are the label `operation`.
    Each(Select, Field),
    /// Histograms in seconds of all statistics in microseconds.
    Seconds,
    /// Histograms of `read_bytes` and `write_bytes`.
    Bytes,
    /// Counts by pages of all statistics in pages. The largest number of pages is the label
    /// `pages`.
    Pages,
    /// Counts by size of the two statistics whose names are `read_` and `write_` with this end. The
    /// largest value is the label `size`.
    Sizes(&'static str),
}

/// Statistics of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Select {
    /// All.
    All,
    /// Those with this unit.
    Unit(&'static str),
    /// Those with these names.
    Only(&'static [&'static str]),
    /// All but those with these names.
    Except(&'static [&'static str]),
}

/// A number of a statistic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// Number of values.
    Count,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Sum of the values.
    Sum,
}

/// A field of `recovery_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryField {
    /// The state as a number.
    Status,
    /// Clients that have completed the recovery.
    Completed,
    /// Clients that have connected.
    Connected,
    /// All clients.
    Clients,
    /// Evicted clients.
    Evicted,
    /// Duration in seconds.
    Duration,
    /// Remaining time in seconds.
    TimeRemaining,
}

/// Writes the table: name, type and meaning of a metric, then for each of its parameters the
/// pattern, the component and the part of the value.
macro_rules! families {
    ($($name:literal $kind:ident $help:literal { $($param:literal $component:ident $take:expr;)* })*) => {
        &[$(Family {
            name: $name,
            kind: Kind::$kind,
            help: $help,
            sources: &[$(Source { param: $param, component: Component::$component, take: $take }),*],
        }),*]
    };
}

/// All metrics, in the order in which they are written.
pub const FAMILIES: &[Family] = families! {
    // Processes.
    "sheen_build_info" Info "Version of a process." {
        "version" Process Version;
    }
    "sheen_scrape_processes" Gauge "Processes of this machine that have answered." {}
    "sheen_scrape_errors" Gauge "Processes that have not answered, and parameters that could not be read." {}
    "lustre_health_healthy" Gauge "1 if the target is healthy. Without labels: 1 if all targets are healthy." {
        "mdt.*.health" Mdt Health;
    }

    // Space and clients.
    "lustre_capacity_kilobytes" Gauge "Size of the target's disk in KiB." {
        "obdfilter.*.kbytestotal" Ost Number;
        "mdt.*.kbytestotal" Mdt Number;
    }
    "lustre_free_kilobytes" Gauge "Free space of the target in KiB." {
        "obdfilter.*.kbytesfree" Ost Number;
        "mdt.*.kbytesfree" Mdt Number;
    }
    "lustre_available_kilobytes" Gauge "Space of the target that users may fill, in KiB." {
        "obdfilter.*.kbytesavail" Ost Number;
        "mdt.*.kbytesavail" Mdt Number;
    }
    "lustre_inodes_maximum" Gauge "Inodes or objects that the target can have." {
        "obdfilter.*.filestotal" Ost Number;
        "mdt.*.filestotal" Mdt Number;
    }
    "lustre_inodes_free" Gauge "Inodes or objects that the target can still create." {
        "obdfilter.*.filesfree" Ost Number;
        "mdt.*.filesfree" Mdt Number;
    }
    "lustre_exports_total" Gauge "Exports of the target." {
        "obdfilter.*.num_exports" Ost Number;
        "mdt.*.num_exports" Mdt Number;
    }
    "lustre_connected_clients" Gauge "Clients of the MDT." {
        "mdt.*.num_exports" Mdt Number;
    }
    "lustre_exports_granted_total" Gauge "Space that the target has granted to clients, in bytes." {
        "obdfilter.*.tot_granted" Ost Number;
        "dom.*-dom.tot_granted" Dom Number;
    }
    "lustre_osp_active" Gauge "1 if the MDT uses the OST, 0 if the OST is inactive for it." {
        "osp.*.active" Osp Number;
    }
    "lustre_osp_max_create_count" Gauge "Setting of the MDT for the OST; 0: no new objects there." {
        "osp.*.max_create_count" Osp Number;
    }
    "sheen_ost_degraded" Gauge "1 if the disks of the OST are being repaired." {
        "obdfilter.*.degraded" Ost Number;
    }
    "sheen_mdt_osts" Gauge "OSTs that the MDT knows." {
        "lod.*.numobd" Mdt Number;
    }
    "sheen_mdt_osts_active" Gauge "OSTs on which the MDT can place objects." {
        "lod.*.activeobd" Mdt Number;
    }

    // Data on OSTs and MDTs.
    "lustre_read_samples_total" Counter "Reads." {
        "obdfilter.*.stats" Ost One("read_bytes", "read", Count);
        "dom.*-dom.stats" Dom One("read_bytes", "read", Count);
    }
    "lustre_read_bytes_total" Counter "Bytes read." {
        "obdfilter.*.stats" Ost One("read_bytes", "read", Sum);
        "dom.*-dom.stats" Dom One("read_bytes", "read", Sum);
    }
    "lustre_read_minimum_size_bytes" Gauge "Size of the smallest read in bytes." {
        "obdfilter.*.stats" Ost One("read_bytes", "read", Min);
        "dom.*-dom.stats" Dom One("read_bytes", "read", Min);
    }
    "lustre_read_maximum_size_bytes" Gauge "Size of the largest read in bytes." {
        "obdfilter.*.stats" Ost One("read_bytes", "read", Max);
        "dom.*-dom.stats" Dom One("read_bytes", "read", Max);
    }
    "lustre_write_samples_total" Counter "Writes." {
        "obdfilter.*.stats" Ost One("write_bytes", "write", Count);
        "dom.*-dom.stats" Dom One("write_bytes", "write", Count);
    }
    "lustre_write_bytes_total" Counter "Bytes written." {
        "obdfilter.*.stats" Ost One("write_bytes", "write", Sum);
        "dom.*-dom.stats" Dom One("write_bytes", "write", Sum);
    }
    "lustre_write_minimum_size_bytes" Gauge "Size of the smallest write in bytes." {
        "obdfilter.*.stats" Ost One("write_bytes", "write", Min);
        "dom.*-dom.stats" Dom One("write_bytes", "write", Min);
    }
    "lustre_write_maximum_size_bytes" Gauge "Size of the largest write in bytes." {
        "obdfilter.*.stats" Ost One("write_bytes", "write", Max);
        "dom.*-dom.stats" Dom One("write_bytes", "write", Max);
    }
    "sheen_io_size_bytes" Histogram "Sizes of reads and writes: of requests at a target, of operations on a mount." {
        "obdfilter.*.stats" Ost Bytes;
        "dom.*-dom.stats" Dom Bytes;
        "llite.*.stats" Client Bytes;
    }
    "lustre_pages_per_bulk_rw_total" Counter "Read and write requests, by their size in pages of 4 KiB." {
        "obdfilter.*.brw_stats" Ost Sizes("pages");
        "dom.*-dom.brw_stats" Dom Sizes("pages");
    }
    "sheen_disk_io_in_flight_total" Counter "Reads and writes, by the number of those that the target was executing." {
        "obdfilter.*.brw_stats" Ost Sizes("in_flight");
        "dom.*-dom.brw_stats" Dom Sizes("in_flight");
    }
    "lustre_io_time_milliseconds_total" Counter "Reads and writes, by their time in milliseconds." {
        "obdfilter.*.brw_stats" Ost Sizes("time");
        "dom.*-dom.brw_stats" Dom Sizes("time");
    }
    "lustre_disk_io_total" Counter "Reads and writes of runs of bytes in one object, by their size in bytes." {
        "obdfilter.*.brw_stats" Ost Sizes("io_size");
        "dom.*-dom.brw_stats" Dom Sizes("io_size");
    }

    // Operations of targets.
    "lustre_stats_total" Counter "Operations of the target." {
        "mdt.*.md_stats" Mdt Each(All, Count);
        "obdfilter.*.stats" Ost Each(Unit("usecs"), Count);
        "dom.*-dom.stats" Dom Each(Unit("usecs"), Count);
    }
    "lustre_stats_start_time" Gauge "Time at which the statistics were last cleared, in seconds since 1970." {
        "mdt.*.md_stats" Mdt Since;
        "obdfilter.*.stats" Ost Since;
        "dom.*-dom.stats" Dom Since;
    }
    "lustre_stats_time_min" Gauge "Shortest time of an operation in microseconds." {
        "mdt.*.md_stats" Mdt Each(Unit("usecs"), Min);
    }
    "lustre_stats_time_max" Gauge "Longest time of an operation in microseconds." {
        "mdt.*.md_stats" Mdt Each(Unit("usecs"), Max);
    }
    "lustre_stats_time_total" Gauge "Time of all operations in microseconds." {
        "mdt.*.md_stats" Mdt Each(Unit("usecs"), Sum);
    }
    "sheen_operation_seconds" Histogram "Times of operations: at a target, on a mount, and from request to reply." {
        "mdt.*.md_stats" Mdt Seconds;
        "obdfilter.*.stats" Ost Seconds;
        "dom.*-dom.stats" Dom Seconds;
        "llite.*.stats" Client Seconds;
        "osc.*.stats" Osc Seconds;
        "dom.*-dom-*.stats" Osc Seconds;
        "mdc.*.stats" Mdc Seconds;
    }
    "sheen_mdt_last_transno" Gauge "Number of the MDT's last transaction." {
        "mdt.*.last_transno" Mdt Number;
    }
    "sheen_mdt_last_committed" Gauge "Number of the MDT's last committed transaction." {
        "mdt.*.last_committed" Mdt Number;
    }

    // Quotas.
    "lustre_quota_hard" Gauge "Hard limit: of space in KiB, or of files; 0: none." {
        "qmt.*.*.glb-usr" Qmt Quota("hard");
        "qmt.*.*.glb-grp" Qmt Quota("hard");
        "qmt.*.*.glb-prj" Qmt Quota("hard");
    }
    "lustre_quota_soft" Gauge "Soft limit: of space in KiB, or of files; 0: none." {
        "qmt.*.*.glb-usr" Qmt Quota("soft");
        "qmt.*.*.glb-grp" Qmt Quota("soft");
        "qmt.*.*.glb-prj" Qmt Quota("soft");
    }
    "lustre_quota_granted" Gauge "Part of the limit that targets use, or may use without a question." {
        "qmt.*.*.glb-usr" Qmt Quota("granted");
        "qmt.*.*.glb-grp" Qmt Quota("granted");
        "qmt.*.*.glb-prj" Qmt Quota("granted");
    }
    "lustre_quota_used_kbytes" Gauge "Space of the target that the id uses, in KiB." {
        "osd-sheen.*-OST*.quota_slave.acct_user" Ost Quota("kbytes");
        "osd-sheen.*-OST*.quota_slave.acct_group" Ost Quota("kbytes");
        "osd-sheen.*-OST*.quota_slave.acct_project" Ost Quota("kbytes");
        "osd-sheen.*-MDT????.quota_slave.acct_user" Mdt Quota("kbytes");
        "osd-sheen.*-MDT????.quota_slave.acct_group" Mdt Quota("kbytes");
        "osd-sheen.*-MDT????.quota_slave.acct_project" Mdt Quota("kbytes");
        "osd-sheen.*-dom.quota_slave.acct_user" Dom Quota("kbytes");
        "osd-sheen.*-dom.quota_slave.acct_group" Dom Quota("kbytes");
        "osd-sheen.*-dom.quota_slave.acct_project" Dom Quota("kbytes");
    }
    "lustre_quota_used_inodes" Gauge "Files of an MDT, or objects of an OST, of the id." {
        "osd-sheen.*-OST*.quota_slave.acct_user" Ost Quota("inodes");
        "osd-sheen.*-OST*.quota_slave.acct_group" Ost Quota("inodes");
        "osd-sheen.*-OST*.quota_slave.acct_project" Ost Quota("inodes");
        "osd-sheen.*-MDT????.quota_slave.acct_user" Mdt Quota("inodes");
        "osd-sheen.*-MDT????.quota_slave.acct_group" Mdt Quota("inodes");
        "osd-sheen.*-MDT????.quota_slave.acct_project" Mdt Quota("inodes");
        "osd-sheen.*-dom.quota_slave.acct_user" Dom Quota("inodes");
        "osd-sheen.*-dom.quota_slave.acct_group" Dom Quota("inodes");
        "osd-sheen.*-dom.quota_slave.acct_project" Dom Quota("inodes");
    }

    // Jobs.
    "lustre_job_read_samples_total" Counter "Reads of the job." {
        "obdfilter.*.job_stats" Ost One("read_bytes", "read_bytes", Count);
        "dom.*-dom.job_stats" Dom One("read_bytes", "read_bytes", Count);
    }
    "lustre_job_read_bytes_total" Counter "Bytes that the job has read." {
        "obdfilter.*.job_stats" Ost One("read_bytes", "read_bytes", Sum);
        "dom.*-dom.job_stats" Dom One("read_bytes", "read_bytes", Sum);
    }
    "lustre_job_read_minimum_size_bytes" Gauge "Size of the smallest read of the job in bytes." {
        "obdfilter.*.job_stats" Ost One("read_bytes", "read_bytes", Min);
        "dom.*-dom.job_stats" Dom One("read_bytes", "read_bytes", Min);
    }
    "lustre_job_read_maximum_size_bytes" Gauge "Size of the largest read of the job in bytes." {
        "obdfilter.*.job_stats" Ost One("read_bytes", "read_bytes", Max);
        "dom.*-dom.job_stats" Dom One("read_bytes", "read_bytes", Max);
    }
    "lustre_job_write_samples_total" Counter "Writes of the job." {
        "obdfilter.*.job_stats" Ost One("write_bytes", "write_bytes", Count);
        "dom.*-dom.job_stats" Dom One("write_bytes", "write_bytes", Count);
    }
    "lustre_job_write_bytes_total" Counter "Bytes that the job has written." {
        "obdfilter.*.job_stats" Ost One("write_bytes", "write_bytes", Sum);
        "dom.*-dom.job_stats" Dom One("write_bytes", "write_bytes", Sum);
    }
    "lustre_job_write_minimum_size_bytes" Gauge "Size of the smallest write of the job in bytes." {
        "obdfilter.*.job_stats" Ost One("write_bytes", "write_bytes", Min);
        "dom.*-dom.job_stats" Dom One("write_bytes", "write_bytes", Min);
    }
    "lustre_job_write_maximum_size_bytes" Gauge "Size of the largest write of the job in bytes." {
        "obdfilter.*.job_stats" Ost One("write_bytes", "write_bytes", Max);
        "dom.*-dom.job_stats" Dom One("write_bytes", "write_bytes", Max);
    }
    "lustre_job_stats_total" Counter "Operations of the job." {
        "mdt.*.job_stats" Mdt Each(All, Count);
        "obdfilter.*.job_stats" Ost Each(Unit("usecs"), Count);
        "dom.*-dom.job_stats" Dom Each(Unit("usecs"), Count);
    }

    // Recovery.
    "recovery_status" Gauge "0 complete, 1 inactive, 2 waiting, 3 waiting for clients, 4 recovering, 5 unknown." {
        "obdfilter.*.recovery_status" Ost Recovery(RecoveryField::Status);
        "mdt.*.recovery_status" Mdt Recovery(RecoveryField::Status);
    }
    "recovery_status_completed_clients" Gauge "Clients that have completed the recovery." {
        "obdfilter.*.recovery_status" Ost Recovery(RecoveryField::Completed);
        "mdt.*.recovery_status" Mdt Recovery(RecoveryField::Completed);
    }
    "recovery_status_connected_clients" Gauge "Clients that have connected during the recovery." {
        "obdfilter.*.recovery_status" Ost Recovery(RecoveryField::Connected);
        "mdt.*.recovery_status" Mdt Recovery(RecoveryField::Connected);
    }
    "recovery_status_total_clients" Gauge "Clients that the recovery is for." {
        "obdfilter.*.recovery_status" Ost Recovery(RecoveryField::Clients);
        "mdt.*.recovery_status" Mdt Recovery(RecoveryField::Clients);
    }
    "recovery_status_evicted_clients" Gauge "Clients that the recovery has evicted." {
        "obdfilter.*.recovery_status" Ost Recovery(RecoveryField::Evicted);
        "mdt.*.recovery_status" Mdt Recovery(RecoveryField::Evicted);
    }
    "recovery_status_duration_seconds" Gauge "Duration of the completed recovery in seconds." {
        "obdfilter.*.recovery_status" Ost Recovery(RecoveryField::Duration);
        "mdt.*.recovery_status" Mdt Recovery(RecoveryField::Duration);
    }
    "recovery_status_time_remaining_seconds" Gauge "Longest remaining time of the recovery in seconds." {
        "obdfilter.*.recovery_status" Ost Recovery(RecoveryField::TimeRemaining);
        "mdt.*.recovery_status" Mdt Recovery(RecoveryField::TimeRemaining);
    }

    // Locks of targets.
    "lustre_lock_count_total" Gauge "Locks that the target has granted." {
        "ldlm.namespaces.filter-*-OST????_UUID.lock_count" Ost Number;
        "ldlm.namespaces.mdt-*_UUID.lock_count" Mdt Number;
        "ldlm.namespaces.filter-*-dom_UUID.lock_count" Dom Number;
    }
    "lustre_lock_timeout_total" Counter "Clients that the target has evicted because they did not cancel a lock." {
        "ldlm.namespaces.filter-*-OST????_UUID.lock_timeouts" Ost Number;
        "ldlm.namespaces.mdt-*_UUID.lock_timeouts" Mdt Number;
        "ldlm.namespaces.filter-*-dom_UUID.lock_timeouts" Dom Number;
    }
    "lustre_lock_contended_total" Gauge "Revoked locks after which a resource is contended: a setting." {
        "ldlm.namespaces.filter-*-OST????_UUID.contended_locks" Ost Number;
        "ldlm.namespaces.mdt-*_UUID.contended_locks" Mdt Number;
        "ldlm.namespaces.filter-*-dom_UUID.contended_locks" Dom Number;
    }
    "lustre_lock_contention_seconds_total" Gauge "Seconds for which a resource stays contended: a setting." {
        "ldlm.namespaces.filter-*-OST????_UUID.contention_seconds" Ost Number;
        "ldlm.namespaces.mdt-*_UUID.contention_seconds" Mdt Number;
        "ldlm.namespaces.filter-*-dom_UUID.contention_seconds" Dom Number;
    }
    "sheen_lock_resources" Gauge "Resources with locks." {
        "ldlm.namespaces.filter-*-OST????_UUID.resource_count" Ost Number;
        "ldlm.namespaces.mdt-*_UUID.resource_count" Mdt Number;
        "ldlm.namespaces.filter-*-dom_UUID.resource_count" Dom Number;
    }
    "sheen_locks_waiting" Gauge "Enqueued locks that wait for a conflicting lock." {
        "ldlm.namespaces.filter-*-OST????_UUID.stats" Ost One("waiting", "", Count);
        "ldlm.namespaces.mdt-*_UUID.stats" Mdt One("waiting", "", Count);
        "ldlm.namespaces.filter-*-dom_UUID.stats" Dom One("waiting", "", Count);
    }
    "sheen_lock_stats_total" Counter "Grants, callbacks, cancels and other events of the lock server." {
        "ldlm.namespaces.filter-*-OST????_UUID.stats" Ost Each(Except(&["granted", "waiting"]), Count);
        "ldlm.namespaces.mdt-*_UUID.stats" Mdt Each(Except(&["granted", "waiting"]), Count);
        "ldlm.namespaces.filter-*-dom_UUID.stats" Dom Each(Except(&["granted", "waiting"]), Count);
    }

    // Mounts.
    "lustre_client_stats" Unknown "Operations on the mount." {
        "llite.*.stats" Client Each(All, Count);
    }
    "lustre_client_stats_start_time" Gauge "Time at which the statistics were last cleared, in seconds since 1970." {
        "llite.*.stats" Client Since;
    }
    "sheen_open_files" Gauge "Open files of the mount; objects that the OST has open." {
        "llite.*.open_files" Client Number;
        "obdfilter.*.open_files" Ost Number;
    }
    "sheen_cached_inodes" Gauge "Inodes with cached attributes." {
        "llite.*.cached_inodes" Client Number;
    }
    "sheen_cache_stats_total" Counter "Operations that the cache of attributes and names has served, and misses." {
        "llite.*.cache_stats" Client Each(All, Count);
    }
    "sheen_read_ahead_pages_total" Counter "Pages that the kernel requested in sequence (hits) and others (misses)." {
        "llite.*.read_ahead_stats" Client Each(Only(&["hits", "misses"]), Count);
    }
    "sheen_statahead_stats_total" Counter "Counts of statahead." {
        "llite.*.statahead_stats" Client Each(All, Count);
    }

    // Connections of mounts to targets.
    "sheen_import_connected" Gauge "1 if the mount is connected to the target." {
        "osc.*.state" Osc Connected;
        "dom.*-dom-*.state" Osc ConnectedIfUsed;
        "mdc.*.state" Mdc Connected;
    }
    "sheen_rpcs_in_flight" Gauge "Requests under way." {
        "osc.*.rpc_stats" Osc One("in_flight", "", Count);
        "dom.*-dom-*.rpc_stats" Osc One("in_flight", "", Count);
    }
    "sheen_max_rpcs_in_flight" Gauge "Requests that may be under way at once: a setting." {
        "osc.*.max_rpcs_in_flight" Osc Number;
        "dom.*-dom-*.max_rpcs_in_flight" Osc Number;
        "mdc.*.max_rpcs_in_flight" Mdc Number;
    }
    "sheen_rpc_pages_total" Counter "Read and write requests, by their size in pages of 4 KiB." {
        "osc.*.rpc_stats" Osc Pages;
        "dom.*-dom-*.rpc_stats" Osc Pages;
    }
    "sheen_rpc_bytes_total" Counter "Bulk bytes of requests and replies." {
        "osc.*.stats" Osc Each(Unit("bytes"), Sum);
        "dom.*-dom-*.stats" Osc Each(Unit("bytes"), Sum);
        "mdc.*.stats" Mdc Each(Unit("bytes"), Sum);
    }
    "sheen_dirty_bytes" Gauge "Dirty data that is not yet on the target." {
        "osc.*.cur_dirty_bytes" Osc Number;
        "dom.*-dom-*.cur_dirty_bytes" Osc Number;
    }
    "sheen_grant_bytes" Gauge "Unused part of the space that the target has granted." {
        "osc.*.cur_grant_bytes" Osc Number;
        "dom.*-dom-*.cur_grant_bytes" Osc Number;
    }
    "sheen_client_locks" Gauge "Locks that the mount holds from the target." {
        "ldlm.namespaces.*-OST????-osc-*.lock_count" Osc Number;
        "ldlm.namespaces.*-dom-*.lock_count" Osc Number;
        "ldlm.namespaces.*-MDT????-mdc-*.lock_count" Mdc Number;
    }
    "sheen_client_locks_unused" Gauge "Locks that the mount caches without using them." {
        "ldlm.namespaces.*-OST????-osc-*.lock_unused_count" Osc Number;
        "ldlm.namespaces.*-dom-*.lock_unused_count" Osc Number;
        "ldlm.namespaces.*-MDT????-mdc-*.lock_unused_count" Mdc Number;
    }
};

impl Component {
    /// Returns the label `component`, or `None` for a whole process.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Component::Ost | Component::Osp => Some("ost"),
            Component::Mdt => Some("mdt"),
            Component::Dom => Some("dom"),
            Component::Client => Some("client"),
            Component::Osc => Some("osc"),
            Component::Mdc => Some("mdc"),
            Component::Qmt | Component::Process => None,
        }
    }
}

impl Source {
    /// Returns the last component of the names.
    pub fn field(&self) -> &'static str {
        self.param.rsplit('.').next().unwrap_or(self.param)
    }
}

/// Returns the patterns of all parameters that become metrics, each once, as for `lctl get_param`.
pub fn patterns() -> impl Iterator<Item = &'static str> {
    let all: BTreeSet<&str> = FAMILIES.iter().flat_map(|family| family.sources).map(|source| source.param).collect();
    all.into_iter()
}
