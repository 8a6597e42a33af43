//! Placement: even distribution, weights, refusals.

use sheen_wire::Errno;

use super::*;

const GIB: u64 = 1 << 30;

/// Builds OSTs of 100 GiB with these GiB free, all on one server.
fn osts(free_gib: &[u64]) -> Vec<Ost> {
    let ost = |(i, gib): (usize, &u64)| Ost {
        index: i as u32,
        active: true,
        degraded: false,
        free_bytes: gib * GIB,
        total_bytes: 100 * GIB,
        free_objects: 1000,
        oss: 0,
    };
    free_gib.iter().enumerate().map(ost).collect()
}

fn stripes(n: u16) -> Wanted {
    let (stripe_size, count) = (1 << 20, Count::Stripes(n));
    Wanted { stripe_size, count, overstripe: false, start: None, osts: vec![], pool: None, room: 0 }
}

fn over(count: Count) -> Wanted {
    Wanted { count, overstripe: true, ..stripes(1) }
}

fn place(placer: &mut Placer, wanted: &Wanted, osts: &[Ost]) -> Result<Vec<u32>, LayoutError> {
    placer.place(wanted, osts, &Limits::default())
}

/// Returns how often each OST was chosen for `files` files.
fn tally(wanted: &Wanted, osts: &[Ost], files: usize) -> Vec<usize> {
    let mut placer = Placer::new(1);
    let mut seen = vec![0; osts.len()];
    for _ in 0..files {
        for ost in place(&mut placer, wanted, osts).unwrap() {
            seen[ost as usize] += 1;
        }
    }
    seen
}

#[test]
fn round_robin_continues_where_the_last_file_ended() {
    let osts = osts(&[90; 4]);
    let mut placer = Placer::new(7);
    assert_eq!(place(&mut placer, &stripes(1), &osts), Ok(vec![0]));
    assert_eq!(place(&mut placer, &stripes(2), &osts), Ok(vec![1, 2]));
    assert_eq!(place(&mut placer, &stripes(3), &osts), Ok(vec![3, 0, 1]));
    // Files on all OSTs: each begins one OST further than the last.
    assert_eq!(place(&mut placer, &stripes(4), &osts), Ok(vec![2, 3, 0, 1]));
    assert_eq!(place(&mut placer, &stripes(4), &osts), Ok(vec![3, 0, 1, 2]));
    assert_eq!(tally(&stripes(1), &osts, 400), [100; 4]);
}

#[test]
fn round_robin_alternates_between_servers() {
    let mut osts = osts(&[90; 6]);
    for ost in &mut osts {
        ost.oss = ost.index / 3;
    }
    let order = place(&mut Placer::new(0), &stripes(6), &osts).unwrap();
    let servers: Vec<u32> = order.iter().map(|i| i / 3).collect();
    assert_eq!(servers, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn place_is_weighted_only_past_the_threshold() {
    // Free space within 17 %: still round robin.
    assert_eq!(tally(&stripes(1), &osts(&[90, 90, 90, 75]), 400), [100; 4]);
    // Beyond: the fuller OST gets less than the others, but not nothing.
    let seen = tally(&stripes(1), &osts(&[90, 90, 90, 30]), 4000);
    assert!(seen[3] > 100 && seen[3] < 600, "{seen:?}");
    for i in 0..3 {
        assert!(seen[i] > 1000, "{seen:?}");
    }
}

#[test]
fn weighted_place_follows_free_space() {
    let seen = tally(&stripes(1), &osts(&[80, 40, 20, 20]), 8000);
    let share = |i: usize| seen[i] as f64 / 8000.0;
    for (i, want) in [0.5, 0.25, 0.125, 0.125].into_iter().enumerate() {
        assert!((share(i) - want).abs() < 0.06, "{seen:?}");
    }
}

#[test]
fn weighted_stripes_of_a_file_are_on_different_osts() {
    let osts = osts(&[90, 10, 50, 5]);
    let mut placer = Placer::new(3);
    for _ in 0..100 {
        let mut chosen = place(&mut placer, &stripes(4), &osts).unwrap();
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1, 2, 3]);
    }
}

#[test]
fn place_of_growing_component_prefers_room_over_stripes() {
    let osts = osts(&[90, 10, 50, 5]);
    let growing = |n, gib| Wanted { room: gib * GIB, ..stripes(n) };
    let chosen = |wanted: Wanted| {
        let mut chosen = place(&mut Placer::new(3), &wanted, &osts).unwrap();
        chosen.sort_unstable();
        chosen
    };
    assert_eq!(chosen(growing(4, 16)), [0, 1, 2, 3]);
    assert_eq!(chosen(growing(4, 24)), [0, 1, 2], "8 GiB each; with four OSTs it would be 6 GiB");
    assert_eq!(chosen(growing(4, 60)), [0, 2]);
    assert_eq!(chosen(growing(1, 60)), [0]);
    assert_eq!(chosen(Wanted { start: Some(1), ..growing(1, 60) }), [0]);
    assert_eq!(chosen(Wanted { room: 60 * GIB, ..over(Count::Stripes(4)) }), [0, 0, 2, 2]);
    assert_eq!(chosen(growing(4, 1000)), [0, 1, 2, 3], "no OSTs have room for that");
    assert_eq!(room_each(osts.iter(), 4, 1000 * GIB, &Limits::default()), None);
}

#[test]
fn place_penalties_reduce_repeated_choices() {
    let osts = osts(&[90, 90, 1]);
    let repeats = |prio_free_percent| {
        let limits = Limits { prio_free_percent, ..Limits::default() };
        let mut placer = Placer::new(5);
        let files: Vec<u32> = (0..4000).map(|_| placer.place(&stripes(1), &osts, &limits).unwrap()[0]).collect();
        files.windows(2).filter(|w| w[0] == w[1]).count()
    };
    let (free_alone, spreading) = (repeats(100), repeats(0));
    assert!(spreading * 10 < free_alone * 9, "{spreading} repeats with penalties, {free_alone} without");
}

#[test]
fn a_seed_replays() {
    let osts = osts(&[90, 40, 20, 5]);
    let run = |seed| {
        let mut placer = Placer::new(seed);
        (0..50).map(|_| place(&mut placer, &stripes(2), &osts).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11), run(12));
}

#[test]
fn place_spreads_overstripes_evenly() {
    for free in [[90; 4], [90, 10, 50, 5]] {
        for count in [5, 8, 11, 100, 2000_u16] {
            let chosen = place(&mut Placer::new(2), &over(Count::Stripes(count)), &osts(&free)).unwrap();
            assert_eq!(chosen.len(), usize::from(count));
            let seen: Vec<usize> = (0..4).map(|o| chosen.iter().filter(|c| **c == o).count()).collect();
            assert!(seen.iter().max().unwrap() - seen.iter().min().unwrap() <= 1, "{seen:?}");
            assert!(chosen.windows(4).all(|w| (0..4).all(|i| !w[..i].contains(&w[i]))), "adjacent stripes differ");
        }
    }
}

#[test]
fn place_resolves_counts_of_all_and_per_ost() {
    let osts = osts(&[90; 4]);
    let len = |wanted: Wanted| place(&mut Placer::new(0), &wanted, &osts).unwrap().len();
    assert_eq!(len(stripes(10)), 4, "-c 10 on 4 OSTs");
    assert_eq!(len(Wanted { count: Count::All, ..stripes(1) }), 4);
    assert_eq!(len(over(Count::All)), 4);
    assert_eq!(len(over(Count::PerOst(2))), 8);
    assert_eq!(len(over(Count::PerOst(32))), 128);
    assert_eq!(len(over(Count::Stripes(2))), 2);
    let one = &osts[..1];
    assert_eq!(place(&mut Placer::new(0), &over(Count::Stripes(2000)), one).unwrap(), vec![0; 2000]);
}

#[test]
fn place_starts_at_the_hint_and_skips_full_and_inactive() {
    let mut osts = osts(&[90; 4]);
    let from = |start, n, osts: &[Ost]| {
        place(&mut Placer::new(0), &Wanted { start: Some(start), ..stripes(n) }, osts).unwrap()
    };
    assert_eq!(from(3, 2, &osts), [3, 0]);
    assert_eq!(from(1, 3, &osts), [1, 2, 3]);
    let six = Wanted { start: Some(1), ..over(Count::Stripes(6)) };
    assert_eq!(place(&mut Placer::new(0), &six, &osts).unwrap(), [1, 2, 3, 0, 1, 2]);
    osts[3].active = false;
    assert_eq!(from(3, 1, &osts), [0], "inactive: the next one");
    osts[0].free_bytes = 50 << 20; // of 100 GiB: below a thousandth
    assert_eq!(from(3, 2, &osts), [1, 2], "full: the next one");
    let unknown = Wanted { start: Some(4), ..stripes(1) };
    assert_eq!(place(&mut Placer::new(0), &unknown, &osts).unwrap_err().errno(), Errno::EINVAL);
}

#[test]
fn place_uses_a_listed_osts_order_unchanged() {
    let mut osts = osts(&[90, 90, 90, 0]);
    let listed = |list: &[u32], start, osts: &[Ost]| {
        place(&mut Placer::new(0), &Wanted { osts: list.to_vec(), start, ..stripes(1) }, osts)
    };
    assert_eq!(listed(&[0, 1, 0, 2, 1, 2, 3, 3], None, &osts), Ok(vec![0, 1, 0, 2, 1, 2, 3, 3]), "full OSTs, too");
    assert_eq!(listed(&[0, 1], Some(1), &osts), Ok(vec![1, 0]));
    assert_eq!(listed(&[0, 9], None, &osts), Err(LayoutError::UnknownOst(9)));
    osts[2].active = false;
    assert_eq!(listed(&[2, 3], None, &osts).unwrap_err().errno(), Errno(121), "EREMOTEIO");
}

#[test]
fn place_avoids_full_and_inactive_osts() {
    let mut osts = osts(&[90, 90, 0, 90]);
    osts[1].active = false;
    osts[3].free_objects = 0;
    assert_eq!(tally(&stripes(1), &osts, 10), [10, 0, 0, 0]);
    osts[0].active = false;
    assert_eq!(place(&mut Placer::new(0), &stripes(1), &osts).unwrap_err().errno(), Errno::ENOSPC);
    assert_eq!(place(&mut Placer::new(0), &stripes(1), &[]).unwrap_err().errno(), Errno::ENOSPC);
}

#[test]
fn place_survives_removed_and_added_osts() {
    let mut placer = Placer::new(9);
    let mut all = osts(&[90, 10, 50, 5]);
    for i in 0..40 {
        if i == 20 {
            all.truncate(2);
        }
        if i == 30 {
            all = osts(&[90; 6]);
        }
        let known = all.len() as u32;
        assert!(place(&mut placer, &stripes(3), &all).unwrap().iter().all(|o| *o < known));
    }
}

#[test]
fn place_uses_degraded_osts_only_if_needed_or_named() {
    let mut osts = osts(&[90; 4]);
    osts[1].degraded = true;
    assert_eq!(tally(&stripes(1), &osts, 300), [100, 0, 100, 100]);
    assert_eq!(tally(&stripes(3), &osts, 10), [10, 0, 10, 10]);
    assert_eq!(tally(&stripes(4), &osts, 10), [10; 4], "a wide file needs it");
    assert_eq!(tally(&over(Count::PerOst(2)), &osts, 1), [2; 4]);
    // Also if OSTs are unevenly full, however much is free on the degraded one.
    osts[0].free_bytes = 10 * GIB;
    assert_eq!(tally(&stripes(1), &osts, 100)[1], 0);
    // A named degraded OST is used; later stripes avoid it.
    let named = |start, n| Wanted { start: Some(start), ..stripes(n) };
    let mut placer = Placer::new(1);
    assert_eq!(place(&mut placer, &named(1, 2), &osts), Ok(vec![1, 2]));
    assert_eq!(place(&mut placer, &named(0, 2), &osts), Ok(vec![0, 2]));
    assert_eq!(place(&mut placer, &Wanted { osts: vec![1, 3], ..stripes(2) }, &osts), Ok(vec![1, 3]));
    // Of several degraded OSTs the emptiest comes first. If all are degraded, they are used
    // normally.
    osts[3].degraded = true;
    osts[3].free_bytes = 20 * GIB;
    assert_eq!(tally(&stripes(3), &osts, 10), [10, 10, 10, 0]);
    osts.iter_mut().for_each(|o| o.degraded = true);
    assert_eq!(tally(&stripes(1), &osts, 100).iter().sum::<usize>(), 100);
    // A degraded OST is used if only it has room.
    let mut osts = self::osts(&[2, 90]);
    osts[1].degraded = true;
    let grows = |room| Wanted { room, ..stripes(1) };
    assert_eq!(place(&mut placer, &grows(GIB), &osts), Ok(vec![0]));
    assert_eq!(place(&mut placer, &grows(50 * GIB), &osts), Ok(vec![1]));
}
