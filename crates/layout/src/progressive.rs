//! The layout of files in a new file system, where nobody has chosen one.
//!
//! Nobody knows when a file is made how large it will be (`dynamic-striping`), so its layout goes
//! on with its size: bytes of a small file lie with its name on the MDT, those of a larger one on
//! one OST, those of a large one on four, and only of very large ones on all. Whoever writes small
//! files asks no OST; whoever writes large ones need not choose; and no OST has to be asked for the
//! size of a file that has nothing there. The figures and the reasons are in decision 018.

use crate::{Count, Pattern, Spec, Template, TemplateComponent};

/// Bytes on the MDT.
const ON_MDT: u64 = 64 << 10;
/// Where one stripe ends.
const ONE_STRIPE: u64 = 256 << 20;
/// Where four stripes end.
const FOUR_STRIPES: u64 = 16 << 30;

impl Template {
    /// `lfs setstripe -E 64K -L mdt -E 256M -c 1 -E 16G -c 4 -E -1 -c -1`
    pub fn progressive() -> Template {
        let part =
            |start, end, pattern, spec| TemplateComponent { start, end, flags: 0, pattern, spec, extension_size: None };
        let stripes = |count| Spec { count: Some(count), ..Spec::default() };
        Template::new(vec![
            part(0, ON_MDT, Pattern::MDT, Spec::default()),
            part(ON_MDT, ONE_STRIPE, Pattern::RAID0, stripes(Count::Stripes(1))),
            part(ONE_STRIPE, FOUR_STRIPES, Pattern::RAID0, stripes(Count::Stripes(4))),
            part(FOUR_STRIPES, u64::MAX, Pattern::RAID0, stripes(Count::All)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Asked;

    #[test]
    fn it_is_one_that_lustre_would_take() {
        let asked = Asked::Composite(Template::progressive());
        asked.check().unwrap();
        assert_eq!(Asked::decode(&asked.encode()).unwrap(), asked);
    }
}
