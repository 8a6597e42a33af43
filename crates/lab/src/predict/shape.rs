//! Layouts of files, as far as rates depend on them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sheen_layout::Layout;
use sheen_wire::control::open_name;

/// Longest value of `lustre.lov`.
const LOV_BYTES_MAX: usize = 64 << 10;

/// The layouts of the files of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobLayout {
    /// Layout of each file: that of most bytes, in the mirror that is written.
    pub shape: Shape,
    /// The pools of the files' bytes; `None`: no pool. At least one entry.
    pub pools: BTreeSet<Option<String>>,
}

/// A striped layout, or a component of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// Number of stripes, at least 1.
    pub stripes: u32,
    /// Number of different OSTs.
    pub osts: u32,
    /// Bytes of a stripe unit.
    pub stripe_size: u64,
    /// Number of OSTs of all files of a job together; `None`: not known yet.
    pub all_osts: Option<u32>,
}

/// The component of a file with most of its bytes.
struct Largest {
    shape: Shape,
    osts: BTreeSet<u32>,
    pool: Option<String>,
}

impl JobLayout {
    /// Returns the layouts of the files of a job, each of `size` bytes. The shape is that of the
    /// first one. `None`: most bytes of a file are on the MDT, or a file has no layout of Sheen.
    pub fn of_files(paths: &[PathBuf], size: u64) -> Option<JobLayout> {
        let mut all: Vec<Largest> = Vec::new();
        for path in paths {
            all.push(Largest::of(&Layout::decode(&read_lov(path)?).ok()?, size)?);
        }
        let first = all.first()?.shape;
        let osts: BTreeSet<u32> = all.iter().flat_map(|largest| &largest.osts).copied().collect();
        let shape = Shape { all_osts: u32::try_from(osts.len()).ok(), ..first };
        Some(JobLayout { shape, pools: all.into_iter().map(|largest| largest.pool).collect() })
    }
}

impl Largest {
    fn of(layout: &Layout, size: u64) -> Option<Largest> {
        let written = layout.primary(|_| true).and_then(|id| layout.mirror(id));
        let layout = written.as_ref().unwrap_or(layout);
        let with_data = layout.components().iter().filter(|component| component.is_instantiated());
        let largest = with_data.max_by_key(|part| part.end.min(size).saturating_sub(part.start))?;
        let stripes = u32::try_from(largest.objects().len()).ok().filter(|stripes| *stripes > 0)?;
        let osts: BTreeSet<u32> = largest.objects().iter().map(|stripe| stripe.ost).collect();
        let stripe_size = u64::from(largest.stripe_size).max(1);
        let shape = Shape { stripes, osts: osts.len() as u32, stripe_size, all_osts: None };
        let pool = largest.pool.as_ref().map(|pool| pool.as_str().to_owned());
        (!largest.is_on_mdt()).then_some(Largest { shape, osts, pool })
    }
}

impl Shape {
    /// Describes the layout: `16 stripes of 1 MiB on 4 OSTs`.
    pub fn name(&self) -> String {
        let stripes = crate::stats::counted(self.stripes, "stripe");
        let osts = crate::stats::counted(self.osts, "OST");
        format!("{stripes} of {} on {osts}", crate::size::with_kib(self.stripe_size))
    }
}

/// Returns the layout of a file, or what a directory asks for, in the form of `lustre.lov`. `None`:
/// there is none, or it cannot be read.
pub fn read_lov(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = vec![0; LOV_BYTES_MAX];
    let len = rustix::fs::getxattr(path, &*open_name("lustre.lov"), &mut bytes).ok()?;
    bytes.truncate(len);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use sheen_layout::{Pool, Stripe};
    use sheen_wire::Fid;

    use super::*;

    #[test]
    fn shape_counts_stripes_and_osts() {
        let stripes = [0, 1, 0, 1].map(|ost| Stripe { object: Fid::new(0x1_0000_0000, 5), ost });
        let of = |pool: Option<Pool>| {
            let layout = Layout::new(Fid::new(0x2_0000_0400, 1), 1 << 20, pool, stripes.to_vec()).unwrap();
            Largest::of(&layout, 1 << 30).unwrap()
        };
        let Largest { shape, osts, pool } = of(None);
        assert_eq!((osts, pool), (BTreeSet::from([0, 1]), None));
        assert_eq!(of(Pool::new("fast").ok()).pool.as_deref(), Some("fast"));
        assert_eq!((shape.stripes, shape.osts, shape.stripe_size), (4, 2, 1 << 20));
        assert_eq!(shape.name(), "4 stripes of 1 MiB on 2 OSTs");
    }
}
