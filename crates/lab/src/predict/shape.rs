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

impl Shape {
    /// Returns the layout of the files of a job, each of `size` bytes: that of most bytes of the
    /// first one, in the mirror that is written. `None`: these bytes are on the MDT, or the file
    /// has no layout of Sheen.
    pub fn of_files(paths: &[PathBuf], size: u64) -> Option<Shape> {
        let mut all: Vec<(Shape, BTreeSet<u32>)> = Vec::new();
        for path in paths {
            all.push(Shape::of_layout(&Layout::decode(&read_lov(path)?).ok()?, size)?);
        }
        let (first, _) = *all.first()?;
        let osts: BTreeSet<u32> = all.iter().flat_map(|(_, osts)| osts).copied().collect();
        Some(Shape { all_osts: u32::try_from(osts.len()).ok(), ..first })
    }

    fn of_layout(layout: &Layout, size: u64) -> Option<(Shape, BTreeSet<u32>)> {
        let written = layout.primary(|_| true).and_then(|id| layout.mirror(id));
        let layout = written.as_ref().unwrap_or(layout);
        let with_data = layout.components().iter().filter(|component| component.is_instantiated());
        let largest = with_data.max_by_key(|part| part.end.min(size).saturating_sub(part.start))?;
        let stripes = u32::try_from(largest.objects().len()).ok().filter(|stripes| *stripes > 0)?;
        let osts: BTreeSet<u32> = largest.objects().iter().map(|stripe| stripe.ost).collect();
        let stripe_size = u64::from(largest.stripe_size).max(1);
        let shape = Shape { stripes, osts: osts.len() as u32, stripe_size, all_osts: None };
        (!largest.is_on_mdt()).then_some((shape, osts))
    }

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
    use sheen_layout::Stripe;
    use sheen_wire::Fid;

    use super::*;

    #[test]
    fn shape_counts_stripes_and_osts() {
        let stripes = [0, 1, 0, 1].map(|ost| Stripe { object: Fid::new(0x1_0000_0000, 5), ost });
        let layout = Layout::new(Fid::new(0x2_0000_0400, 1), 1 << 20, None, stripes.to_vec()).unwrap();
        let (shape, osts) = Shape::of_layout(&layout, 1 << 30).unwrap();
        assert_eq!(osts, BTreeSet::from([0, 1]));
        assert_eq!((shape.stripes, shape.osts, shape.stripe_size), (4, 2, 1 << 20));
        assert_eq!(shape.name(), "4 stripes of 1 MiB on 2 OSTs");
    }
}
