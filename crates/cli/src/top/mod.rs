//! `sheen top`: which clients and operations wait for what, and the rates of targets and jobs.
//!
//! * `sample`: the values of all processes at one moment;
//! * `rates`: the difference between two samples;
//! * `render`: the table, and the document for programs;
//! * `terminal`: a screen that is redrawn, and the keys.

mod rates;
mod render;
mod sample;
mod terminal;

pub use render::{Report, fitted};
pub use sample::Sample;
pub use terminal::{Screen, keys};
