//! Arguments of `layouts`, and what its measurements share: pairs of figures and rows of the table.

use std::io;

use clap::Parser;
use sheen_bench::{
    report::{Cell, Options, Progress, Table},
    stats::ratios,
};

/// Cost of layouts: watermarks, 2,000 stripes, small files on the MDT, the default layout,
/// mapping
#[derive(Parser)]
pub struct Args {
    #[command(flatten)]
    pub options: Options,
    /// boundaries: size of the file in MiB, written 1 MiB at a time; above 256 it reaches all three
    /// components
    #[arg(long, default_value_t = 512)]
    pub mib: usize,
    /// create: files created in each measurement
    #[arg(long, default_value_t = 50)]
    pub creates: usize,
    /// create: delay of each message over tcp, in microseconds
    #[arg(long, default_value_t = 2000)]
    pub delay_us: u64,
    /// small: number of files
    #[arg(long, default_value_t = 20_000)]
    pub files: usize,
    /// small: size of a file in bytes
    #[arg(long, default_value_t = 3901)]
    pub bytes: usize,
}

/// A MiB in bytes.
pub const M: u64 = 1 << 20;
/// One stripe.
pub const ONE: &[&str] = &["-c", "1"];

/// Measures both sides of a ratio in each round, in alternating order. Returns the figures of each
/// side, by round. `measure` gets the side (0: this, 1: that) and the round.
pub fn pair<T>(
    args: &Args,
    what: &str,
    mut measure: impl FnMut(usize, u32) -> io::Result<T>,
) -> io::Result<[Vec<T>; 2]> {
    let mut figures = [Vec::new(), Vec::new()];
    let progress = Progress::new(2 * args.options.rounds as usize);
    for round in 0..args.options.rounds {
        let first = (round % 2) as usize;
        for which in [first, 1 - first] {
            figures[which].push(progress.step(what, || measure(which, round))?);
        }
    }
    Ok(figures)
}

/// A row of the table: this compared with that.
pub struct Row<'a> {
    pub work: &'a str,
    pub this: &'a str,
    pub that: &'a str,
    /// Unit of the figures, and digits after their point.
    pub unit: &'a str,
    pub decimals: u8,
    pub measured: &'a [Vec<f64>; 2],
    pub goal: &'a str,
}

/// Adds a row to the table.
pub fn row(table: &mut Table, row: Row<'_>) {
    let [this, that] = row.measured;
    table.row(vec![
        row.work.into(),
        row.this.into(),
        Cell::range(this, row.decimals, row.unit),
        row.that.into(),
        Cell::range(that, row.decimals, row.unit),
        Cell::range(&ratios(this, that), 2, ""),
        row.goal.into(),
    ]);
}
