//! Parameters that Lustre's tuning guides set: readahead, statahead, and the type of checksums.
//! Also the addresses and states of targets, which scripts read.
//!
//! Each of them has its effect. Lustre's parameters that could have none here are not registered;
//! docs/lctl.md lists them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use sheen_params::{Param, Params, Unit};
use sheen_rpc::Import;
use sheen_wire::{Errno, Protocol};

use crate::{
    Client,
    llite::{
        READ_AHEAD_MB_LIMIT, ReadAheadWindow, STATAHEAD_MAX_LIMIT, STATAHEAD_RUNNING_LIMIT, STATAHEAD_TIMEOUT_LIMIT,
    },
};

/// The only type of checksums of bulk data.
const CHECKSUM_TYPE: &str = "crc32c";

impl Client {
    /// Registers the parameters that set the readahead of the cache outside the client:
    /// `llite.*.max_read_ahead_mb` and `max_read_ahead_per_file_mb`. Permanent settings of them
    /// apply at once. The client unregisters them when it is unmounted.
    pub fn tune_read_ahead(&self, window: ReadAheadWindow) {
        let Some(params) = self.registered.lock().as_ref().map(|registered| registered.params.clone()) else { return };
        let window = Arc::new(window);
        let put =
            |name: &str, get: fn(&ReadAheadWindow) -> u64, set: fn(&ReadAheadWindow, u64) -> Result<(), Errno>| {
                let (read, write) = (window.clone(), window.clone());
                let param = Param::u64(0..=READ_AHEAD_MB_LIMIT, move || get(&read), move |mb| set(&write, mb));
                params.register(&format!("llite.{}-{}.{name}", self.fsname, self.instance), param.unit(Unit::Mib));
            };
        put("max_read_ahead_mb", ReadAheadWindow::max_mb, ReadAheadWindow::set_max_mb);
        put("max_read_ahead_per_file_mb", ReadAheadWindow::per_file_mb, ReadAheadWindow::set_per_file_mb);
    }
}

/// Registers the parameters of statahead, except `statahead_max`.
pub fn register_statahead(params: &Params, dir: &str, client: &Arc<Client>) {
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    put("statahead_min", number(client, 1, STATAHEAD_MAX_LIMIT, |c| &c.statahead.min));
    put("statahead_batch_max", number(client, 0, STATAHEAD_MAX_LIMIT, |c| &c.statahead.batch_max));
    put("statahead_running_max", number(client, 0, STATAHEAD_RUNNING_LIMIT, |c| &c.statahead.running_max));
    let timeout = number(client, 1, STATAHEAD_TIMEOUT_LIMIT, |c| &c.statahead.timeout);
    put("statahead_timeout", timeout.unit(Unit::Secs));
    let (get, set) = (Arc::downgrade(client), Arc::downgrade(client));
    let agl = Param::bool(
        move || get.upgrade().is_some_and(|c| c.statahead.fetches_sizes()),
        move |on| set.upgrade().map(|c| c.statahead.agl.store(on, Relaxed)).ok_or(Errno::ENODEV),
    );
    put("statahead_agl", agl);
}

/// Registers the parameters of the connection to a target. `kind`: `ost` or `mds`.
pub fn register_connection<T: Send + Sync + 'static, P: Protocol>(
    params: &Params,
    dir: &str,
    kind: &str,
    owner: &Arc<T>,
    import: fn(&T) -> &Arc<Import<P>>,
) {
    let put = |name: &str, param| params.register(&format!("{dir}.{name}"), param);
    put("checksum_type", checksum_type());
    let weak = Arc::downgrade(owner);
    let nid = move || weak.upgrade().and_then(|o| import(&o).current_nid()).map(|nid| nid.to_string());
    put(&format!("{kind}_conn_uuid"), Param::text(move || nid().unwrap_or_else(|| "<none>".to_owned())));
    let weak = Arc::downgrade(owner);
    let server = move || weak.upgrade().map_or_else(String::new, |o| server(import(&o)));
    put(&format!("{kind}_server_uuid"), Param::text(server));
}

/// Renders a target and the state of the connection to it, as Lustre does.
fn server<P: Protocol>(import: &Import<P>) -> String {
    let state = format!("{:?}", import.state()).to_uppercase();
    format!("{}_UUID\t{state}", import.target())
}

/// Creates the parameter of the checksums' type. In Lustre's form, the type in use is in brackets,
/// and a space follows each type.
fn checksum_type() -> Param {
    let set = |value: &str| if value.trim() == CHECKSUM_TYPE { Ok(()) } else { Err(Errno::EINVAL) };
    Param::text_rw(|| format!("[{CHECKSUM_TYPE}] "), set).accepts(CHECKSUM_TYPE)
}

/// Creates a parameter for a number of the client.
fn number(client: &Arc<Client>, min: u64, max: u64, cell: fn(&Client) -> &AtomicU64) -> Param {
    let (get, set) = (Arc::downgrade(client), Arc::downgrade(client));
    Param::u64(
        min..=max,
        move || get.upgrade().map_or(0, |c| cell(&c).load(Relaxed)),
        move |value| set.upgrade().map(|c| cell(&c).store(value, Relaxed)).ok_or(Errno::ENODEV),
    )
}
