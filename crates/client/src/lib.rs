//! The client: llite, lov/osc, lmv/mdc.
