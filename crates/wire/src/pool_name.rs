//! Name of a pool of OSTs as a small value, for keys and messages.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::{Errno, Result, mgs::POOL_NAME_MAX};

/// Name of a pool: 1 to [`POOL_NAME_MAX`] characters of `[A-Za-z0-9_-]`. Encoded as a string.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolName {
    /// The characters, then zeros. So names sort as their strings do.
    bytes: [u8; POOL_NAME_MAX],
}

impl PoolName {
    /// Sorts before all names. It is none itself.
    pub const FIRST: PoolName = PoolName { bytes: [0; POOL_NAME_MAX] };

    /// Checks a name.
    ///
    /// # Errors
    /// EINVAL: no pool can have this name.
    pub fn new(name: &str) -> Result<PoolName> {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if name.is_empty() || !name.bytes().all(fine) {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; POOL_NAME_MAX];
        bytes.get_mut(..name.len()).ok_or(Errno::EINVAL)?.copy_from_slice(name.as_bytes());
        Ok(PoolName { bytes })
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        let len = self.bytes.iter().position(|b| *b == 0).unwrap_or(POOL_NAME_MAX);
        self.bytes.get(..len).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for PoolName {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.as_str().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PoolName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<PoolName, D::Error> {
        let name = <&str>::deserialize(deserializer)?;
        PoolName::new(name).map_err(|_| D::Error::custom("no name of a pool"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_name_is_checked_and_sorts_as_its_string() {
        for good in ["a", "fast-ssd_1", "fifteen_letters"] {
            assert_eq!(PoolName::new(good).map(|name| name.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "sixteen__letters", "a.b", "a b", "\0", "ä"] {
            assert_eq!(PoolName::new(bad), Err(Errno::EINVAL), "{bad}");
        }
        let name = |name| PoolName::new(name).unwrap();
        assert!(name("a") < name("a-") && name("a-") < name("b"));
    }

    #[test]
    fn pool_name_is_encoded_as_a_string() {
        let name = PoolName::new("ssd").unwrap();
        let bytes = postcard::to_stdvec(&name).unwrap();
        assert_eq!(bytes, [3, b's', b's', b'd']);
        assert_eq!(postcard::from_bytes(&bytes), Ok(name));
        assert!(postcard::from_bytes::<PoolName>(&[1, b'/']).is_err());
    }
}
