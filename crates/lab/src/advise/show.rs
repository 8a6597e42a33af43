//! Recommends a layout for a user: options, output, files with results.

use std::{io, path::Path};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    advise::{
        apply,
        args::AdviseArgs,
        candidates::{candidates, words},
        choice::{Rated, choose, is_worth, rate, reason},
        present::Present,
        print::Printer,
    },
    chart::{Chart, Panel, Scale, Values},
    clock::Moment,
    ior, machine,
    noise::Noise,
    output::{Format, Lines},
    predict::{
        costs::Costs,
        load::{Direction, Workload},
        presets::{PRESETS, Preset, preset},
        shape::Shape,
        store::Store,
        system::System,
    },
    prober::{Job, Prober, check_space, describe},
    report::{Report, Table},
    session::{Session, facts},
};

/// Most bytes that a job of `--measure` moves in a run, if each task then has a transfer: the
/// pattern matters, not the amount.
const MEASURED_MAX: u64 = 256 << 20;
/// Most nodes of `--measure`: mounts of this host.
const NODES_MAX: u32 = 64;
/// Most tasks of `--measure`: processes.
const TASKS_MAX: u32 = 4096;

/// The model of an advice.
struct Basis {
    /// Name of the system.
    name: String,
    osts: u32,
    costs: Vec<(Direction, Costs)>,
    /// The file system, unless it is a published one.
    system: Option<System>,
    published: Option<&'static Preset>,
}

/// Measured seconds of a candidate.
#[derive(Clone, Copy, Debug, Serialize)]
struct Timed {
    shape: Shape,
    seconds: f64,
}

/// Recommends a layout. `words` is the command line, for the record.
///
/// # Errors
/// A message for the user.
pub fn main(args: &AdviseArgs, line: &str) -> Result<(), String> {
    let workload = workload(args)?;
    let basis = basis(args)?;
    let costs: Vec<(Direction, &Costs)> = basis.costs.iter().map(|(direction, costs)| (*direction, costs)).collect();
    let rated = |shape: &Shape| rate(&workload, shape, basis.osts, &costs);
    let all: Vec<Rated> = candidates(&workload, basis.osts).iter().map(rated).collect();
    let mark = choose(&all).ok_or("there is no OST")?;
    let chosen = &all[mark];
    let present = basis.system.as_ref().map(|_| Present::of(&args.path, &workload, basis.osts));
    if let Some(what) = present.and_then(|present| present.loses).filter(|_| args.apply) {
        let path = args.path.display();
        return Err(format!("--apply: {path} has {what}, which the recommended layout lacks: set a layout with lfs"));
    }
    check_measure(args, &workload, &basis)?;
    let now = present.and_then(|present| present.shape).as_ref().map(rated);
    let layout = self::words(&chosen.shape);
    let is_on_mdt = present.is_some() && now.is_none();
    let changes = !is_on_mdt && is_worth(now.as_ref().unwrap_or(&all[0]), chosen);
    let why = match is_on_mdt {
        true => "The bytes are on the MDT now, which the model does not know: nothing is recommended.".into(),
        false => reason(now.as_ref().unwrap_or(&all[0]), chosen),
    };
    let place = if present.is_some() { args.path.display().to_string() } else { "DIRECTORY".into() };
    let command = changes.then(|| apply::command(&args.path, &layout, &place));

    let mut printer = Printer { lines: Lines::new(&args.output) };
    printer.header(&describe(&workload), &basis.name);
    printer.table(now.as_ref(), &all, mark);
    printer.line(&why);
    if let Some(command) = &command {
        let gain = now.as_ref().map(|now| format!("   # {:.2} × as fast as now", now.seconds / chosen.seconds));
        printer.line(&format!("{command}{}", gain.unwrap_or_default()));
    }
    if let Some(what) = present.and_then(|present| present.loses) {
        printer.line(&format!("The present layout has {what}; the recommended one does not."));
    }
    if args.output.format == Some(Format::Csv) {
        csv(&all, mark);
    }
    let began = Moment::now();
    let (session, result, timed) = measure(args, &workload, &basis, &all)?;
    let reached = reached(&timed, &chosen.shape);
    if let Some(reached) = reached {
        let rows: Vec<(Shape, f64)> = timed.iter().map(|timed| (timed.shape, timed.seconds)).collect();
        session.above(|| printer.measured(&rows, reached));
    }
    let mut result = result;
    if args.apply && command.is_some() {
        result = result.and_then(|()| apply::apply(&args.path, &layout));
        if result.is_ok() {
            printer.line("The layout is set.");
        }
    }
    let record = |noise: &Noise| {
        json!({
            "Version": concat!("sheen lab advise ", env!("CARGO_PKG_VERSION")),
            "Began": began.ctime(),
            "Command line": line,
            "machine": machine::describe(),
            "file system": machine::mount_of(&args.path),
            "noise": noise.spread(),
            "system": basis.name,
            "published": basis.published.map(|preset| json!({ "stated": preset.stated, "assumed": preset.assumed })),
            "job": workload,
            "present": now,
            "recommended": chosen,
            "layout": layout,
            "command": command,
            "gain": now.as_ref().map(|now| now.seconds / chosen.seconds),
            "reason": why,
            "candidates": all,
            "measured": timed,
            "reached": reached,
        })
    };
    let title = format!("Layout for {}", describe(&workload));
    session
        .conclude(result, record, |record, warnings| report(title, &why, command.as_deref(), &all, (record, warnings)))
}

/// Checks the description of the job.
fn workload(args: &AdviseArgs) -> Result<Workload, String> {
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
fn basis(args: &AdviseArgs) -> Result<Basis, String> {
    let both = args.write == args.read;
    let wanted = |direction: &Direction| both || (*direction == Direction::Write) == args.write;
    let directions = Direction::ALL.into_iter().filter(wanted);
    if let Some(name) = &args.system {
        let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let found = preset(name).ok_or_else(|| format!("--system {name}: expected {}", known.join(", ")))?;
        let of = |direction| if direction == Direction::Write { found.write } else { found.read };
        let costs = directions.map(|direction| (direction, of(direction))).collect();
        let osts = crate::stats::counted(args.osts, "OST");
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
    let name = format!("{} ({})", system.key.fsname, crate::stats::counted(system.osts, "OST"));
    Ok(Basis { name, osts: system.osts, costs, system: Some(system), published: None })
}

/// Checks that the candidates can be measured, if the user wants it.
fn check_measure(args: &AdviseArgs, workload: &Workload, basis: &Basis) -> Result<(), String> {
    let Workload { tasks, nodes, .. } = *workload;
    let reads = basis.costs.iter().any(|(direction, _)| *direction == Direction::Read);
    match () {
        () if !args.measure => Ok(()),
        () if nodes > NODES_MAX => {
            Err(format!("--measure: {nodes} nodes are more than {NODES_MAX} mounts of this host"))
        }
        () if tasks > TASKS_MAX => Err(format!("--measure: {tasks} tasks are more than {TASKS_MAX}")),
        () if nodes == 1 && reads => Err("--measure: one node reads from its cache; add --nodes, or -w".into()),
        () => Ok(()),
    }
}

/// Returns the directory of a file, or the directory itself.
fn dir_at(path: &Path) -> &Path {
    if path.is_file() { ior::dir_of(path) } else { path }
}

/// Measures the candidates if the user wants it. Returns their seconds, the shortest first.
fn measure(
    args: &AdviseArgs,
    workload: &Workload,
    basis: &Basis,
    all: &[Rated],
) -> Result<(Session, io::Result<()>, Vec<Timed>), String> {
    let Some(system) = basis.system.as_ref().filter(|_| args.measure) else {
        return Ok((Session::new(0, &args.output)?, Ok(()), Vec::new()));
    };
    let workload = smaller(workload);
    machine::check_memory(workload.transfer.saturating_mul(workload.tasks.into()))?;
    let job = |rated: &Rated| Job { workload, layout: words(&rated.shape) };
    let jobs: Vec<Job> = all.iter().map(job).collect();
    let phases = jobs.len() * args.repetitions as usize * (1 + usize::from(workload.nodes > 1));
    let mut session = Session::new(phases, &args.output)?;
    let dir = dir_at(&args.path);
    check_space(dir, &jobs)?;
    let prober = Prober::new(dir, system, "advise", workload.nodes, args.repetitions).map_err(|e| e.to_string())?;
    let directions: Vec<Direction> = basis.costs.iter().map(|(direction, _)| *direction).collect();
    let mut timed = Vec::new();
    let result = prober.run(&jobs, &mut session, |number, measured| {
        let counted = measured.iter().filter(|m| directions.contains(&m.direction));
        let seconds = counted.map(|m| m.load(system.osts).mib / m.rate).sum();
        timed.push(Timed { shape: all[number].shape, seconds });
    });
    timed.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok((session, result, timed))
}

/// Returns a job of the same pattern that moves less.
fn smaller(workload: &Workload) -> Workload {
    let Workload { tasks, transfer, block, size, .. } = *workload;
    let most = (MEASURED_MAX / u64::from(tasks)).max(transfer);
    if size <= most {
        return *workload;
    }
    let block = block.min(most / transfer * transfer);
    Workload { block, size: most / block * block, ..*workload }
}

/// Returns the part of the best rate that the chosen layout reaches.
fn reached(timed: &[Timed], chosen: &Shape) -> Option<f64> {
    let of_chosen = timed.iter().find(|timed| timed.shape == *chosen)?;
    Some(timed.first()?.seconds / of_chosen.seconds)
}

fn csv(all: &[Rated], mark: usize) {
    println!("recommended,stripes,osts,stripe size,write(MiB/s),read(MiB/s),seconds,limited by");
    for (index, rated) in all.iter().enumerate() {
        let rate = |direction| rated.rate(direction).map_or_else(String::new, |rate| format!("{rate:.2}"));
        println!(
            "{},{},{},{},{},{},{:.4},{}",
            u8::from(index == mark),
            rated.shape.stripes,
            rated.shape.osts,
            rated.shape.stripe_size,
            rate(Direction::Write),
            rate(Direction::Read),
            rated.seconds,
            rated.limit().name()
        );
    }
}

fn report(
    title: String,
    why: &str,
    command: Option<&str>,
    all: &[Rated],
    (record, warnings): (Value, Vec<String>),
) -> io::Result<Report> {
    // The curves are over the number of stripes; of several stripe sizes the best one counts.
    let mut stripes: Vec<u32> = all.iter().map(|rated| rated.shape.stripes).collect();
    stripes.dedup();
    let best = |count: u32, direction| {
        let of_count = all.iter().filter(|rated| rated.shape.stripes == count);
        of_count.filter_map(|rated| rated.rate(direction)).reduce(f64::max)
    };
    let curve = |direction| stripes.iter().map(|count| best(*count, direction)).collect::<Vec<_>>();
    let has = |direction: &Direction| all.iter().any(|rated| rated.rate(*direction).is_some());
    let directions: Vec<Direction> = Direction::ALL.into_iter().filter(has).collect();
    let chart = Chart {
        title: "Predicted rate over the number of stripes".into(),
        axis: "stripes".into(),
        categories: stripes.iter().map(u32::to_string).collect(),
        series: directions.iter().map(|direction| direction.name().to_owned()).collect(),
        panels: vec![Panel {
            title: "MiB/s".into(),
            scale: Scale::Linear,
            values: Values::Curves(directions.iter().map(|direction| curve(*direction)).collect()),
        }],
    };
    let row = |rated: &Rated| {
        let rate = |direction| rated.rate(direction).map_or("–".into(), |rate| format!("{rate:.0}"));
        vec![
            rated.shape.name(),
            rate(Direction::Write),
            rate(Direction::Read),
            format!("{:.3}", rated.seconds),
            rated.limit().name().to_owned(),
        ]
    };
    let columns = ["layout", "write, MiB/s", "read, MiB/s", "seconds of the job", "limited by"];
    Ok(Report {
        title,
        result: format!("{why} {}", command.unwrap_or_default()),
        warnings,
        charts: vec![chart.svg()?],
        tables: vec![Table {
            title: "Candidates".into(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: all.iter().map(row).collect(),
        }],
        facts: facts(&record, &[("recommended", command.unwrap_or("no change").to_owned())]),
        record,
    })
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

    #[test]
    fn measured_job_has_the_same_pattern() {
        let large = job("-N 4 -t 1m -b 1m -s 100000").unwrap();
        let less = smaller(&large);
        assert_eq!((less.transfer, less.block, less.size), (1 << 20, 1 << 20, 64 << 20));
        let blocks = smaller(&job("-N 4 -t 3m -b 3g").unwrap());
        assert_eq!((blocks.transfer, blocks.block, blocks.size), (3 << 20, 63 << 20, 63 << 20));
        let huge = smaller(&job("-N 512 -t 1m -b 1m -s 4").unwrap());
        assert_eq!(huge.size, 1 << 20);
    }
}
