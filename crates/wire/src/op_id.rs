//! [`OpId`]: the id of a client's operation, by which log lines of clients and servers are matched.

use std::fmt;

/// Id of one operation of a client, such as one system call on a mount. The client assigns it, and
/// it goes with every request that the operation causes, from server to server too. It serves log
/// lines only, so a wrong id does no harm.
///
/// An id has the low 32 bits of the mount's instance number and of the operation's number. So the
/// ids of a mount repeat after 2^32 numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpId(u64);

impl OpId {
    /// No operation: work that no single operation caused, such as flushing old dirty data.
    pub const NONE: OpId = OpId(0);

    /// Returns the id of a mount's operation.
    pub fn new(instance: u64, number: u64) -> OpId {
        OpId((instance << 32) | (number & u64::from(u32::MAX)))
    }

    /// Returns the id for its form on the wire.
    pub fn from_wire(id: u64) -> OpId {
        OpId(id)
    }

    /// Returns the form on the wire: 0 for [`OpId::NONE`].
    pub fn to_wire(self) -> u64 {
        self.0
    }

    /// Returns whether this is [`OpId::NONE`].
    pub fn is_none(self) -> bool {
        self == OpId::NONE
    }
}

/// The last 8 hex digits of the instance number, a colon, and the number of the operation:
/// `5e0a91c3:1842`.
impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}:{}", self.0 >> 32, self.0 as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_id_prints_instance_and_number() {
        let id = OpId::new(0xff12_3456_0e0a_91c3, 1842);
        assert_eq!(id.to_string(), "0e0a91c3:1842");
        assert_eq!(OpId::from_wire(id.to_wire()), id);
        assert_eq!(OpId::new(0, 1 << 32), OpId::NONE, "numbers repeat");
        assert!(OpId::NONE.is_none() && !id.is_none());
    }
}
