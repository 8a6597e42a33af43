//! Identity file: says which MDT a directory holds. It prevents that the directory is served under
//! another name, in another file system, or by a release that cannot read it.
//! [`sheen_objects::identity_fields`] describes its text.

use std::fmt;

use sheen_objects::IdentityFields;

/// Version of the layout of an MDT's directory. Raised when older releases can no longer serve it.
/// Format 2: files and objects have sequences of this MDT ([`sheen_wire::seq`]). Those of MDT 0 are
/// the same as in format 1.
pub const FORMAT: u32 = 2;

/// Identity of the MDT that a directory holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Version of the directory's layout, at most [`FORMAT`].
    pub format: u32,
    /// File system.
    pub fsname: String,
    /// Index of the MDT.
    pub index: u32,
    /// Created when the directory was formatted.
    pub uuid: String,
}

/// Why an identity file is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// It is damaged, or of another kind of target, or a later release wrote it.
    #[error(transparent)]
    Unreadable(#[from] sheen_objects::IdentityError),
    /// It is of another file system or index.
    #[error("it holds {found}, not {wanted}; name the directory of {wanted}, or an empty one")]
    Other {
        /// The target in the directory, such as `sheen-MDT0000`.
        found: String,
        /// The target that was to be served.
        wanted: String,
    },
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# A Sheen target; do not edit.")?;
        writeln!(
            f,
            "format = {}\nkind = MDT\nfsname = {}\nuuid = {}\nindex = {}",
            self.format, self.fsname, self.uuid, self.index
        )
    }
}

impl Identity {
    /// Reads what `Display` wrote. Ignores keys that later minor releases added.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn parse(bytes: &[u8]) -> Result<Identity, IdentityError> {
        let fields = IdentityFields::new(bytes, "MDT", FORMAT)?;
        let index = fields.index()?.ok_or(sheen_objects::IdentityError::Damaged("no index"))?;
        Ok(Identity { format: fields.format(), fsname: fields.fsname()?, index, uuid: fields.uuid()? })
    }
}

#[cfg(test)]
mod tests {
    use sheen_objects::{
        IdentityError::{Damaged, Format, Kind},
        identity_fields::BYTES_MAX,
    };

    use super::*;

    const VERSION_1: &str =
        "# A Sheen target; do not edit.\nformat = 1\nkind = MDT\nfsname = sheen\nuuid = c0ffee\nindex = 0\n";
    const VERSION_2: &str =
        "# A Sheen target; do not edit.\nformat = 2\nkind = MDT\nfsname = sheen\nuuid = c0ffee\nindex = 0\n";

    #[test]
    fn every_mdt_identity_version_parses() {
        for (format, text) in [(1, VERSION_1), (FORMAT, VERSION_2)] {
            let sample = Identity { format, fsname: "sheen".into(), index: 0, uuid: "c0ffee".into() };
            assert_eq!(Identity::parse(text.as_bytes()), Ok(sample.clone()));
            assert_eq!(sample.to_string(), text);
        }
    }

    #[test]
    fn parse_refuses_foreign_and_damaged_mdt_identities() {
        let parsed = |bytes: &[u8]| match Identity::parse(bytes) {
            Err(IdentityError::Unreadable(error)) => error,
            other => panic!("{other:?}"),
        };
        let changed = |from: &str, to: &str| parsed(VERSION_2.replace(from, to).as_bytes());
        assert_eq!(changed("format = 2", "format = 3"), Format { found: 3, known: FORMAT });
        assert_eq!(changed("kind = MDT", "kind = OST"), Kind { found: "OST".into(), wanted: "MDT" });
        assert_eq!(changed("index = 0", "index = x"), Damaged("invalid index"));
        assert_eq!(changed("index = 0", ""), Damaged("no index"));
        assert_eq!(changed("uuid = c0ffee", ""), Damaged("no uuid"));
        assert_eq!(parsed(b"\xff"), Damaged("not text"));
        assert_eq!(parsed(&[b'#'; BYTES_MAX + 1]), Damaged("too long"));
    }
}
