//! Machines of published systems, for simulations ([`sheen_simulation`]). All nodes of a simulation
//! run the code of Sheen, and not that of Lustre.

use serde::Serialize;
use sheen_simulation::{DiskSpec, Hardware};

/// Link of a client in MiB/s: 4 GB/s, in the middle of the 3 to 5 GB/s that the paper states.
const CLIENT_LINK: u64 = 3815;
/// Time of a message in microseconds, with the software at both ends.
const DELAY_US: u64 = 20;

/// The machines of a system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Machines {
    /// Name on the command line.
    pub name: &'static str,
    /// Facts from the text.
    pub stated: &'static str,
    /// Assumptions, where the text states nothing.
    pub assumed: &'static str,
    #[serde(skip)]
    disk: DiskSpec,
}

/// The systems of "Exploring Lustre Overstriping".
pub const MACHINES: [Machines; 2] = [
    Machines {
        name: "flash",
        stated: "an OST of 11.7 GB/s, of which an object reaches 7 GB/s; a client of 3 to 5 GB/s",
        assumed: "a message takes 20 µs; a write is answered when the disk has it, after 80 µs",
        disk: DiskSpec { write: 11_158, read: 11_158, object: 6_676, latency_us: 80, seek_us: 0, cache: 0 },
    },
    Machines {
        name: "l300n",
        stated: "an OST of 6 GB/s, which one object reaches; a client of 3 to 5 GB/s",
        assumed: "a message takes 20 µs; a write is answered when the disks have it, after 1 ms",
        disk: DiskSpec { write: 5_722, read: 5_722, object: 6_676, latency_us: 1_000, seek_us: 0, cache: 0 },
    },
];

/// Returns the machines of this name, if they are modelled.
pub fn machines(name: &str) -> Option<Machines> {
    MACHINES.into_iter().find(|machines| machines.name.eq_ignore_ascii_case(name))
}

impl Machines {
    /// Returns the modelled hardware, with this many OSTs.
    pub fn hardware(&self, osts: u32) -> Hardware {
        let (client_link, server_link) = (CLIENT_LINK, 0);
        Hardware { osts, disk: self.disk, client_link, server_link, delay_us: DELAY_US }
    }
}
