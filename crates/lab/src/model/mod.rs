//! `sheen lab model`: calibrates a model of a file system by runs of IOR, and shows how well it has
//! predicted later runs.

pub mod args;
mod calibrate;
mod print;
mod probes;
mod show;

pub use show::main;
