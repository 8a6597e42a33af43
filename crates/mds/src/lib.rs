//! The metadata service: one MDT, its store, its commits, its object ids.
