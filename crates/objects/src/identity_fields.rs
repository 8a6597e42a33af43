//! The text of an identity file, which MDTs and OSTs have in common: one `key = value` per line,
//! for administrators to read. `#` starts a comment. Keys of later minor releases are ignored.

/// Maximum size of an identity file, in bytes.
pub const BYTES_MAX: usize = 4096;

/// Reason to refuse an identity file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// Written by a later release.
    #[error("it has format {found}, this release reads up to {known}; use the release that wrote it, or a later one")]
    Format {
        /// The format in the file.
        found: u32,
        /// The latest format that this release reads.
        known: u32,
    },
    /// Another kind of target.
    #[error("it holds a target of kind {found:?}, not an {wanted}")]
    Kind {
        /// The kind in the file.
        found: String,
        /// The kind that was to be served.
        wanted: &'static str,
    },
    /// Not in the form that an identity prints.
    #[error("it is damaged ({0})")]
    Damaged(&'static str),
}

/// The `key = value` lines of an identity file.
#[derive(Debug)]
pub struct IdentityFields<'a> {
    text: &'a str,
    format: u32,
}

impl<'a> IdentityFields<'a> {
    /// Takes the content of the identity file of a target of this kind. `known`: the latest format
    /// of such a target's directory that this release reads.
    ///
    /// # Errors
    /// As [`IdentityError`].
    pub fn new(bytes: &'a [u8], kind: &'static str, known: u32) -> Result<IdentityFields<'a>, IdentityError> {
        if bytes.len() > BYTES_MAX {
            return Err(IdentityError::Damaged("too long"));
        }
        let text = str::from_utf8(bytes).map_err(|_| IdentityError::Damaged("not text"))?;
        let mut fields = IdentityFields { text, format: 0 };
        fields.format = fields.number("format", "no format")?.ok_or(IdentityError::Damaged("no format"))?;
        if fields.format > known {
            return Err(IdentityError::Format { found: fields.format, known });
        }
        let found = fields.get("kind").unwrap_or_default();
        if found != kind {
            return Err(IdentityError::Kind { found: found.to_owned(), wanted: kind });
        }
        Ok(fields)
    }

    /// Returns the version of the directory's layout.
    pub fn format(&self) -> u32 {
        self.format
    }

    /// Returns the name of the file system.
    ///
    /// # Errors
    /// [`IdentityError::Damaged`]: there is none.
    pub fn fsname(&self) -> Result<String, IdentityError> {
        self.filled("fsname", "no fsname")
    }

    /// Returns the uuid, which was created when the directory was formatted.
    ///
    /// # Errors
    /// [`IdentityError::Damaged`]: there is none.
    pub fn uuid(&self) -> Result<String, IdentityError> {
        self.filled("uuid", "no uuid")
    }

    /// Returns the target's index, if the file has one.
    ///
    /// # Errors
    /// [`IdentityError::Damaged`]: it is not a number.
    pub fn index(&self) -> Result<Option<u32>, IdentityError> {
        self.number("index", "invalid index")
    }

    /// Returns the value of a key.
    fn get(&self, key: &str) -> Option<&'a str> {
        let lines = self.text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split_once('=')).find(|(k, _)| k.trim() == key).map(|(_, v)| v.trim())
    }

    fn filled(&self, key: &str, missing: &'static str) -> Result<String, IdentityError> {
        let value = self.get(key).filter(|value| !value.is_empty());
        value.map(str::to_owned).ok_or(IdentityError::Damaged(missing))
    }

    fn number(&self, key: &str, wrong: &'static str) -> Result<Option<u32>, IdentityError> {
        self.get(key).map(|value| value.parse().map_err(|_| IdentityError::Damaged(wrong))).transpose()
    }
}
