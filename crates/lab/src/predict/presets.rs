//! Models of published systems: costs that agree with the numbers in the texts about them.
//!
//! The texts state rates; what they do not state is an assumption, and is said to be one. All of
//! them ran Lustre: locks that grow, so that several writers of an object take turns.

use crate::predict::costs::Costs;

/// A cost that limits nothing.
const NOTHING: f64 = 1e-9;
/// MiB of the GB in which the papers state rates.
pub const GB: f64 = 953.7;

/// A published system.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Description.
    pub what: &'static str,
    /// Costs of writes.
    pub write: Costs,
    /// Costs of reads.
    pub read: Costs,
    /// Facts from the text.
    pub stated: &'static str,
    /// Assumptions, where the text states nothing.
    pub assumed: &'static str,
}

/// A system that nothing limits.
const IDEAL: Costs = Costs {
    task_call: NOTHING,
    task_mib: NOTHING,
    node_mib: NOTHING,
    inode_call: NOTHING,
    inode_mib: NOTHING,
    inode_direct_mib: NOTHING,
    jump: NOTHING,
    shared_call: NOTHING,
    shared_mib: NOTHING,
    object_mib: NOTHING,
    ost_mib: NOTHING,
    handover: NOTHING,
    handover_mib: NOTHING,
    file: NOTHING,
};

/// A client that writes 4 GB/s, in the middle of the 3 to 5 GB/s that the paper states.
const CLIENT: f64 = 1.0 / (4.0 * GB);

/// A link of 100 Gb/s (HDR100): seconds for a MiB.
const HDR100: f64 = 1_048_576.0 * 8.0 / 100e9;

/// The systems.
pub const PRESETS: [Preset; 4] = [
    Preset {
        name: "flash",
        what: "a flash OST of Cray, \"Exploring Lustre Overstriping\"",
        write: Costs {
            node_mib: CLIENT,
            object_mib: 1.0 / (7.0 * GB),
            ost_mib: 1.0 / (11.7 * GB),
            handover: 2.3e-4,
            handover_mib: 7e-5,
            ..IDEAL
        },
        read: Costs { node_mib: CLIENT, object_mib: 1.0 / (7.3 * GB), ost_mib: 1.0 / (11.7 * GB), ..IDEAL },
        stated: "7 GB/s for an object, 11.7 GB/s for the OST, 3 to 6 GB/s for one stripe and 48 nodes",
        assumed: "a change of a lock takes 0.23 ms, and 0.07 ms for each MiB that was written under it",
    },
    Preset {
        name: "l300n",
        what: "a disk OST of Cray (L300N), \"Exploring Lustre Overstriping\"",
        write: Costs {
            node_mib: CLIENT,
            object_mib: 1.0 / (7.0 * GB),
            ost_mib: 1.0 / (6.0 * GB),
            handover: 1e-3,
            handover_mib: 2.5e-4,
            ..IDEAL
        },
        read: Costs { node_mib: CLIENT, object_mib: 1.0 / (7.0 * GB), ost_mib: 1.0 / (6.0 * GB), ..IDEAL },
        stated: "6 GB/s for the OST, no limit of one object below it, twice the rate by overstriping 16 MiB records",
        assumed: "a change of a lock takes 1 ms, and 0.25 ms for each MiB that was written under it",
    },
    Preset {
        name: "stallo",
        what: "Stallo of NOTUR, \"Lustre FS performance tips\"",
        write: Costs { task_mib: 1.0 / 507.0, object_mib: 1.0 / 25.0, ost_mib: 1.0 / 25.0, ..IDEAL },
        read: Costs { task_mib: 1.0 / 507.0, object_mib: 1.0 / 25.0, ost_mib: 1.0 / 25.0, ..IDEAL },
        stated: "one process: 25 MiB/s with one OST, almost 200 MiB/s with 8, 428 MiB/s with 32",
        assumed: "reads are as fast as writes; locks cost nothing",
    },
    Preset {
        name: "es400nvx2",
        what: "an ES400NVX2 of DDN with ten clients, \"Empowering Lustre Performance Evolution through IO500\"",
        write: Costs { node_mib: HDR100, ost_mib: 1.2245e-4, handover: 8.33e-5, ..IDEAL },
        read: Costs { node_mib: HDR100, ost_mib: 6.462e-5, jump: 5.8e-7, ..IDEAL },
        stated: "a link of 100 Gb/s for each client; list ISC22: 55.95 GiB/s in IOR Easy Write, 83.86 in Easy Read, \
                 5.02 in Hard Write, 39.73 in Hard Read",
        assumed: "units of the IO500; 8 OSTs, as of the ES7990 in the text; lists from ISC22 are of this system; all but \
                  the first read records with gaps ahead, as Lustre 2.14; \
                  16 tasks on each client, and at least 10 stripes in IOR Hard; a change of a lock takes 0.083 ms; \
                  a record that does not follow the last one adds 0.58 µs, for 12 % of them are not read ahead",
    },
];

/// Returns the system of this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{
        load::{Load, Workload},
        shape::Shape,
    };

    const MI: u64 = 1 << 20;

    /// Rate in MiB/s of nodes that write records in turn to one OST, or of one process.
    fn rate(name: &str, nodes: u32, record: u64, stripes: u32, osts: u32) -> f64 {
        let workload =
            Workload { tasks: nodes, nodes, transfer: record, block: record, size: 64 * record, files: false };
        let shape = Shape { stripes, osts: stripes.min(osts), stripe_size: record.min(MI), all_osts: None };
        preset(name).unwrap().write.predict(&Load::of(&workload, &shape, osts)).rate
    }

    #[test]
    fn presets_agree_with_the_rates_of_their_texts() {
        let single = rate("stallo", 1, 32 * MI, 1, 32);
        assert!((23.0..=25.1).contains(&single), "25 MiB/s: {single}");
        let eight = rate("stallo", 1, 32 * MI, 8, 32);
        assert!((170.0..=201.0).contains(&eight), "almost 200 MiB/s: {eight}");
        let all = rate("stallo", 1, 32 * MI, 32, 32);
        assert!((400.0..=450.0).contains(&all), "428 MiB/s: {all}");
        let records = |stripes| {
            let workload = Workload { tasks: 48, nodes: 48, transfer: MI, block: MI, size: 64 * MI, files: false };
            let shape = Shape { stripes, osts: 1, stripe_size: MI, all_osts: None };
            preset("flash").unwrap().write.predict(&Load::of(&workload, &shape, 1)).rate / GB
        };
        assert!((2.5..=3.5).contains(&records(1)), "3 GB/s: {}", records(1));
        assert!((11.0..=11.7).contains(&records(32)), "11.1 to 11.4 GB/s: {}", records(32));
    }
}
