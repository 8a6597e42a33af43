//! An open directory.

use std::sync::Arc;

use sheen_wire::Fid;

use super::{file::OpenFile, listing::Listing, scan_page::Scan};

/// An open directory.
#[derive(Debug)]
pub struct OpenDir {
    pub(crate) file: Arc<OpenFile>,
    /// State of [`crate::Client::list`].
    pub(crate) listing: Arc<Listing>,
    /// State of [`crate::Client::scan`].
    pub(crate) scan: Scan,
}

impl OpenDir {
    pub(crate) fn new(file: Arc<OpenFile>) -> Arc<OpenDir> {
        let listing = Listing::new(file.fid());
        Arc::new(OpenDir { file, listing, scan: Scan::default() })
    }

    /// Returns the FID of the directory.
    pub fn fid(&self) -> Fid {
        self.file.fid()
    }
}
