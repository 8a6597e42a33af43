//! Parameters of Lustre's tuning guides, and those that name the servers of a mount.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::fake::{Mounted, with};
use sheen_client::ReadAheadWindow;
use sheen_wire::Errno;

fn values(m: &Mounted, param: &str) -> Vec<String> {
    m.params.get(param).expect("a parameter").into_iter().map(|found| found.value).collect()
}

/// Sets a parameter of one owner. Returns its error and the values that it accepts.
fn set(m: &Mounted, param: &str, value: &str) -> Result<(), (Errno, Option<String>)> {
    let mut results = m.params.set(param, value).expect("a parameter");
    results.pop().expect("a result").result.map_err(|e| (e.errno, e.accepts))
}

#[test]
fn read_ahead_parameters_set_the_window() {
    with(1, 65536, &[0], async |m| {
        let (total, per_file) = ("llite.*.max_read_ahead_mb", "llite.*.max_read_ahead_per_file_mb");
        assert!(m.params.get(total).is_err(), "there is no window");
        let bytes = Arc::new(AtomicU64::new(0));
        let cell = bytes.clone();
        let apply = move |bytes: u64| -> Result<(), Errno> {
            cell.store(bytes, Relaxed);
            Ok(())
        };
        m.client.tune_read_ahead(ReadAheadWindow::set(4, apply).expect("a window"));
        assert_eq!(bytes.load(Relaxed), 4 << 20);
        assert_eq!((values(&m, total), values(&m, per_file)), (vec!["256".to_owned()], vec!["4".to_owned()]));
        set(&m, per_file, "16M").expect("a size");
        assert_eq!((bytes.load(Relaxed), &values(&m, per_file)[0][..]), (16 << 20, "16"));
        set(&m, total, "0").expect("no readahead");
        assert_eq!(bytes.load(Relaxed), 0);
        let refused = Err((Errno::ERANGE, Some("0 to 4096".to_owned())));
        assert_eq!(set(&m, total, "100000"), refused);
        m.client.umount().await;
        assert!(m.params.get(total).is_err() && m.params.get(per_file).is_err());
    });
}

#[test]
fn checksum_type_accepts_only_the_type_in_use() {
    with(2, 65536, &[0], async |m| {
        assert_eq!(values(&m, "osc.*.checksum_type"), ["[crc32c] ", "[crc32c] "]);
        assert_eq!(values(&m, "mdc.*.checksum_type"), ["[crc32c] "]);
        assert_eq!(set(&m, "mdc.*.checksum_type", "crc32c"), Ok(()));
        let refused = Err((Errno::EINVAL, Some("crc32c".to_owned())));
        assert_eq!(set(&m, "osc.*.checksum_type", "adler"), refused);
    });
}

#[test]
fn conn_uuid_and_server_uuid_name_the_servers() {
    with(1, 65536, &[0], async |m| {
        m.net.rt().sleep(Duration::from_millis(50)).await;
        assert_eq!(values(&m, "osc.*.ost_conn_uuid"), ["0@lo"]);
        assert_eq!(values(&m, "mdc.*.mds_conn_uuid"), ["0@lo"]);
        assert_eq!(values(&m, "osc.*.ost_server_uuid"), ["sheen-OST0000_UUID\tFULL"]);
        assert_eq!(values(&m, "mdc.*.mds_server_uuid"), ["sheen-MDT0000_UUID\tFULL"]);
    });
}
