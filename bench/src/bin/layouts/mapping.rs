//! Speed of the mapping offset → (component, stripe, object, offset), in this process: calls of
//! [`Layout::locate`] per second of CPU time at random offsets of a file, with its allocations
//! counted.
//!
//! Random offsets are the hard case: the processor cannot predict the component and the stripe.

use std::{hint::black_box, io, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use sheen_bench::{
    allocs,
    report::{Cell, Options, Progress, Table},
};
use sheen_layout::{Count, Holds, Layout, Stripe, Wanted, WantedComponent};
use sheen_wire::Fid;

use crate::common::M;

/// In millions per second.
const GOAL_MAPPINGS: f64 = 50.0;
/// CPU time of one measurement.
const TIME: Duration = Duration::from_millis(500);
/// Number of mappings between two reads of the clock.
const BATCH: u64 = 1 << 16;
const STRIPE_SIZE: u32 = 1 << 20;
/// Upper bound of the offsets in bytes. In all layouts at least half of them are in the last
/// component.
const SPAN: u64 = 1 << 30;

/// Measures the mapping for several layouts.
pub fn measure(options: &Options, table: &mut Table) -> io::Result<()> {
    let shapes: [(&str, &[(u64, u16)]); 4] = [
        ("plain, 4 stripes", &[(u64::MAX, 4)]),
        ("plain, 2,000 stripes", &[(u64::MAX, 2000)]),
        ("3 components", &[(64 * M, 1), (256 * M, 2), (u64::MAX, 4)]),
        (
            "8 components",
            &[
                (8 * M, 1),
                (16 * M, 2),
                (32 * M, 3),
                (64 * M, 4),
                (128 * M, 6),
                (256 * M, 8),
                (512 * M, 16),
                (u64::MAX, 32),
            ],
        ),
    ];
    let progress = Progress::new(options.rounds as usize * shapes.len());
    let mut rates = vec![Vec::new(); shapes.len()];
    let mut allocated = vec![0; shapes.len()];
    let layouts = shapes.iter().map(|(_, steps)| layout(steps)).collect::<io::Result<Vec<Layout>>>()?;
    for _ in 0..options.rounds {
        for (i, (name, _)) in shapes.iter().enumerate() {
            let (rate, count) = progress.step(&format!("mapping, {name}"), || run(&layouts[i]))?;
            rates[i].push(rate);
            allocated[i] += count;
        }
    }
    drop(progress);
    for ((name, _), (rates, allocated)) in shapes.iter().zip(rates.iter().zip(allocated)) {
        table.row(vec![
            "mapping random offsets to objects, one core".into(),
            (*name).into(),
            Cell::range(rates, 0, "M/s"),
            Cell::empty(),
            Cell::number(allocated as f64, 0, "allocations"),
            Cell::empty(),
            format!("> {GOAL_MAPPINGS:.0} M/s").into(),
        ]);
    }
    Ok(())
}

/// Returns the CPU time of this thread, which other processes on the machine do not affect.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns the millions of mappings per second, and the allocations during the measurement.
fn run(layout: &Layout) -> io::Result<(f64, u64)> {
    let mut random = 1_u64;
    let (start, before) = (processor_time(), allocs::count());
    // Combines all results, so that the compiler cannot leave out a part of the mapping.
    let mut all = 0;
    let mut done = 0;
    let mut took = Duration::ZERO;
    while took < TIME {
        let mut missed = 0;
        for _ in 0..BATCH {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            match layout.locate((random >> 34) % SPAN) {
                Some(at) => all ^= at.offset ^ (at.component ^ at.stripe) as u64 ^ u64::from(at.object.oid ^ at.ost),
                None => missed += 1,
            }
        }
        if missed > 0 {
            return Err(io::Error::other("an offset was mapped to nothing"));
        }
        done += BATCH;
        took = processor_time() - start;
    }
    black_box(all);
    Ok((done as f64 / took.as_secs_f64() / 1e6, allocs::count() - before))
}

/// Returns a file's layout with all its objects. Each step gives the end and the stripe count of a
/// component. One step gives a plain layout.
fn layout(steps: &[(u64, u16)]) -> io::Result<Layout> {
    let file = Fid::new(1, 1);
    let mut next = 0;
    let mut objects = |count: u16| -> Vec<Stripe> {
        let stripe = |n: u16| Stripe { object: Fid::new(9, next + u32::from(n)), ost: u32::from(n) % 16 };
        let stripes = (1..=count).map(stripe).collect();
        next += u32::from(count);
        stripes
    };
    if let [(_, count)] = steps {
        return Layout::new(file, STRIPE_SIZE, None, objects(*count)).map_err(io::Error::other);
    }
    let starts = [0].into_iter().chain(steps.iter().map(|(end, _)| *end));
    let component = |(start, (end, count)): (u64, &(u64, u16))| WantedComponent {
        start,
        end: *end,
        flags: 0,
        holds: Holds::Objects(Wanted {
            stripe_size: STRIPE_SIZE,
            count: Count::Stripes(*count),
            overstripe: true,
            start: None,
            osts: Vec::new(),
            pool: None,
            room: 0,
        }),
    };
    let components: Vec<WantedComponent> = starts.zip(steps).map(component).collect();
    let mut given = steps.iter().enumerate().map(|(i, (_, count))| (i, objects(*count)));
    let first = given.next().into_iter().collect();
    let mut layout = Layout::from_template(file, &components, first).map_err(io::Error::other)?;
    layout.instantiate(given.collect()).map_err(io::Error::other)?;
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted() {
        let before = allocs::count();
        black_box(vec![1, 2, 3]);
        assert!(allocs::count() > before);
    }

    #[test]
    fn locate_maps_every_offset_to_the_right_component() {
        let steps = layout(&[(64 * M, 1), (256 * M, 2), (u64::MAX, 4)]).unwrap();
        let at = |offset: u64| steps.locate(offset).map(|p| (p.component, p.stripe, p.offset)).unwrap();
        assert_eq!(at(64 * M - 1), (0, 0, 64 * M - 1));
        assert_eq!(at(65 * M), (1, 2, 32 * M), "stripes are counted from the beginning of the file");
        assert_eq!(at(256 * M), (2, 3, 64 * M));
        assert!((0..SPAN).step_by(3 << 20).all(|offset| steps.locate(offset).is_some()));
        assert_eq!(layout(&[(u64::MAX, 2000)]).unwrap().stripe_count(), 2000);
    }
}
