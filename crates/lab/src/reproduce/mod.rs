//! `sheen lab reproduce`: the rates that texts about published systems state, beside those of the
//! models of these systems ([`crate::predict::presets`]). Also BLAST on Titan, with a model of its
//! own, and the link from Dresden to Freiberg, with the model of `sheen lab wan`.
//!
//! Each value of a model has a basis: costs that were chosen by it, other values, or a
//! formula that the text itself states ([`point::Basis`]). With `--simulate`, the code of Sheen
//! also runs the jobs on simulated machines.

pub mod args;
mod blast;
mod dresden;
mod es400;
mod point;
mod points;
mod show;
mod simulate;
mod systems;

pub use show::main;
