//! The OST's object engine: names of objects, bounds on requests, and durability.
//!
//! * [`name`]: object FID ↔ path below the OST's directory, as in Lustre's ldiskfs;
//! * [`check`]: bounds on requests, checked before anything else;
//! * [`plan`]: merges adjacent parts of a request into one run, thus into one system call;
//! * [`change`]: the range that a change affects, on which other clients' locks must be revoked;
//! * [`dentry_durability`]: which directory entries of new objects are durable;
//! * [`sums`]: checksums of object contents, so that bytes can be sent without reading them;
//! * [`stored_sums`]: checksums that are stored with objects, to notice damage on the disk;
//! * [`grants`]: space granted to clients;
//! * [`identity`]: the file that identifies the target in a directory;
//! * [`identity_fields`]: the text of such a file, of any kind of target;
//! * [`sharing`]: how targets on one device divide its `statfs` figures;
//! * [`quota`]: space by owner, and how much of it each id may use;
//! * [`owner_record`], [`counted`], [`unowned`]: who owns an object, and which objects are counted;
//! * [`recount`]: a second count of the space by owner, to find wrong sums.
//!
//! Invariants: no I/O, no clock, no threads. No input from a peer or a disk makes this code panic
//! or allocate without a bound.

pub mod change;
pub mod check;
pub mod counted;
pub mod dentry_durability;
pub mod grants;
pub mod identity;
pub mod identity_fields;
pub mod name;
pub mod owner_record;
pub mod plan;
pub mod quota;
pub mod recount;
pub mod sharing;
pub mod stored_sums;
pub mod sums;
pub mod unowned;

pub use counted::CountedObjects;
pub use dentry_durability::DentryDurability;
pub use grants::Grants;
pub use identity::Identity;
pub use identity_fields::{IdentityError, IdentityFields};
pub use owner_record::OwnerRecord;
pub use plan::{Run, runs};
pub use quota::Quota;
pub use recount::{Recount, WrongSum};
pub use sharing::Sharing;
pub use stored_sums::StoredSums;
pub use sums::Sums;
pub use unowned::Unowned;
