//! The features of a connection under Lustre's names: `connect_flags`, and a part of `import`.
//!
//! The protocols of a release always have the features of Lustre that are listed here. A feature of
//! Sheen that the two ends agree on when they connect follows them.

use std::fmt::Write;

use sheen_rpc::Import;
use sheen_wire::{Mds, Ost, Protocol, frame::FEATURE_OP_ID};

/// Number of bits in the first word of Lustre's flags.
const WORD_BITS: u32 = 64;
/// Number of the bit that announces a second word.
const SECOND_FLAGS: (u32, &str) = (63, "second_flags");

/// Numbers and names of the features of a connection to an MDT, in Lustre's order.
const OF_MDT: &[(u32, &str)] = &[
    (7, "acl"),
    (8, "xattr"),
    (12, "inode_bit_locks"),
    (14, "getattr_by_fid"),
    (18, "max_byte_per_rpc"),
    (30, "fid_is_enabled"),
    (32, "pools"),
    (35, "large_ea"),
    (37, "layout_lock"),
    (38, "64bithash"),
    (40, "imp_recov"),
    (41, "jobstats"),
    (47, "nanoseconds_times"),
    (51, "flock_deadlock"),
    (53, "open_by_fid"),
    (57, "multi_mod_rpcs"),
    SECOND_FLAGS,
    (68, "overstriping"),
    (69, "flr"),
];

/// As [`OF_MDT`], of a connection to an OST or to the data service of an MDT.
const OF_OST: &[(u32, &str)] = &[
    (1, "lov_index"),
    (3, "write_grant"),
    (18, "max_byte_per_rpc"),
    (30, "fid_is_enabled"),
    (40, "imp_recov"),
    (41, "jobstats"),
    (47, "nanoseconds_times"),
    SECOND_FLAGS,
    (65, "lockaheadv2"),
    (82, "lseek"),
];

/// The features of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectFlags {
    of_lustre: &'static [(u32, &'static str)],
    /// The feature bits that both ends have.
    agreed: u64,
}

impl ConnectFlags {
    /// Returns the features of the last connection of an import; none, if there was none.
    pub fn of_import<P: Protocol>(import: &Import<P>) -> ConnectFlags {
        if import.incarnation().is_some() { ConnectFlags::of::<P>(import.features()) } else { ConnectFlags::default() }
    }

    /// Returns the features of a connection. `agreed`: the feature bits that both ends have.
    pub fn of<P: Protocol>(agreed: u64) -> ConnectFlags {
        let of_lustre = match P::NAME {
            Mds::NAME => OF_MDT,
            Ost::NAME => OF_OST,
            _ => &[],
        };
        ConnectFlags { of_lustre, agreed }
    }

    /// Returns the names, Lustre's first.
    pub fn names(&self) -> Vec<&'static str> {
        let own = (self.agreed & FEATURE_OP_ID != 0).then_some("op_id");
        self.of_lustre.iter().map(|(_, name)| *name).chain(own).collect()
    }

    /// Returns the two words of Lustre's flags.
    pub fn words(&self) -> [u64; 2] {
        let set = |words: [u64; 2], bit: u32| match bit.checked_sub(WORD_BITS) {
            None => [words[0] | 1 << bit, words[1]],
            Some(bit) => [words[0], words[1] | 1 << bit],
        };
        self.of_lustre.iter().fold([0; 2], |words, (bit, _)| set(words, *bit))
    }

    /// Renders the parameter `connect_flags`.
    pub fn text(&self) -> String {
        let [flags, flags2] = self.words();
        let mut out = format!("flags={flags:#x}\nflags2={flags2:#x}\n");
        for name in self.names() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_flags_list_words_and_names() {
        let flags = ConnectFlags::of::<Ost>(FEATURE_OP_ID);
        let want = "\
flags=0x800083004004000a
flags2=0x40002
lov_index
write_grant
max_byte_per_rpc
fid_is_enabled
imp_recov
jobstats
nanoseconds_times
second_flags
lockaheadv2
lseek
op_id
";
        assert_eq!(flags.text(), want);
        let mdt = ConnectFlags::of::<Mds>(0);
        assert_eq!(mdt.words(), [0x8228_8369_4004_5180, 0x30]);
        assert_eq!(mdt.names().last(), Some(&"flr"));
        assert!(OF_MDT.is_sorted() && OF_OST.is_sorted(), "in Lustre's order");
    }
}
