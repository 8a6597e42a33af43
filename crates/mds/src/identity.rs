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
    /// A later release wrote it.
    #[error("it has format {0}, this release reads up to {FORMAT}; use the release that wrote it, or a later one")]
    Format(u32),
    /// It is of another kind of target.
    #[error("it holds a target of kind {0:?}, not an MDT")]
    Kind(String),
    /// It is of another file system or index.
    #[error("it holds {found}, not {wanted}; name the directory of {wanted}, or an empty one")]
    Other {
        /// The target in the directory, such as `sheen-MDT0000`.
        found: String,
        /// The target that was to be served.
        wanted: String,
    },
    /// It does not have the form that [`Identity`] prints.
    #[error("it is damaged ({0})")]
    Damaged(&'static str),
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
        use IdentityError::Damaged;
        let fields = IdentityFields::new(bytes).map_err(Damaged)?;
        let format = fields.format().map_err(Damaged)?;
        if format > FORMAT {
            return Err(IdentityError::Format(format));
        }
        match fields.get("kind") {
            Some("MDT") => {}
            other => return Err(IdentityError::Kind(other.unwrap_or_default().to_owned())),
        }
        let filled = |key, missing| fields.filled(key, missing).map_err(Damaged);
        Ok(Identity {
            format,
            fsname: filled("fsname", "no fsname")?.to_owned(),
            uuid: filled("uuid", "no uuid")?.to_owned(),
            index: filled("index", "no index")?.parse().map_err(|_| Damaged("index is no number"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use sheen_objects::identity_fields::BYTES_MAX;

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
        let changed = |from: &str, to: &str| Identity::parse(VERSION_2.replace(from, to).as_bytes());
        assert_eq!(changed("format = 2", "format = 3"), Err(IdentityError::Format(3)));
        assert_eq!(changed("kind = MDT", "kind = OST"), Err(IdentityError::Kind("OST".into())));
        assert_eq!(changed("index = 0", "index = x"), Err(IdentityError::Damaged("index is no number")));
        assert_eq!(changed("uuid = c0ffee", ""), Err(IdentityError::Damaged("no uuid")));
        assert_eq!(Identity::parse(b"\xff"), Err(IdentityError::Damaged("not text")));
        assert_eq!(Identity::parse(&[b'#'; BYTES_MAX + 1]), Err(IdentityError::Damaged("too long")));
    }
}
