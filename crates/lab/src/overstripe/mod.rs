//! `sheen lab overstripe`: a file that several nodes write in turn, with more and more stripes on
//! an OST, as in "Exploring Lustre Overstriping" (Fig. 9 to 18).
//!
//! Each measurement is a run of IOR. The counters of the OSTs explain it. Without `--mounts`, the
//! tool sets up a file system of its own. With `--simulate`, nodes and disks exist in virtual time
//! only.

pub mod args;
mod locks;
mod outcome;
mod plan;
mod print;
mod run;
mod show;
mod simulated;
mod system;

pub use show::main;
