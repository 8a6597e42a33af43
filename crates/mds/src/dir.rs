//! The directory of an MDT: its lock, its identity, and its store.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sheen_namespace::{Namespace, StoreError};
use sheen_rt::{
    Disk, Rt,
    target_dir::{DirError, KEYS, LOCK, protection, sync_names},
};
use sheen_wire::Time;
use sheen_wire::mgs::{TargetKind, target_name};
use tracing::{info, warn};

use crate::config::MdtConfig;
use crate::error::MdtError;
use crate::identity::{FORMAT, Identity, IdentityError};
use crate::state::reserve::{RESERVE, Reserve};
use crate::store::{self, RedbStore};

/// File that says which MDT the directory holds.
pub const IDENTITY: &str = "identity";
/// File of the store.
pub(crate) const STORE: &str = "store.redb";

/// Subdirectory that the MDT's data service (DoM) uses.
pub const DATA_DIR: &str = "dom";

/// The content of an MDT's directory.
pub(crate) struct Opened {
    pub ns: Namespace<RedbStore>,
    pub store: Arc<RedbStore>,
    pub reserve: Reserve,
}

/// Checks the identity of the directory and opens the store. Formats a new directory. Returns the
/// uuid as well.
pub(crate) async fn open(rt: &Rt, config: &MdtConfig) -> Result<(String, Opened), MdtError> {
    let (disk, now, random) = (rt.disk(), rt.wall(), rt.random_u64());
    let mut secret = [0; 24];
    rt.fill_random(&mut secret);
    let [uuid @ .., _, _, _, _, _, _, _, _] = secret;
    let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, seed @ ..] = secret;
    let opened = {
        let (disk, config) = (disk.clone(), config.clone());
        rt.run_blocking(move || open_store(&disk, &config, u64::from_le_bytes(seed), now, random))
    };
    let (known, opened) = opened.await?;
    let uuid = match known {
        Some(identity) => renew_identity(&disk, config, identity)?,
        None => {
            // The identity comes last, after the store's name is durable: a directory with an
            // identity always has a store.
            sync_names(&disk, &config.dir).await?;
            format_identity(&disk, config, &uuid)?
        }
    };
    Ok((uuid, opened))
}

/// Opens the store, the namespace in it, and the reserve. Returns the identity that the directory
/// held. Blocks: repairing or compacting a store takes a while.
fn open_store(
    disk: &Disk,
    config: &MdtConfig,
    hash_seed: u64,
    now: Time,
    random: u64,
) -> Result<(Option<Identity>, Opened), MdtError> {
    let known = identify(disk, config)?;
    let path = config.dir.join(STORE);
    check_store(disk, &path, known.is_some())?;
    let failed = |error: StoreError| MdtError::of_store(path.clone(), error);
    let store = Arc::new(RedbStore::open(disk, &path, config.store_cache_bytes).map_err(failed)?);
    let settings = sheen_namespace::Config {
        mdt_index: config.index,
        was_formatted: known.is_some(),
        hash_seed,
        cache_bytes_max: config.cache_bytes,
        root_uid: config.root_uid,
        root_gid: config.root_gid,
        root_layout: config.root_layout.clone(),
        keep_replaced_ms: config.keep_replaced_ms,
        ..sheen_namespace::Config::default()
    };
    let ns = Namespace::open(store.clone(), settings, now, random).map_err(failed)?;
    let io = |error| MdtError::from(DirError::Io { path: config.dir.clone(), error });
    let reserve = Reserve::open(disk, &config.dir, ns.files()).map_err(io)?;
    if known.is_some() && reserve.is_short() {
        info!("the disk of {} is full: compacting {}", config.dir.display(), path.display());
        match store.compact() {
            Err(e) if e.is_damage() => return Err(failed(e)),
            Err(e) => warn!("cannot compact {}: {e}", path.display()),
            Ok(()) => {}
        }
        reserve.update(&disk.statvfs(&config.dir).map_err(io)?, ns.files());
    }
    Ok((known, Opened { ns, store, reserve }))
}

/// Refuses a formatted directory whose store is lost. A new store would show no files, and would
/// allocate ids that objects of files already have. Empties a store file that an interrupted format
/// left.
pub(crate) fn check_store(disk: &Disk, path: &Path, was_formatted: bool) -> Result<(), MdtError> {
    let io = |error| MdtError::from(DirError::Io { path: path.into(), error });
    match disk.metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && was_formatted => Err(MdtError::StoreMissing(path.into())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(io(e)),
        Ok(_) if !was_formatted => store::discard_unfinished(disk, path).map_err(io),
        Ok(found) if found.len == 0 => Err(MdtError::StoreEmpty(path.into())),
        Ok(_) => Ok(()),
    }
}

/// Returns the identity of the directory; `None` if it is empty or was left half formatted.
fn identify(disk: &Disk, config: &MdtConfig) -> Result<Option<Identity>, MdtError> {
    let path = config.dir.join(IDENTITY);
    let bytes = match disk.read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let entries =
                disk.read_dir(&config.dir).map_err(|error| DirError::Io { path: config.dir.clone(), error })?;
            // `dom` counts as foreign: a new MDT gives its objects the same names as the old MDT
            // did.
            let own = |name: &str| {
                matches!(name, LOCK | KEYS | STORE | RESERVE)
                    || name.starts_with('.')
                    || protection::FILES.contains(&name)
            };
            let foreign = entries.iter().any(|e| !own(&e.name.to_string_lossy()));
            return if foreign { Err(MdtError::Foreign(config.dir.clone())) } else { Ok(None) };
        }
        Err(error) => return Err(DirError::Io { path, error }.into()),
    };
    let refuse = |error| MdtError::Identity { path: config.dir.clone(), error };
    let found = Identity::parse(&bytes).map_err(refuse)?;
    if (&found.fsname, found.index) != (&config.fsname, config.index) {
        let found = target_name(&found.fsname, TargetKind::Mdt, found.index);
        let wanted = target_name(&config.fsname, TargetKind::Mdt, config.index);
        return Err(refuse(IdentityError::Other { found, wanted }));
    }
    Ok(Some(found))
}

fn format_identity(disk: &Disk, config: &MdtConfig, random: &[u8; 16]) -> Result<String, MdtError> {
    let hex = |range: std::ops::Range<usize>| random[range].iter().map(|b| format!("{b:02x}")).collect::<String>();
    let uuid = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-");
    let identity = Identity { format: FORMAT, fsname: config.fsname.clone(), index: config.index, uuid };
    write_identity(disk, config, &identity)?;
    info!("formatted {} as {}", config.dir.display(), target_name(&config.fsname, TargetKind::Mdt, config.index));
    Ok(identity.uuid)
}

/// Raises the format of a directory that an earlier release wrote. The store's format was raised
/// before, so a directory of the present format always has a store of that format.
fn renew_identity(disk: &Disk, config: &MdtConfig, found: Identity) -> Result<String, MdtError> {
    if found.format < FORMAT {
        write_identity(disk, config, &Identity { format: FORMAT, ..found.clone() })?;
        let (dir, was) = (config.dir.display(), found.format);
        info!("raised the format of {dir} from {was} to {FORMAT}; earlier releases refuse it from now on");
    }
    Ok(found.uuid)
}

fn write_identity(disk: &Disk, config: &MdtConfig, identity: &Identity) -> Result<(), MdtError> {
    let path = config.dir.join(IDENTITY);
    disk.write_atomic(&path, identity.to_string().as_bytes()).map_err(|error| DirError::Io { path, error }.into())
}
