//! The objects of measurements (Lustre's echo objects), and the records that threads transfer. They
//! are the same whether an OST makes the load itself or a client sends it.

use crate::{Fid, ost::Part};

/// Lustre's sequence of such objects (FID_SEQ_ECHO). No MDT names objects from it.
pub const SEQ: u64 = 2;

/// A load: all threads together transfer `bytes`. Thread `t` uses object `t % objects`. The other
/// numbers are at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Number of objects.
    pub objects: u32,
    /// Number of threads.
    pub threads: u32,
    /// Bytes of a record.
    pub record: u32,
    /// Bytes that all threads transfer, rounded down to whole records of each.
    pub bytes: u64,
}

/// Returns the first `count` objects.
pub fn objects(count: u32) -> Vec<Fid> {
    (1..=count).map(|oid| Fid::new(SEQ, oid)).collect()
}

impl Shape {
    /// Returns the records of a thread: each has its own part of the object.
    pub fn records(&self, thread: u32) -> impl Iterator<Item = Part> + use<> {
        let (object, len) = (Fid::new(SEQ, 1 + thread % self.objects), self.record);
        let count = self.bytes / u64::from(self.threads) / u64::from(len);
        let first = u64::from(thread / self.objects) * count;
        (first..first + count).map(move |record| Part { object, offset: record * u64::from(len), len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_objects_without_overlap() {
        let shape = Shape { objects: 2, threads: 6, record: 4096, bytes: 61_440 };
        let parts = || (0..6).flat_map(move |thread| shape.records(thread));
        let mut places: Vec<(u32, u64)> = parts().map(|part| (part.object.oid, part.offset)).collect();
        assert_eq!(places.len(), 12, "two whole records of each thread");
        places.sort_unstable();
        places.dedup();
        assert_eq!((places.len(), places[0], places[11]), (12, (1, 0), (2, 5 * 4096)));
        assert!(parts().all(|part| objects(2).contains(&part.object)));
    }
}
