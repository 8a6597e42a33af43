//! The numbers that `lfs df` prints.

use sheen_wire::StatFs;

/// Formats a number with its unit as a column, such as `716.8M`. As in Lustre, the column is two
/// characters narrower than that of a plain number.
pub fn with_unit(value: u64, base: u64) -> String {
    let suffixes = if base == 1000 { "kMGTPE" } else { "KMGTPE" };
    let (mut scaled, mut suffix) = (value as f64, None);
    for letter in suffixes.chars() {
        if scaled <= base as f64 {
            break;
        }
        scaled /= base as f64;
        suffix = Some(letter);
    }
    match suffix {
        Some(letter) => format!("{scaled:>8.1}{letter}"),
        None => format!("{value:>11}"),
    }
}

/// The numbers of a row: bytes or inodes.
#[derive(Clone, Copy, Default, Debug)]
pub struct TargetUsage {
    pub total: u64,
    pub used: u64,
    pub free: u64,
}

impl TargetUsage {
    pub fn of(s: &StatFs, inodes: bool) -> TargetUsage {
        if inodes {
            return TargetUsage { total: s.files, used: s.files.saturating_sub(s.ffree), free: s.ffree };
        }
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(s.bsize));
        TargetUsage { total: bytes(s.blocks), used: bytes(s.blocks.saturating_sub(s.bfree)), free: bytes(s.bavail) }
    }

    pub fn plus(self, other: TargetUsage) -> TargetUsage {
        TargetUsage {
            total: self.total.saturating_add(other.total),
            used: self.used.saturating_add(other.used),
            free: self.free.saturating_add(other.free),
        }
    }

    /// Used share of the space for users in percent, rounded up. Space reserved for the superuser
    /// does not count.
    pub fn percent(&self) -> u64 {
        let all = u128::from(self.used) + u128::from(self.free);
        if all == 0 { 0 } else { (u128::from(self.used) * 100).div_ceil(all) as u64 }
    }
}
