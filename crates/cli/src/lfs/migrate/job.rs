//! The work of `lfs migrate` on each file.

use sheen_admin::migrate::MigrateOptions;

use super::super::pace::CopyOptions;

/// The work on each file.
#[derive(Default)]
pub struct Job {
    /// The requested layout; `None`: the file's own.
    pub layout: Option<Vec<u8>>,
    /// Choose the stripe count by the file's size.
    pub auto: bool,
    /// Pools that the options name.
    pub pools: Vec<String>,
    pub options: MigrateOptions,
    pub verbose: bool,
    pub manner: CopyOptions,
    /// MDTs of `-m`, -1 for any. With them, only directories are migrated, and no objects.
    pub mdts: Vec<i64>,
}
