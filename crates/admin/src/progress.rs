//! Progress of a copy.

/// A report of a copy to its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// An attempt begins to copy this many bytes. Attempts are repeated if programs write to the
    /// file meanwhile.
    Begin {
        /// Size of the file.
        total: u64,
    },
    /// The copy has come to this offset. The report is repeated while a bandwidth limit delays the
    /// copy.
    Copied {
        /// Bytes copied, holes included.
        copied: u64,
        /// Size of the file.
        total: u64,
    },
    /// All bytes are copied.
    End {
        /// Size of the file.
        total: u64,
    },
}

impl Progress {
    /// Returns the bytes copied and the size of the file.
    pub fn bytes(self) -> (u64, u64) {
        match self {
            Progress::Begin { total } => (0, total),
            Progress::Copied { copied, total } => (copied, total),
            Progress::End { total } => (total, total),
        }
    }
}
