//! The directory for files and objects that a repair finds without a name: `/lost+found`.

use sheen_layout::{Layout, LayoutError, STRIPE_SIZE_DEFAULT, Stripe};
use sheen_wire::Fid;

/// Name of the directory.
pub(crate) const LOST_FOUND: &str = "lost+found";
/// Permissions of files and directories that a repair makes.
pub(crate) const FILE_PERM: u32 = 0o600;
pub(crate) const DIR_PERM: u32 = 0o700;

/// Returns the name of an OST without its file system, such as `OST0003`.
pub(crate) fn ost_name(ost: u32) -> String {
    format!("OST{ost:04x}")
}

/// Returns the name in `/lost+found` of a file that is made of an object.
pub(crate) fn name_of_object(ost: u32, object: Fid) -> String {
    format!("{}-{}", ost_name(ost), object.to_string().trim_matches(['[', ']']))
}

/// Returns a layout of a single object.
pub(crate) fn one_object(file: Fid, ost: u32, object: Fid) -> Result<Layout, LayoutError> {
    Layout::new(file, STRIPE_SIZE_DEFAULT, None, vec![Stripe { object, ost }])
}
