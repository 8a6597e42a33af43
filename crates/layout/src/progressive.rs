//! The default layout of files in a new file system.
//!
//! The final size of a file is unknown at its creation (`dynamic-striping`), so its layout changes
//! with the offset. The bytes of a small file are on the MDT, those of a larger one on one OST, and
//! those of a large one on four. Only very large files use all OSTs. This has three advantages:
//!
//! * Small files need no request to an OST.
//! * Writers of large files need not choose a layout.
//! * No OST is asked for the size of a file that has no objects on it.
//!
//! For the numbers and the reasons see decision 018.

use crate::{Count, Pattern, Spec, Template, TemplateComponent};

/// Bytes of a file on the MDT in [`Template::progressive`] (decision 018).
pub const PROGRESSIVE_ON_MDT: u64 = 64 << 10;
/// End of the component with one stripe in [`Template::progressive`], in bytes (decision 018).
pub const PROGRESSIVE_ONE_STRIPE: u64 = 256 << 20;
/// End of the component with four stripes, in bytes.
const FOUR_STRIPES: u64 = 16 << 30;
/// Options of `lfs setstripe` that request [`Template::progressive`]. The ends are those above.
pub const PROGRESSIVE_OPTIONS: &str = "-E 64K -L mdt -E 256M -c 1 -E 16G -c 4 -E -1 -c -1";

impl Template {
    /// Returns the template of `lfs setstripe` with [`PROGRESSIVE_OPTIONS`].
    pub fn progressive() -> Template {
        let part =
            |start, end, pattern, spec| TemplateComponent { start, end, flags: 0, pattern, spec, extension_size: None };
        let stripes = |count| Spec { count: Some(count), ..Spec::default() };
        Template::new(vec![
            part(0, PROGRESSIVE_ON_MDT, Pattern::MDT, Spec::default()),
            part(PROGRESSIVE_ON_MDT, PROGRESSIVE_ONE_STRIPE, Pattern::RAID0, stripes(Count::Stripes(1))),
            part(PROGRESSIVE_ONE_STRIPE, FOUR_STRIPES, Pattern::RAID0, stripes(Count::Stripes(4))),
            part(FOUR_STRIPES, u64::MAX, Pattern::RAID0, stripes(Count::All)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Asked;

    #[test]
    fn progressive_template_passes_lustres_checks() {
        let asked = Asked::Composite(Template::progressive());
        asked.check().unwrap();
        assert_eq!(Asked::decode(&asked.encode()).unwrap(), asked);
    }
}
