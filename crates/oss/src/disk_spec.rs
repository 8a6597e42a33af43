//! The properties of a modelled disk, and their text: `hdd`, `flash`, or pairs such as
//! `write=150 seek_us=8000`.

use std::{fmt, str::FromStr};

/// Largest value of each property: a million MiB/s, or a second, is beyond any disk.
const VALUE_MAX: u64 = 1_000_000;
/// Most MiB of memory: 64 GiB, for which the model needs some 100 MB.
const CACHE_MAX: u64 = 65_536;

/// The properties of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpec {
    /// Rate of writes in MiB/s. At least 1.
    pub write: u64,
    /// Rate of reads in MiB/s. At least 1.
    pub read: u64,
    /// Rate of one object in MiB/s, which the local file system limits. 0: no limit.
    pub object: u64,
    /// Microseconds that a read takes in addition, whatever its size. Other requests go on
    /// meanwhile. Without memory, a write takes them as well.
    pub latency_us: u64,
    /// Microseconds that the disk is busy before a request that does not continue an earlier one of
    /// its object.
    pub seek_us: u64,
    /// MiB of memory before the disk: writes wait only if more than this is to be written, and what
    /// it holds is read without the disk.
    pub cache: u64,
}

impl DiskSpec {
    /// A disk with rotating platters.
    pub const HDD: DiskSpec = DiskSpec { write: 150, read: 160, object: 0, latency_us: 0, seek_us: 8000, cache: 64 };
    /// A small solid-state disk. One object reaches 0.6 of its rate, as on the flash OST of
    /// "Exploring Lustre Overstriping", Fig. 6 and 7.
    pub const FLASH: DiskSpec = DiskSpec { write: 480, read: 520, object: 290, latency_us: 80, seek_us: 0, cache: 64 };

    fn pairs(&self) -> [(&'static str, u64); 6] {
        [
            ("write", self.write),
            ("read", self.read),
            ("object", self.object),
            ("latency_us", self.latency_us),
            ("seek_us", self.seek_us),
            ("cache", self.cache),
        ]
    }

    fn field(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "write" => &mut self.write,
            "read" => &mut self.read,
            "object" => &mut self.object,
            "latency_us" => &mut self.latency_us,
            "seek_us" => &mut self.seek_us,
            "cache" => &mut self.cache,
            _ => return None,
        })
    }
}

impl fmt::Display for DiskSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.pairs().map(|(name, value)| format!("{name}={value}"));
        f.write_str(&pairs.join(" "))
    }
}

impl FromStr for DiskSpec {
    type Err = String;

    /// Parses a name, or pairs separated by spaces, commas or lines. `write` is required; a missing
    /// `read` is the same, and all others are 0. `#` begins a comment.
    fn from_str(text: &str) -> Result<DiskSpec, String> {
        match text.trim() {
            "hdd" => return Ok(DiskSpec::HDD),
            "flash" => return Ok(DiskSpec::FLASH),
            _ => {}
        }
        let mut spec = DiskSpec { write: 0, read: 0, object: 0, latency_us: 0, seek_us: 0, cache: 0 };
        let lines = text.lines().map(|line| line.split_once('#').map_or(line, |(before, _)| before));
        let words = lines.flat_map(|line| line.split([',', ' ', '\t'])).filter(|word| !word.is_empty());
        for word in words {
            let known = || spec.pairs().map(|(name, _)| name).join(", ");
            let (name, value) = word.split_once('=').ok_or_else(|| {
                format!("'{word}' is not a property of a disk; write NAME=NUMBER without spaces, with {}", known())
            })?;
            let names = known();
            let field = spec.field(name).ok_or_else(|| format!("'{name}' is not one of {names}"))?;
            let max = if name == "cache" { CACHE_MAX } else { VALUE_MAX };
            *field = value.parse().ok().filter(|value| *value <= max).ok_or_else(|| {
                format!("{name}={value}: not a whole number up to {max} (MiB/s, MiB or microseconds)")
            })?;
        }
        if spec.write == 0 {
            return Err("a disk needs at least its rate, such as write=150 (MiB/s)".into());
        }
        if spec.read == 0 {
            spec.read = spec.write;
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_disk_is_parsed_again() {
        for spec in [DiskSpec::HDD, DiskSpec::FLASH] {
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
        let file = "# an old disk\nwrite=80   # MiB/s\nseek_us=12000, cache=16\n";
        let parsed: DiskSpec = file.parse().unwrap();
        assert_eq!(parsed.to_string(), "write=80 read=80 object=0 latency_us=0 seek_us=12000 cache=16");
    }

    #[test]
    fn invalid_text_is_refused_with_the_word_that_is_wrong() {
        for (text, message) in [
            ("", "needs at least its rate"),
            ("ssd", "'ssd' is not a property"),
            ("write = 80", "'write' is not a property"),
            ("write=80 color=1", "'color' is not one of write, read"),
            ("write=fast", "write=fast: not a whole number"),
            ("write=80 cache=65537", "cache=65537: not a whole number up to 65536"),
            ("write=1000001", "write=1000001: not a whole number up to 1000000"),
        ] {
            let refused = text.parse::<DiskSpec>().unwrap_err();
            assert!(refused.contains(message), "{text}: {refused}");
        }
    }
}
