//! The systems of the texts: those whose costs are known, and Titan, of which only BLAST is
//! modelled.

use serde::Serialize;

use crate::{predict::presets::PRESETS, reproduce::blast};

/// A system.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct System {
    /// Name on the command line.
    pub name: &'static str,
    /// Description.
    #[serde(skip)]
    pub what: &'static str,
    /// Facts from the text.
    pub stated: &'static str,
    /// Assumptions, where the text states nothing.
    pub assumed: &'static str,
}

const TITAN: System = System {
    name: blast::SYSTEM,
    what: "BLAST on Titan and Spider II, \"Evaluating Dynamic File Striping For Lustre\"",
    stated: "8 nodes: speedups of 1.22 to 1.26 over 4 stripes of 1 MiB; 16 to 512 nodes: more stripes take longer, \
             and three components less than 128 stripes",
    assumed: "nodes share the queries and read all of the database; reading takes 0.63 of the computing on 8 nodes with \
              4 MiB in a row of stripes, and half of that from 8 MiB; each node adds 2e-5 of it for each object",
};

/// Returns all systems.
pub fn systems() -> Vec<System> {
    let known = PRESETS.iter().map(|preset| System {
        name: preset.name,
        what: preset.what,
        stated: preset.stated,
        assumed: preset.assumed,
    });
    known.chain([TITAN]).collect()
}
