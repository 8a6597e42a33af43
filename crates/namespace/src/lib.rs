//! The MDT as a serial state machine: inodes, entries, permissions, layouts.
