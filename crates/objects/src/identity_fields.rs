//! The text of an identity file, which MDTs and OSTs have in common: one `key = value` per line,
//! for administrators to read. `#` starts a comment. Keys of later minor releases are ignored.

/// Maximum size of an identity file, in bytes.
pub const BYTES_MAX: usize = 4096;

/// The `key = value` lines of an identity file. Errors say what is damaged.
#[derive(Debug)]
pub struct IdentityFields<'a>(&'a str);

impl<'a> IdentityFields<'a> {
    /// Takes the content of an identity file.
    pub fn new(bytes: &'a [u8]) -> Result<IdentityFields<'a>, &'static str> {
        if bytes.len() > BYTES_MAX {
            return Err("too long");
        }
        str::from_utf8(bytes).map(IdentityFields).map_err(|_| "not text")
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split_once('=')).find(|(k, _)| k.trim() == key).map(|(_, v)| v.trim())
    }

    /// Returns the value of a key that must have one. `missing` is the error otherwise.
    pub fn filled(&self, key: &str, missing: &'static str) -> Result<&'a str, &'static str> {
        self.get(key).filter(|value| !value.is_empty()).ok_or(missing)
    }

    /// Returns the version of the directory's layout.
    pub fn format(&self) -> Result<u32, &'static str> {
        self.get("format").and_then(|value| value.parse().ok()).ok_or("no format")
    }
}
