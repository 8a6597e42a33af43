//! The lab: it measures a file system and its parts.
//!
//! * Tools that measure a mounted file system, as a user's program sees it: [`ior`], [`mdtest`],
//!   [`io500`]. Tools that measure servers and the network: [`survey`], [`net`],
//!   with [`processes`], [`target_nids`].
//! * Tools that compare layouts: [`overstripe`], [`workloads`]. They set up a file system of their
//!   own ([`scratch`], [`run_dir`]), or take the user's mounts ([`user_mounts`]). They call the
//!   program as users do ([`program`], [`counters`]).
//! * A model of a file system: [`predict`]. [`model`] calibrates it, on mounts of its own
//!   ([`own_mounts`], [`prober`]). [`ior`] shows what it predicts, [`advise`] recommends layouts by
//!   it, and [`reproduce`] compares models of published systems with texts about them. Simulated
//!   machines: [`machines`].
//! * Their tasks: [`team`], [`launch`], [`task_clock`], [`job`], [`nodes`], [`buffer`], [`data`],
//!   [`span`], [`status_file`].
//! * Their results: [`stats`], [`noise`], [`machine`], [`clock`], [`table`], [`record`].
//! * Their output: [`session`], [`output`], [`progress`], [`chart`], [`report`], [`size`].
//! * Tables of stored records in documents: [`document`].
//! * Interruption by signals: [`stop`].
//!
//! A tool checks all its parameters before it begins. If it is interrupted, it removes its files
//! and shows what it has measured.

pub mod advise;
pub mod buffer;
pub mod chart;
pub mod clock;
pub mod counters;
pub mod data;
pub mod document;
pub mod io500;
pub mod ior;
pub mod job;
pub mod launch;
pub mod machine;
pub mod machines;
pub mod mdtest;
pub mod model;
pub mod net;
pub mod nodes;
pub mod noise;
pub mod output;
pub mod overstripe;
pub mod own_mounts;
pub mod predict;
pub mod prober;
pub mod processes;
pub mod program;
pub mod progress;
pub mod record;
pub mod report;
pub mod reproduce;
pub mod run_dir;
pub mod scratch;
pub mod session;
pub mod size;
pub mod span;
pub mod stats;
pub mod status_file;
pub mod stop;
pub mod survey;
pub mod table;
pub mod target_nids;
pub mod task_clock;
pub mod team;
pub mod user_mounts;
pub mod workloads;

use std::{ffi::OsString, path::Path};

use clap::{Parser, Subcommand};
use sheen_lnet::Trust;

use crate::{
    advise::args::AdviseArgs,
    io500::args::Io500Args,
    ior::args::IorArgs,
    job::Job,
    launch::{Place, Remote},
    mdtest::args::MdtestArgs,
    model::args::ModelArgs,
    net::args::NetArgs,
    overstripe::args::OverstripeArgs,
    reproduce::args::ReproduceArgs,
    survey::args::SurveyArgs,
    team::Member,
    workloads::args::WorkloadsArgs,
};

/// Measure a file system
#[derive(Parser, Debug)]
#[command(name = "sheen lab", max_term_width = 100, disable_help_subcommand = true)]
pub struct Lab {
    /// The tool.
    #[command(subcommand)]
    pub tool: Tool,
}

/// A tool of the lab.
#[derive(Subcommand, Debug)]
pub enum Tool {
    /// Measure reads and writes of parallel tasks: IOR's options and output
    Ior(Box<IorArgs>),
    /// Measure operations on names of parallel tasks: mdtest's options and output
    Mdtest(Box<MdtestArgs>),
    /// Compute the score of the IO500: bandwidth, metadata and find in twelve phases
    Io500(Box<Io500Args>),
    /// Measure OSTs by themselves: disks, network, or both
    Survey(Box<SurveyArgs>),
    /// Measure requests over the network: size, number in flight, latency
    Net(Box<NetArgs>),
    /// Measure requests over a network with latency, and compare them with a model
    Wan(Box<NetArgs>),
    /// Compare numbers of stripes on an OST, for a file that several nodes write
    Overstripe(Box<OverstripeArgs>),
    /// Calibrate a model of a file system, and show how well it predicts
    Model(Box<ModelArgs>),
    /// Recommend a layout and RPC parameters for a job
    Advise(Box<AdviseArgs>),
    /// Compare rates that papers state with models of their systems
    Reproduce(Box<ReproduceArgs>),
    /// Run the workloads of the paper on dynamic striping: IOR, netflow, BLAST
    #[command(visible_alias = "layouts")]
    Workloads(Box<WorkloadsArgs>),
    /// A task of a tool; the tool starts it
    #[command(hide = true)]
    Task,
}

/// Runs a tool. `args` begins with the word `lab`. `trust` returns whom a tool trusts that speaks
/// to servers. Returns the exit code: 0 success, 1 failure, 2 invalid arguments, 130 interrupted.
pub fn main(args: &[OsString], trust: impl FnOnce() -> Trust) -> i32 {
    let words: Vec<_> = args.iter().map(|word| word.to_string_lossy()).collect();
    let words = format!("sheen {}", words.join(" "));
    let lab = match parse(args) {
        Ok(lab) => lab,
        Err(code) => return code,
    };
    let work = |job: Job, member: &mut Member| job.work(member);
    if matches!(lab.tool, Tool::Task) {
        return i32::from(!Member::of_parent().run(work));
    }
    let mut lab = lab;
    match launched(&mut lab.tool, &words) {
        Ok(None) => {}
        Ok(Some(parent)) => {
            if let Err(e) = parent.end_with_parent() {
                return failed(&e.to_string());
            }
            // The first process reports all errors. A launcher would end it if this one failed.
            Member::of_launcher(parent).run(work);
            return 0;
        }
        Err(message) => return failed(&message),
    }
    let result = match lab.tool {
        Tool::Ior(args) => ior::main(&args, &words),
        Tool::Mdtest(args) => mdtest::main(&args, &words),
        Tool::Io500(args) => io500::main(&args, &words),
        Tool::Survey(args) => survey::main(&args, trust, &words),
        Tool::Net(args) => net::main(&args, false, trust(), &words),
        Tool::Wan(args) => net::main(&args, true, trust(), &words),
        Tool::Overstripe(args) => overstripe::main(&args, &words),
        Tool::Advise(args) => advise::main(&args, &words),
        Tool::Model(args) => model::main(&args, &words),
        Tool::Reproduce(args) => reproduce::main(&args, &words),
        Tool::Workloads(args) => workloads::main(&args, &words),
        Tool::Task => Ok(()),
    };
    result.map_or_else(|message| failed(&message), |()| 0)
}

/// Prints an error, unless the user has interrupted the program. Returns the exit code.
fn failed(message: &str) -> i32 {
    if stop::check().is_err() {
        return 130;
    }
    eprintln!("sheen lab: {message}");
    1
}

/// Listens for signals, and joins the other processes of a launcher, such as mpirun, if one has
/// started this program. Returns the connection to the first of them, unless this is the first.
fn launched(tool: &mut Tool, words: &str) -> Result<Option<Remote>, String> {
    let of_tool = match tool {
        Tool::Ior(args) => Some((&args.places, &mut args.tasks)),
        Tool::Mdtest(args) => Some((&args.places, &mut args.tasks)),
        Tool::Io500(args) => Some((&args.places, &mut args.tasks)),
        _ => None,
    };
    let place = if of_tool.is_some() { Place::of_this_process()? } else { None };
    if place.is_none_or(|place| place.rank == 0) {
        stop::listen().map_err(|e| e.to_string())?;
    }
    let (Some((places, tasks)), Some(place)) = (of_tool, place) else { return Ok(None) };
    if tasks.is_some_and(|tasks| tasks != place.size) {
        return Err(format!("the launcher has started {} tasks: leave out the number of tasks", place.size));
    }
    *tasks = Some(place.size);
    let dir = places.rendezvous.as_deref().unwrap_or(Path::new("."));
    let joined = match place.rank {
        0 => launch::gather(place, dir, words).map(|()| None),
        _ => launch::connect(place, dir, words).map(Some),
    };
    joined.map_err(|e| e.to_string())
}

/// Parses the command line. The directives of IOR's `-O` are options that follow the others.
fn parse(args: &[OsString]) -> Result<Lab, i32> {
    let parsed = |args: &[OsString]| {
        Lab::try_parse_from(args).map_err(|e| {
            let _ = e.print();
            e.exit_code()
        })
    };
    let lab = parsed(args)?;
    let Tool::Ior(ior) = &lab.tool else { return Ok(lab) };
    if ior.directives.is_empty() {
        return Ok(lab);
    }
    let more = ior::args::expand(&ior.directives).map_err(|message| {
        eprintln!("sheen lab: {message}");
        2
    })?;
    let all: Vec<OsString> = args.iter().cloned().chain(more.into_iter().map(OsString::from)).collect();
    parsed(&all)
}
