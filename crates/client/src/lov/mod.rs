//! Striping (Lustre's lov): splits operations on a file into requests to the OSTs that hold its
//! objects.
//!
//! Small writes go to the write-back cache (`cached`). One request carries everything for one OST,
//! and requests to several OSTs are in flight together. A request to a single OST is awaited
//! directly, without a wrapper. `enqueue` requests locks on objects, and `locked_objects` knows the
//! file of each locked object. The caches above store data under these locks.
//!
//! An operation that needs two rounds of requests (a read that meets a hole, a truncate) is not yet
//! atomic against other clients. An append is (`append`).

mod ahead;
mod allocate;
mod append;
mod cached;
mod clamp_to_eof;
mod degraded;
mod enqueue;
mod evictions;
mod follow;
mod glimpse;
mod group;
mod in_use;
mod known_ends;
mod locked_objects;
mod mirrors;
mod ost;
mod osts;
mod read;
mod regroup;
mod replay;
mod seek;
mod split;
mod sync;
mod truncate;
mod write;

pub use degraded::is_absence;
pub use glimpse::{FileGlimpse, GlimpseReply, merge};
pub use in_use::InUse;
pub use locked_objects::LockedObjects;
pub use ost::Ost;
pub use osts::Lov;
use osts::stripe;
pub use split::Split;
pub use write::WriteMode;
