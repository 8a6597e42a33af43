//! `llite.*.stats`: counts and times of the operations of programs.

use sheen_params::{Snapshot, Stats};
use sheen_rt::{Instant, Rt};

macro_rules! counters {
    ($($op:ident $name:literal $unit:literal, $text:literal;)*) => {
        /// A counter of the statistics.
        #[derive(Clone, Copy, Debug)]
        pub enum Op { $(#[doc = $text] $op,)* }

        /// Lustre's names and units, in Lustre's order, which is that of [`Op`]. Lustre has no
        /// `lookup`.
        const COUNTERS: &[(&str, &str)] = &[$(($name, $unit),)*];
    };
}

counters! {
    ReadBytes "read_bytes" "bytes", "Bytes of a read.";
    WriteBytes "write_bytes" "bytes", "Bytes of a write.";
    Read "read" "usecs", "A read.";
    Write "write" "usecs", "A write.";
    Open "open" "usecs", "open, with and without O_CREAT.";
    Close "close" "usecs", "The last close.";
    Seek "seek" "usecs", "lseek with SEEK_DATA or SEEK_HOLE.";
    Fsync "fsync" "usecs", "fsync and fdatasync.";
    Readdir "readdir" "usecs", "readdir.";
    Setattr "setattr" "usecs", "setattr other than truncate.";
    Truncate "truncate" "usecs", "truncate.";
    Getattr "getattr" "usecs", "stat.";
    Fallocate "fallocate" "usecs", "fallocate.";
    Link "link" "usecs", "link.";
    Unlink "unlink" "usecs", "unlink.";
    Symlink "symlink" "usecs", "symlink.";
    Mkdir "mkdir" "usecs", "mkdir.";
    Rmdir "rmdir" "usecs", "rmdir.";
    Mknod "mknod" "usecs", "mknod.";
    Rename "rename" "usecs", "rename.";
    Statfs "statfs" "usecs", "statfs.";
    Setxattr "setxattr" "usecs", "setxattr.";
    Getxattr "getxattr" "usecs", "getxattr.";
    Listxattr "listxattr" "usecs", "listxattr.";
    Removexattr "removexattr" "usecs", "removexattr.";
    Lookup "lookup" "usecs", "lookup of a name.";
}

/// The counters of a mount.
pub struct OpStats {
    rt: Rt,
    stats: Stats,
}

/// Records, when dropped, how long its operation took.
pub struct Timer<'a> {
    stats: &'a OpStats,
    op: Op,
    start: Instant,
}

impl OpStats {
    /// Creates the counters, all zero.
    pub fn new(rt: &Rt) -> OpStats {
        OpStats { rt: rt.clone(), stats: Stats::new(COUNTERS, rt.wall()) }
    }

    /// Times an operation until the timer is dropped.
    pub fn time(&self, op: Op) -> Timer<'_> {
        Timer { stats: self, op, start: self.rt.now() }
    }

    /// Adds a sample.
    pub fn record(&self, op: Op, value: u64) {
        self.stats.record_at(op as usize, value);
    }

    /// Returns the values of now.
    pub fn snapshot(&self) -> Snapshot {
        self.stats.snapshot(self.rt.wall())
    }

    /// Resets all counters.
    pub fn clear(&self) {
        self.stats.clear(self.rt.wall());
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        let took = self.stats.rt.now().since(self.start);
        self.stats.record(self.op, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }
}
