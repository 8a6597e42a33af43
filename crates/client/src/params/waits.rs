//! `llite.*.waits`: the operations of a mount that wait now.

use sheen_params::Wait;

use crate::{Client, osc::awaited_lock};

/// Returns the operations that wait for the MDT, for its data service, or for an OST.
pub fn waits(client: &Client) -> Vec<Wait> {
    // The MDT answers requests for file locks at once. The wait that follows is registered.
    let of_mdt = client.mdc.import().waiting(|_| None);
    let of_osts = client.lov.all().into_iter().flat_map(|ost| ost.osc.import().waiting(awaited_lock));
    of_mdt.into_iter().chain(of_osts).collect()
}
