//! `sheen top`: a live table of the waits and rates of all Sheen processes of this machine.

use std::{io, io::IsTerminal, pin::pin, time::Duration};

use sheen_rt::Rt;

use crate::{
    args::TopArgs,
    error::{Context, Failure, Result},
    host,
    print::to_stdout,
    top::{Report, Sample, Screen, fitted, keys},
};

/// Key that ends the command.
const QUIT: u8 = b'q';
/// Time limit for the runtime's threads to end.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// No process runs here, or standard output cannot be written.
pub fn run(args: &TopArgs) -> Result {
    let (runtime, rt) = host::runtime()?;
    let once = args.once || args.json || !io::stdout().is_terminal();
    let outcome = runtime.block_on(async { if once { print(args, &rt).await } else { live(args, &rt).await } });
    runtime.shutdown(SHUTDOWN);
    outcome
}

/// Prints one table, or one document.
async fn print(args: &TopArgs, rt: &Rt) -> Result {
    let before = sample(args, rt).await?;
    let now = next_sample(args, rt).await?;
    let report = Report::new(&before, &now);
    if !args.json {
        return to_stdout(&report.table());
    }
    to_stdout(&report.json().context("cannot print")?)
}

/// Redraws the table until the user presses `q`, or until SIGINT or SIGTERM.
async fn live(args: &TopArgs, rt: &Rt) -> Result {
    let mut signal = pin!(host::wait_for_signal());
    // The first poll of `signal` installs the handlers, before the screen is entered. A signal
    // without a handler would end the process there, and leave the terminal changed.
    let mut before = tokio::select! {
        biased;
        asked = &mut signal => return asked,
        first = sample(args, rt) => first?,
    };
    let mut keys = keys();
    let screen = Screen::enter().context("cannot draw on the terminal")?;
    let mut report = Report::without_rates(&before);
    loop {
        let lines = fitted(&report.table(), screen.size());
        screen.draw(&lines).context("cannot draw on the terminal")?;
        let mut next = pin!(next_sample(args, rt));
        let now = loop {
            tokio::select! {
                biased;
                asked = &mut signal => return asked,
                key = keys.recv(), if !keys.is_closed() => if key == Some(QUIT) { return Ok(()) },
                now = &mut next => break now?,
            }
        };
        report = Report::new(&before, &now);
        before = now;
    }
}

/// Asks all processes after the interval.
///
/// # Errors
/// No process runs here.
async fn next_sample(args: &TopArgs, rt: &Rt) -> Result<Sample> {
    rt.sleep(Duration::from_secs(args.interval)).await;
    sample(args, rt).await
}

/// Asks all processes.
///
/// # Errors
/// No process runs here.
async fn sample(args: &TopArgs, rt: &Rt) -> Result<Sample> {
    let fsname = args.fsname.clone();
    let sample = rt.run_blocking(move || Sample::take(fsname.as_deref())).await;
    if sample.processes == 0 && sample.silent.is_empty() {
        return Err(Failure::new("no Sheen process that you can reach runs here")
            .advise("start one with `sheen up` or `sheen mount`; root reaches the processes of all users"));
    }
    Ok(sample)
}
