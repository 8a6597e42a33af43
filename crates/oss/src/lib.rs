//! The object service: OSTs, bulk reads and writes.
