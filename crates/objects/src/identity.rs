//! The file that identifies the target in a directory. With it, a directory is never served under
//! another name, by another file system, or by a release that cannot read it.
//! [`crate::identity_fields`] describes its text.

use std::fmt;

use crate::identity_fields::{IdentityError, IdentityFields};

/// Version of the layout of an OST's directory. Raised when older releases cannot read it any more.
pub const FORMAT: u32 = 1;

/// Identity of the OST in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Name of the file system.
    pub fsname: String,
    /// OST index; `None` between formatting and the first reply of the MGS.
    pub index: Option<u32>,
    /// Created when the directory was formatted.
    pub uuid: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# A Sheen target; do not edit.")?;
        writeln!(f, "format = {FORMAT}\nkind = OST\nfsname = {}\nuuid = {}", self.fsname, self.uuid)?;
        self.index.map_or(Ok(()), |index| writeln!(f, "index = {index}"))
    }
}

impl Identity {
    /// Parses the output of `Display`. Ignores keys of later minor releases.
    pub fn parse(bytes: &[u8]) -> Result<Identity, IdentityError> {
        let fields = IdentityFields::new(bytes, "OST", FORMAT)?;
        Ok(Identity { fsname: fields.fsname()?, index: fields.index()?, uuid: fields.uuid()? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity_fields::BYTES_MAX;

    const VERSION_1: &str =
        "# A Sheen target; do not edit.\nformat = 1\nkind = OST\nfsname = sheen\nuuid = c0ffee\nindex = 3\n";

    fn sample() -> Identity {
        Identity { fsname: "sheen".into(), index: Some(3), uuid: "c0ffee".into() }
    }

    #[test]
    fn identity_of_version_1_is_read() {
        assert_eq!(Identity::parse(VERSION_1.as_bytes()), Ok(sample()));
        assert_eq!(sample().to_string(), VERSION_1);
        let fresh = Identity { index: None, ..sample() };
        assert_eq!(Identity::parse(fresh.to_string().as_bytes()), Ok(fresh));
    }

    #[test]
    fn identity_of_other_kind_or_later_format_is_refused() {
        let changed = |from: &str, to: &str| Identity::parse(VERSION_1.replace(from, to).as_bytes());
        assert_eq!(changed("format = 1", "format = 2"), Err(IdentityError::Format { found: 2, known: FORMAT }));
        assert_eq!(
            changed("kind = OST", "kind = MDT"),
            Err(IdentityError::Kind { found: "MDT".into(), wanted: "OST" })
        );
        assert_eq!(changed("index = 3", "index = x"), Err(IdentityError::Damaged("invalid index")));
        assert_eq!(changed("uuid = c0ffee", "uuid ="), Err(IdentityError::Damaged("no uuid")));
        assert_eq!(Identity::parse(b""), Err(IdentityError::Damaged("no format")));
        assert_eq!(Identity::parse(&[b'#'; BYTES_MAX + 1]), Err(IdentityError::Damaged("too long")));
    }

    proptest! {
        #[test]
        fn identity_parse_of_arbitrary_bytes_never_panics(bytes: Vec<u8>) {
            let _ = Identity::parse(&bytes);
        }
    }
}
