//! The systems of the texts: those whose costs are known, and two others. Of Titan, BLAST alone is
//! modelled. Of the link from Dresden to Freiberg, the network and the round trips are.

use serde::Serialize;

use crate::{
    predict::presets::PRESETS,
    reproduce::{blast, dresden},
};

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

const DRESDEN: System = System {
    name: dresden::SYSTEM,
    what: "the link from Dresden to Freiberg, \"HPC File Systems in Wide Area Networks\"",
    stated: "10 Gb/s of each server, 100 Gb/s of the link; round trips of 0.72, 2.17 and 4.14 ms over 60, 200 and \
             400 km; RPCs of at most 1 MiB; equation 4 with k = 2.27 and an error below 15 %",
    assumed: "one RPC of 4 KiB takes one round trip (b0 = 1.8 MiB/s); a client has 8 RPCs in flight, Lustre's default; \
              an OST writes a sixteenth of the link's rate (745 MiB/s), for 16 streams were as fast as one; open and \
              close are a request each; each further process delays an open by the same part of any round trip",
};

/// Returns all systems.
pub fn systems() -> Vec<System> {
    let known = PRESETS.iter().map(|preset| System {
        name: preset.name,
        what: preset.what,
        stated: preset.stated,
        assumed: preset.assumed,
    });
    known.chain([TITAN, DRESDEN]).collect()
}
