//! The striping patterns of "Evaluating Dynamic File Striping For Lustre", as arguments of
//! `lfs setstripe`. They are the directory types A to J (Table II of the paper) and the experiments
//! of its Tables III, IV and V. Files are smaller than in the paper by a given factor.
//!
//! The paper cut files at its watermarks and stored the pieces in directories of different
//! striping. Here one file has a component for each piece. Stripe counts are the paper's. If there
//! are fewer OSTs than stripes, several stripes are on one OST.
//!
//! Watermarks and stripe widths are divided by [`Factors`]. Widths are then
//! rounded to multiples of 64 KiB, the unit of layouts. Watermarks are rounded to multiples of the
//! widths before them, as composite layouts require. A component has no more stripes than units.

use std::io;

/// Unit of stripe sizes in bytes.
const UNIT: u64 = 64 << 10;
const MIB: u64 = 1 << 20;
/// A GB of the paper in bytes.
const GIB: u64 = 1 << 30;

/// A directory type of Table II.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Type {
    /// Stripe count.
    pub count: u64,
    /// Stripe width in MiB, as in the paper.
    pub mib: u64,
}

const A: Type = Type { count: 4, mib: 1 };
const B: Type = Type { count: 8, mib: 1 };
const C: Type = Type { count: 16, mib: 1 };
const D: Type = Type { count: 64, mib: 1 };
const E: Type = Type { count: 4, mib: 2 };
const F: Type = Type { count: 16, mib: 2 };
const G: Type = Type { count: 64, mib: 2 };
const H: Type = Type { count: 4, mib: 4 };
const I: Type = Type { count: 16, mib: 4 };
const J: Type = Type { count: 64, mib: 4 };
/// Of Fig. 11, not in Table II.
const WIDEST: Type = Type { count: 128, mib: 1 };

/// A row of Table III, IV or V.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name in the paper, such as `IOR.4`.
    pub name: &'static str,
    /// Its striping in the words of the paper.
    pub striping: &'static str,
    /// Watermarks in GiB, ascending.
    marks: &'static [u64],
    /// Types of the pieces, one more than watermarks.
    types: &'static [Type],
}

const fn experiment(
    name: &'static str,
    striping: &'static str,
    marks: &'static [u64],
    types: &'static [Type],
) -> Experiment {
    Experiment { name, striping, marks, types }
}

/// Table III: a file of 4 TB.
pub const IOR: &[Experiment] = &[
    experiment("IOR.1", "A", &[], &[A]),
    experiment("IOR.2", "B", &[], &[B]),
    experiment("IOR.3", "C", &[], &[C]),
    experiment("IOR.4", "A to 1 TB, B", &[1024], &[A, B]),
    experiment("IOR.5", "A to 1 TB, C", &[1024], &[A, C]),
    experiment("IOR.6", "A to 1 TB, B to 2 TB, C", &[1024, 2048], &[A, B, C]),
];

/// Table IV: a file of 55 GB.
pub const NETFLOW: &[Experiment] = &[
    experiment("netflow.1", "A", &[], &[A]),
    experiment("netflow.2", "B", &[], &[B]),
    experiment("netflow.3", "C", &[], &[C]),
    experiment("netflow.4", "A to 10 GB, B", &[10], &[A, B]),
    experiment("netflow.5", "A to 10 GB, C", &[10], &[A, C]),
    experiment("netflow.6", "A to 10 GB, B to 20 GB, C", &[10, 20], &[A, B, C]),
];

/// Table V: a database of 79 fragments of 1 GB.
pub const BLAST: &[Experiment] = &[
    experiment("blast.1", "A", &[], &[A]),
    experiment("blast.2", "C", &[], &[C]),
    experiment("blast.3", "D", &[], &[D]),
    experiment("blast.4", "E", &[], &[E]),
    experiment("blast.5", "F", &[], &[F]),
    experiment("blast.6", "G", &[], &[G]),
    experiment("blast.7", "H", &[], &[H]),
    experiment("blast.8", "I", &[], &[I]),
    experiment("blast.9", "J", &[], &[J]),
    experiment("blast.10", "A to 26 GB, E to 52 GB, H", &[26, 52], &[A, E, H]),
    experiment("blast.11", "C to 26 GB, F to 52 GB, I", &[26, 52], &[C, F, I]),
    experiment("blast.12", "D to 26 GB, G to 52 GB, J", &[26, 52], &[D, G, J]),
    experiment("blast.13", "A to 26 GB, C to 52 GB, D", &[26, 52], &[A, C, D]),
    experiment("blast.14", "E to 26 GB, F to 52 GB, G", &[26, 52], &[E, F, G]),
    experiment("blast.15", "H to 26 GB, I to 52 GB, J", &[26, 52], &[H, I, J]),
    experiment("blast.16", "A to 26 GB, F to 52 GB, J", &[26, 52], &[A, F, J]),
    experiment("blast.17", "A to 20 GB, F to 40 GB, J", &[20, 40], &[A, F, J]),
    experiment("blast.18", "A to 8 GB, F to 28 GB, J", &[8, 28], &[A, F, J]),
];

/// Fig. 11: BLAST on 16 to 512 nodes. The paper gives these no names.
pub const FIG11: &[Experiment] = &[
    experiment("16 OSTs", "C", &[], &[C]),
    experiment("64 OSTs", "D", &[], &[D]),
    experiment("128 OSTs", "128 stripes", &[], &[WIDEST]),
    experiment("dynamic", "C to 26 GB, D to 52 GB, 128 stripes", &[26, 52], &[C, D, WIDEST]),
];

/// The factors by which files are smaller than in the paper, and the number of OSTs.
#[derive(Clone, Copy, Debug)]
pub struct Factors {
    /// Divisor of watermarks.
    pub bytes: u64,
    /// Divisor of stripe widths.
    pub widths: u64,
    /// Number of OSTs of the file system.
    pub osts: u64,
}

/// A piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// End (exclusive) in bytes. `None`: no end.
    pub end: Option<u64>,
    /// Stripe count.
    pub count: u64,
    /// Stripe size in bytes.
    pub size: u64,
}

/// Rounds down to a multiple of `unit`, but not to 0.
fn multiple(bytes: u64, unit: u64) -> u64 {
    (bytes / unit).max(1) * unit
}

impl Experiment {
    /// Returns whether the striping changes as the file grows.
    pub fn is_dynamic(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Returns its number in the paper: `4` of `IOR.4`.
    pub fn number(&self) -> &'static str {
        self.name.rsplit_once('.').map_or(self.name, |(_, number)| number)
    }

    /// Returns the pieces of a file of this size.
    pub fn pieces(&self, factors: Factors) -> Vec<Piece> {
        let marks = self.marks.iter().map(|gib| Some(gib * GIB / factors.bytes.max(1))).chain([None]);
        let piece = |(mark, t): (Option<u64>, &Type)| {
            let size = multiple(t.mib * MIB / factors.widths.max(1), UNIT);
            Piece { end: mark.map(|mark| multiple(mark, size)), count: t.count, size }
        };
        let mut pieces: Vec<Piece> = marks.zip(self.types).map(piece).collect();
        let mut start = 0;
        for piece in &mut pieces {
            if let Some(end) = piece.end {
                piece.count = piece.count.min((end - start).div_ceil(piece.size));
                start = end;
            }
        }
        pieces
    }

    /// Whether a piece would be empty.
    pub fn is_too_small(&self, factors: Factors) -> bool {
        let ends: Vec<u64> = self.pieces(factors).iter().map(|piece| piece.end.unwrap_or(u64::MAX)).collect();
        !ends.windows(2).all(|two| two[0] < two[1])
    }

    /// Returns the pieces as arguments of `lfs setstripe`.
    pub fn words(&self, factors: Factors) -> Vec<String> {
        let mut words = Vec::new();
        for piece in self.pieces(factors) {
            if self.is_dynamic() {
                let end = piece.end.map_or("-1".into(), |end| format!("{}K", end >> 10));
                words.extend(["-E".into(), end]);
            }
            let count = if piece.count > factors.osts { "-C" } else { "-c" };
            words.extend([count.into(), piece.count.to_string(), "-S".into(), format!("{}K", piece.size >> 10)]);
        }
        words
    }

    /// Checks the layout of a file with `size` bytes of data against this experiment, by the output
    /// of `lfs getstripe`.
    ///
    /// # Errors
    /// If they differ. The message shows the difference.
    pub fn check(&self, factors: Factors, size: u64, getstripe: &str) -> io::Result<()> {
        let shown = Shown::all(getstripe);
        let wanted = self.pieces(factors);
        let pieces: Vec<Piece> = shown.iter().map(|s| s.piece).collect();
        if pieces != wanted {
            return Err(io::Error::other(format!("{}: the file has {pieces:?}, not {wanted:?}", self.name)));
        }
        let mut start = 0;
        for (i, Shown { piece, objects }) in shown.into_iter().enumerate() {
            let objects_wanted = if start < size { piece.count } else { 0 };
            if objects != objects_wanted {
                return Err(io::Error::other(format!(
                    "{}: component {i} has {objects} objects, not {objects_wanted}",
                    self.name
                )));
            }
            start = piece.end.unwrap_or(u64::MAX);
        }
        Ok(())
    }
}

/// A component as `lfs getstripe` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shown {
    piece: Piece,
    objects: u64,
}

impl Shown {
    /// Parses all components of the output. A plain layout counts as one.
    fn all(text: &str) -> Vec<Shown> {
        let mut all: Vec<Shown> = Vec::new();
        let mut next = None;
        // The objects of a plain layout are rows below this header, up to the next line without a
        // number.
        let mut rows = false;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (name, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            rows &= name.parse::<u64>().is_ok();
            match (name, all.last_mut()) {
                // `EOF` does not parse as a number.
                ("lcme_extent.e_end:", _) => next = value.parse().ok(),
                ("lmm_stripe_count:", _) => {
                    let piece = Piece { end: next, count: value.parse().unwrap_or(0), size: 0 };
                    all.push(Shown { piece, objects: 0 });
                }
                ("lmm_stripe_size:", Some(last)) => last.piece.size = value.parse().unwrap_or(0),
                ("obdidx", _) => rows = true,
                ("-", Some(last)) if line.contains("l_ost_idx") => last.objects += 1,
                (_, Some(last)) if rows => last.objects += 1,
                _ => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTORS: Factors = Factors { bytes: 8192, widths: 16, osts: 32 };

    fn named(name: &str) -> &'static Experiment {
        [IOR, NETFLOW, BLAST].into_iter().flatten().find(|e| e.name == name).unwrap()
    }

    #[test]
    fn tables_contain_all_experiments_of_the_paper() {
        assert_eq!((IOR.len(), NETFLOW.len(), BLAST.len()), (6, 6, 18));
        for e in [IOR, NETFLOW, BLAST, FIG11].into_iter().flatten() {
            assert_eq!(e.marks.len() + 1, e.types.len(), "{}", e.name);
            assert!(e.marks.is_sorted(), "{}", e.name);
        }
        for experiments in [IOR, NETFLOW, BLAST] {
            let numbers: Vec<&str> = experiments.iter().map(Experiment::number).collect();
            let in_order: Vec<String> = (1..=experiments.len()).map(|n| n.to_string()).collect();
            assert_eq!(numbers, in_order);
        }
    }

    #[test]
    fn pattern_is_scaled_to_components() {
        let words = |name: &str| named(name).words(FACTORS).join(" ");
        assert_eq!(words("IOR.2"), "-c 8 -S 64K");
        assert_eq!(words("IOR.6"), "-E 131072K -c 4 -S 64K -E 262144K -c 8 -S 64K -E -1 -c 16 -S 64K");
        // 26 GiB / 8192 = 3.25 MiB, which is 52 units. There are more stripes than OSTs.
        assert_eq!(words("blast.12"), "-E 3328K -C 52 -S 64K -E 6656K -c 26 -S 128K -E -1 -C 64 -S 256K");
        // 26 GiB and 52 GiB / 9000 are 2.96 and 5.92 MiB, rounded down to units of 64 KiB and of
        // 128 KiB.
        let pieces = named("blast.10").pieces(Factors { bytes: 9000, ..FACTORS });
        assert_eq!((pieces[0].end, pieces[1].end), (Some(47 << 16), Some(47 << 17)));
        let tiny = Factors { bytes: 1 << 30, ..FACTORS };
        assert_eq!(named("netflow.4").pieces(tiny)[0].end, Some(UNIT), "no component is empty");
    }

    #[test]
    fn no_component_is_empty_up_to_the_largest_factors() {
        for (experiments, bytes) in [(IOR, 1 << 20), (NETFLOW, 10 << 10)] {
            let factors = Factors { bytes, widths: 1, osts: 64 };
            for experiment in experiments {
                assert!(!experiment.is_too_small(factors), "{}", experiment.name);
                assert!(experiment.pieces(factors).iter().all(|piece| piece.count > 0), "{}", experiment.name);
            }
        }
    }

    #[test]
    fn check_rejects_a_file_with_another_layout() {
        let composite = "\
file
  lcm_layout_gen:    3
    lcme_id:             1
    lcme_extent.e_start: 0
    lcme_extent.e_end:   131072000
      lmm_stripe_count:  2
      lmm_stripe_size:   65536
      lmm_objects:
      -   0: { l_ost_idx:   0, l_fid: [0x280000401:0x273:0x0] }
      -   1: { l_ost_idx:   1, l_fid: [0x280000401:0x274:0x0] }

    lcme_id:             2
    lcme_extent.e_start: 131072000
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  8
      lmm_stripe_size:   131072
";
        let shown = Shown::all(composite);
        let piece = |end, count, size| Piece { end, count, size };
        assert_eq!(
            shown,
            [
                Shown { piece: piece(Some(131_072_000), 2, 65536), objects: 2 },
                Shown { piece: piece(None, 8, 131_072), objects: 0 }
            ]
        );
        let plain = |count: u64, rows: u64| {
            let mut text =
                format!("file\nlmm_stripe_count:  {count}\nlmm_stripe_size:   65536\nlmm_stripe_offset: 1\n");
            text += "\tobdidx\t\t objid\t\t objid\t\t group\n";
            (0..rows).for_each(|i| text += &format!("\t     {i}\t             7\t     0x7\t 0x280000401\n"));
            text + "\n"
        };
        named("IOR.2").check(FACTORS, 1, &plain(8, 8)).unwrap();
        let error = named("IOR.2").check(FACTORS, 1, &plain(4, 4)).unwrap_err().to_string();
        assert!(error.contains("count: 4"), "{error}");
        let error = named("IOR.2").check(FACTORS, 1, &plain(8, 7)).unwrap_err().to_string();
        assert!(error.contains("has 7 objects, not 8"), "{error}");
        assert!(named("IOR.6").check(FACTORS, 1, composite).is_err());
    }
}
