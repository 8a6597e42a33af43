//! `sheen lab reproduce`: the rates that texts about published systems state, beside those of the
//! models of these systems ([`crate::predict::presets`]).

pub mod args;
mod points;
mod show;

pub use show::main;
