//! `sheen lab reproduce`: the rates that texts about published systems state, beside those of the
//! models of these systems ([`crate::predict::presets`]). Also BLAST on Titan, with a model of its
//! own.

pub mod args;
mod blast;
mod points;
mod show;
mod systems;

pub use show::main;
