//! The heartbeat file: who serves a directory.

use std::{fmt, io, path::Path};

use serde::{Deserialize, Serialize};
use sheen_rt::{Disk, OpenOptions, target_dir::protection::HEARTBEAT};

/// Size of the file: one sector, which a disk writes as a whole.
const BYTES: usize = 512;
/// Longest host name, in bytes (HOST_NAME_MAX of Linux).
const HOST_BYTES_MAX: usize = 64;
/// Attempts to read a file that another host is just writing.
const READS_MAX: u32 = 3;

/// A server, as others see it in messages.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Server {
    /// Host name; the rest of a longer one than 64 bytes is cut.
    pub host: String,
    /// Process id there; 0: unknown.
    pub pid: u32,
}

impl Server {
    /// A process of a host.
    pub fn new(host: &str, pid: u32) -> Server {
        Server { host: host.chars().filter(char::is_ascii_graphic).take(HOST_BYTES_MAX).collect(), pid }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => write!(f, "a process on {}", self.host),
            pid => write!(f, "process {pid} on {}", self.host),
        }
    }
}

/// Content of the heartbeat file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Random number of the owner's life.
    pub owner: u64,
    pub server: Server,
    /// Boot of the owner's host.
    pub boot: u64,
    /// Raised by each beat.
    pub beat: u64,
    /// When the owner had last found its own name before it wrote this, in nanoseconds since its
    /// host's boot.
    pub checked: u64,
    /// The owner stopped in order, and has written everything.
    pub stopped: bool,
}

impl Record {
    /// Reads the file. `None`: there is none.
    ///
    /// # Errors
    /// As the disk; `InvalidData` if it is not a heartbeat file.
    pub fn read(disk: &Disk, dir: &Path) -> io::Result<Option<Record>> {
        let mut reads = 0;
        loop {
            reads += 1;
            match disk.read(dir.join(HEARTBEAT)) {
                Ok(bytes) => match serde_json::from_slice(&bytes) {
                    Ok(record) => return Ok(Some(record)),
                    Err(_) if reads < READS_MAX => {}
                    Err(e) => return Err(e.into()),
                },
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes the file in place, durably. In place, because several hosts may write at a time: the
    /// last one wins.
    ///
    /// # Errors
    /// As the disk.
    pub fn write(&self, disk: &Disk, dir: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.resize(BYTES - 1, b' ');
        text.push(b'\n');
        let file =
            disk.open(dir.join(HEARTBEAT), OpenOptions { create: true, write: true, ..OpenOptions::default() })?;
        file.write_all_at(0, &text)?;
        file.sync_data_blocking()
    }
}
