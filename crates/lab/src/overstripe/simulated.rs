//! Runs a comparison on simulated machines ([`crate::machines`]), in virtual time.

use std::io;

use sheen_simulation::{Job, Locks as Simulated, Measured, Striping, measure};

use crate::{
    machines::Machines,
    overstripe::{
        args::Locks,
        outcome::{Outcome, Sample},
        plan::{Curve, Layout, Plan},
        print::name,
        system::Explained,
    },
    session::Session,
    stop,
};

/// Runs a plan in virtual time: each point once.
///
/// # Errors
/// Of a simulation, or an interruption by the user between two of them. `outcome` then has the
/// results so far.
pub fn run(plan: &Plan, machines: &Machines, outcome: &mut Outcome, session: &mut Session) -> io::Result<()> {
    for &curve in &plan.curves {
        for &layout in &plan.layouts {
            stop::check()?;
            session.part(&format!("{}, {} on an OST", name(curve), layout.name()));
            let job = job(plan, curve, layout);
            let measured =
                measure(&machines.hardware(plan.osts.len() as u32), &job, plan.seed).map_err(io::Error::other)?;
            outcome.add(curve, layout, sample(&job, &measured));
            session.end(|| {});
        }
    }
    Ok(())
}

fn job(plan: &Plan, curve: Curve, layout: Layout) -> Job {
    let locks = match plan.locks_of(curve) {
        Some(Locks::Growing) => Simulated::Growing,
        Some(Locks::Exact) => Simulated::Exact,
        Some(Locks::Adaptive) | None => Simulated::Adaptive,
    };
    let striping = match layout {
        Layout::Shared(stripes) => Striping::Shared(stripes as u16),
        Layout::Files => Striping::Files,
    };
    Job {
        nodes: curve.nodes,
        ppn: plan.ppn,
        record: curve.record as u32,
        records: (plan.size / curve.record / u64::from(plan.ppn)) as u32,
        striping,
        contiguous: false,
        locks,
        read: plan.read,
    }
}

fn sample(job: &Job, measured: &Measured) -> Sample {
    let explained = Explained {
        grants: measured.grants as f64,
        callbacks: measured.callbacks as f64,
        own: measured.own_locks as f64,
        mib: job.bytes() as f64 / f64::from(1 << 20),
    };
    Sample { write: measured.write, read: measured.read, explained: Some(explained) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::overstripe::{args::OverstripeArgs, outcome::gains};

    #[test]
    fn more_stripes_bring_the_rate_of_the_flash_ost() {
        let line = "overstripe --simulate flash --nodes 8 -b 8m --stripes 1,8 --locks growing -r";
        let plan = Plan::new(&OverstripeArgs::try_parse_from(line.split_whitespace()).unwrap()).unwrap();
        let machines = plan.machines.unwrap();
        let mut outcome = Outcome::new(&plan);
        for &layout in &plan.layouts {
            let job = job(&plan, plan.curves[0], layout);
            outcome.add(plan.curves[0], layout, sample(&job, &measure(&machines.hardware(1), &job, 1).unwrap()));
        }
        let points = outcome.points();
        let gain = &gains(&plan, &points)[0];
        assert!(gain.best.0 > 1.3 * gain.fewest.0, "the limit of an object, and locks: {gain:?}");
        assert!(points.iter().all(|point| point.read.is_some() && point.write[0] < 11_158.0), "{points:?}");
        assert_eq!(points[1].callbacks, Some(0.0), "each object has one node: {:?}", points[1]);
    }
}
