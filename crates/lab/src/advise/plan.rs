//! The job and the model of an advice, checked.

use std::{io, path::Path};

use crate::{
    advise::args::AdviseArgs,
    ior,
    predict::{
        costs::Costs,
        load::{Direction, Workload},
        presets::{PRESETS, Preset, preset},
        store::Store,
        system::System,
    },
    stats::counted,
};

/// The model of an advice.
pub struct Basis {
    /// Name of the system.
    pub name: String,
    /// Number of OSTs.
    pub osts: u32,
    /// Costs of the job's accesses.
    pub costs: Vec<(Direction, Costs)>,
    /// The file system, unless it is a published one.
    pub system: Option<System>,
    /// The published system.
    pub published: Option<&'static Preset>,
}

/// Checks the description of the job.
///
/// # Errors
/// A message for the user.
pub fn workload(args: &AdviseArgs) -> Result<Workload, String> {
    let (transfer, block) = (args.transfer, args.block.unwrap_or(args.transfer));
    let nodes = args.nodes.unwrap_or(args.tasks);
    if transfer == 0 || block == 0 || args.segments == 0 {
        return Err("-t, -b and -s: at least 1".into());
    }
    if !block.is_multiple_of(transfer) {
        return Err(format!("-b {block}: not a multiple of the transfer size {transfer}"));
    }
    if nodes > args.tasks {
        return Err(format!("--nodes: {nodes} nodes are more than {} tasks", args.tasks));
    }
    let size = block.checked_mul(args.segments);
    let size = size.filter(|size| size.checked_mul(args.tasks.into()).is_some_and(|all| all <= i64::MAX as u64));
    let size = size.ok_or("the file would be larger than 8 EiB: choose smaller -b or -s")?;
    Ok(Workload { tasks: args.tasks, nodes, transfer, block, size, files: args.files })
}

/// Finds the model: that of the file system, or of a published one.
///
/// # Errors
/// A message for the user.
pub fn basis(args: &AdviseArgs) -> Result<Basis, String> {
    let both = args.write == args.read;
    let wanted = |direction: &Direction| both || (*direction == Direction::Write) == args.write;
    let directions = Direction::ALL.into_iter().filter(wanted);
    if let Some(name) = &args.system {
        let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let found = preset(name).ok_or_else(|| format!("--system {name}: expected {}", known.join(", ")))?;
        let of = |direction| if direction == Direction::Write { found.write } else { found.read };
        let costs = directions.map(|direction| (direction, of(direction))).collect();
        let osts = counted(args.osts, "OST");
        return Ok(Basis {
            name: format!("{} ({osts})", found.what),
            osts: args.osts,
            costs,
            system: None,
            published: Some(found),
        });
    }
    let text = |e: io::Error| e.to_string();
    let system = System::of(&args.path).map_err(text)?;
    let store = Store::of_user().ok_or("no directory for models: set SHEEN_LAB_DIR or HOME")?;
    let model = system.model(&store).map_err(text)?.ok_or_else(|| {
        let dir = dir_at(&args.path);
        format!("no model of this file system: run `sheen lab model --calibrate {}` first", dir.display())
    })?;
    let costs: Vec<_> =
        directions.filter_map(|direction| model.costs(direction).map(|costs| (direction, *costs))).collect();
    if costs.is_empty() {
        return Err("the model was calibrated with one node, without reads: calibrate it with more --nodes".into());
    }
    let name = format!("{} ({})", system.key.fsname, counted(system.osts, "OST"));
    Ok(Basis { name, osts: system.osts, costs, system: Some(system), published: None })
}

/// Returns the directory of a file, or the directory itself.
pub fn dir_at(path: &Path) -> &Path {
    if path.is_file() { ior::dir_of(path) } else { path }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn job(line: &str) -> Result<Workload, String> {
        workload(&AdviseArgs::try_parse_from(["advise"].into_iter().chain(line.split_whitespace())).unwrap())
    }

    #[test]
    fn job_is_described_as_for_ior() {
        let all = job("-N 8 --nodes 2 -t 1m -b 4m -s 3").unwrap();
        assert_eq!((all.tasks, all.nodes, all.transfer, all.block, all.size), (8, 2, 1 << 20, 4 << 20, 12 << 20));
        assert_eq!(job("-N 8 -t 64k").unwrap().block, 64 << 10);
        for (line, message) in [
            ("-t 3 -b 8", "not a multiple"),
            ("-t 0", "at least 1"),
            ("-N 2 --nodes 3", "3 nodes are more than 2 tasks"),
            ("-t 1t -s 8191t", "larger than 8 EiB"),
        ] {
            let refused = job(line).unwrap_err();
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }
}
