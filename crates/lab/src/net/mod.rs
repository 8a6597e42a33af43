//! `sheen lab net` and `sheen lab wan`: requests that a server only answers, as LNET selftest sends
//! them, with any latency; and the model of the paper on file systems in wide area networks.
//!
//! The requests go from this process, or from a server, to the service `selftest` of a server. A
//! latency is injected by the sender: it delays each of their frames by the whole round trip.

pub mod args;
mod clients;
pub mod files;
mod load;
pub mod model;
pub mod node;
pub mod outcome;
pub mod plan;
mod print;
mod run;
mod show;

pub use show::main;
