//! State of the connection to a target.

use sheen_rpc::{Import, ImportState};
use sheen_wire::{Errno, Protocol, Result};

/// Checks whether an import can carry requests. An import that was never used can.
pub fn import_state<P: Protocol>(import: &Import<P>) -> Result<()> {
    match import.state() {
        ImportState::New | ImportState::Full => Ok(()),
        ImportState::Closed => Err(Errno::ESHUTDOWN),
        _ => Err(Errno::ENOTCONN),
    }
}
