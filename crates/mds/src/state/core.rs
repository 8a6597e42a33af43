//! The state that requests change.

use rustc_hash::FxHashSet;
use sheen_layout::Placer;
use sheen_namespace::Namespace;

use crate::store::RedbStore;

/// State that requests change.
pub(crate) struct Core {
    pub ns: Namespace<RedbStore>,
    pub placer: Placer,
    /// Number of commit rounds begun so far.
    pub round: u64,
    /// Connected exports that have sent a request.
    pub exports: FxHashSet<u64>,
}
