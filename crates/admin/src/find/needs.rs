//! The properties of entries that a search fetches.

use std::ops::BitOr;

/// Properties that a search needs of each entry, apart from the name and the file type, which the
/// directory returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// Attributes, or the FID, which comes with them.
    pub stat: bool,
    /// The creation time. It is one of the attributes, but the kernel does not cache it.
    pub birth: bool,
    /// Attributes that only the OSTs know: sizes and times of writes.
    pub sizes: bool,
    /// The layout.
    pub layout: bool,
    /// Anything else that takes a request.
    pub other: bool,
}

impl Needs {
    /// Whether directories alone return all that is needed.
    pub fn nothing(self) -> bool {
        self == Needs::default()
    }
}

impl BitOr for Needs {
    type Output = Needs;

    fn bitor(self, other: Needs) -> Needs {
        Needs {
            stat: self.stat || other.stat,
            birth: self.birth || other.birth,
            sizes: self.sizes || other.sizes,
            layout: self.layout || other.layout,
            other: self.other || other.other,
        }
    }
}
