//! Virtual extended attributes for `lfs`; [`sheen_wire::control`] defines their formats.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use sheen_layout::{Layout, STRIPE_SIZE_DEFAULT, Spec};
use sheen_rt::join::join_all;
use sheen_wire::{
    Errno, Fid, FileKind, Result,
    control::{self, ImportInfo, ImportKind, MountInfo, TargetInfo},
    fid::ROOT,
    mds::{Reply, Request},
    mgs::{TargetKind, target_name},
};

use crate::{Caller, Client, mdc, osc::Osc};

/// Stripe count of a file without any setting, as in Lustre.
const STRIPE_COUNT_DEFAULT: i32 = 1;
/// Largest extended attribute that the kernel takes, in bytes.
pub(super) const XATTR_BYTES_MAX: usize = 65536;
/// Longest wait for a reply of the MGS.
const MGS_WAIT: Duration = Duration::from_secs(2);

impl Client {
    /// Returns the value of a `sheen.` attribute.
    ///
    /// # Errors
    /// ENODATA: there is none of that name. EINVAL: an invalid FID. EPERM: the names and paths of
    /// files are for the superuser alone, because they may lie in directories that other users may
    /// not search (Lustre requires CAP_DAC_READ_SEARCH). Any error of the MDT.
    pub(crate) async fn control(&self, who: &Caller, fid: Fid, name: &Bytes) -> Result<Bytes> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::ENODATA)?;
        if who.cred.uid != 0 && (name == control::PARENTS || name.starts_with(control::PATHS_PREFIX)) {
            return Err(Errno::EPERM);
        }
        match name {
            control::MOUNT => json(&self.mount_info().await),
            control::DF => json(&self.target_infos().await),
            control::POOLS => self.pools_said().await,
            control::CHECK => json(&self.import_infos().await),
            control::FID => Ok(fid.to_string().into()),
            control::MDT => Ok(Bytes::from_static(b"0")),
            control::GENERATION => self.generation(fid).await,
            control::PARENTS => match self.mdc.request(Request::Parents { fid }).reply().await? {
                Reply::Parents(parents) => Ok(control::encode_parents(&parents).into()),
                _ => Err(Errno::EPROTO),
            },
            name if name.starts_with(control::CHANGELOG_PREFIX) || control::is_wait(name.as_bytes()) => {
                let waits = control::is_wait(name.as_bytes());
                let prefix = if waits { control::CHANGELOG_WAIT_PREFIX } else { control::CHANGELOG_PREFIX };
                let asked = name.strip_prefix(prefix).and_then(|asked| asked.split_once('.'));
                let (mdt, start) = asked.ok_or(Errno::EINVAL)?;
                check_mdt(mdt)?;
                let start = start.parse().map_err(|_| Errno::EINVAL)?;
                Box::pin(self.changelog(who, start, waits)).await
            }
            _ => {
                let fid = name.strip_prefix(control::PATHS_PREFIX).ok_or(Errno::ENODATA)?;
                let fid = fid.parse().map_err(|_| Errno::EINVAL)?;
                match self.mdc.request_as(who, |cred| Request::Paths { cred, fid }).reply().await? {
                    Reply::Paths(paths) => Ok(control::encode_paths(&self.below_root(who, paths).await?).into()),
                    _ => Err(Errno::EPROTO),
                }
            }
        }
    }

    /// Sets a `sheen.` attribute.
    ///
    /// # Errors
    /// EPERM: it cannot be set. EINVAL: an invalid value. ENODEV: there is no such MDT. Any error
    /// of the MDT.
    pub(crate) async fn set_control(&self, who: &Caller, name: &Bytes, value: &Bytes) -> Result<()> {
        if name != control::CHANGELOG_CLEAR {
            return Err(Errno::EPERM);
        }
        let text = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
        let mut words = text.split(' ');
        let (Some(mdt), Some(user), Some(end), None) = (words.next(), words.next(), words.next(), words.next()) else {
            return Err(Errno::EINVAL);
        };
        check_mdt(mdt)?;
        let user = user.parse().map_err(|_| Errno::EINVAL)?;
        let end = end.parse().map_err(|_| Errno::EINVAL)?;
        let request = |cred| Request::ChangelogClear { cred, user, end };
        self.mdc.request_as(who, request).reply().await.and_then(mdc::done)
    }

    /// Returns those of these paths that lead through the directory that is mounted, from there on.
    async fn below_root(&self, who: &Caller, paths: Vec<Bytes>) -> Result<Vec<Bytes>> {
        let fid = self.root();
        if fid == ROOT {
            return Ok(paths);
        }
        let Reply::Paths(above) = self.mdc.request_as(who, |cred| Request::Paths { cred, fid }).reply().await? else {
            return Err(Errno::EPROTO);
        };
        let above = above.first().ok_or(Errno::ENOENT)?;
        if above.is_empty() {
            return Ok(paths); // the MDT returns paths from there
        }
        let below = |path: Bytes| match path.strip_prefix(&above[..])? {
            [] => Some(Bytes::new()),
            [b'/', rest @ ..] => Some(path.slice_ref(rest)),
            _ => None,
        };
        Ok(paths.into_iter().filter_map(below).collect())
    }

    async fn generation(&self, fid: Fid) -> Result<Bytes> {
        let Reply::Entry(entry) = self.mdc.request(Request::GetAttr { fid, layout_known: false }).reply().await? else {
            return Err(Errno::EPROTO);
        };
        let bytes = entry.layout.filter(|_| entry.attr.kind == FileKind::Regular).ok_or(Errno::ENODATA)?;
        Ok(Layout::decode(&bytes)?.generation().to_string().into())
    }

    async fn mount_info(&self) -> MountInfo {
        let spec = self.default_striping().await;
        MountInfo {
            fsname: self.fsname.clone(),
            instance: self.instance.clone(),
            client_uuid: self.uuid.clone(),
            mgs_nids: self.mgs_nids.iter().map(|nid| nid.to_string()).collect(),
            mountpoint: self.mountpoint.clone(),
            default_stripe_count: spec.count.map_or(STRIPE_COUNT_DEFAULT, |c| c.to_number()),
            default_stripe_size: spec.stripe_size.unwrap_or(STRIPE_SIZE_DEFAULT),
        }
    }

    /// Returns stripe count and stripe size of a file without settings: those of a plain default of
    /// the root directory, completed by the file system's defaults. A value is missing if the MDT
    /// does not tell it.
    async fn default_striping(&self) -> Spec {
        // From a subdirectory that is mounted the root may not be accessible.
        let of_root = if self.root() == ROOT { self.stored_spec(ROOT, b"lustre.lov").await } else { Spec::default() };
        if of_root.count.is_some() && of_root.stripe_size.is_some() {
            return of_root;
        }
        let rest = self.stored_spec(self.root(), b"lustre.lov.default").await;
        Spec { count: of_root.count.or(rest.count), stripe_size: of_root.stripe_size.or(rest.stripe_size), ..of_root }
    }

    /// Returns a plain layout in an extended attribute; an empty one if there is none.
    async fn stored_spec(&self, fid: Fid, name: &'static [u8]) -> Spec {
        let request = Request::GetXattr { cred: Caller::ROOT.cred, fid, name: Bytes::from_static(name) };
        match self.mdc.request(request).reply().await {
            Ok(Reply::Bytes(bytes)) => Spec::decode(&bytes).unwrap_or_default(),
            _ => Spec::default(),
        }
    }

    /// Returns the number of targets of a kind, including inactive ones.
    pub fn target_count(&self, kind: TargetKind) -> usize {
        match kind {
            TargetKind::Mdt => 1,
            TargetKind::Ost => self.lov.osts().len(),
        }
    }

    async fn target_infos(&self) -> Vec<TargetInfo> {
        let uuid = |kind, index| format!("{}_UUID", target_name(&self.fsname, kind, index));
        let statfs = self.statfs_mdt().await;
        let mut infos =
            vec![TargetInfo { kind: TargetKind::Mdt, index: 0, uuid: uuid(TargetKind::Mdt, 0), active: true, statfs }];
        let osts = self.lov.osts().into_iter().map(|ost| async move {
            let (index, active) = (ost.osc.index(), ost.osc.active());
            let statfs = if active { self.statfs_ost(index).await } else { Err(Errno::ESHUTDOWN) };
            TargetInfo { kind: TargetKind::Ost, index, uuid: uuid(TargetKind::Ost, index), active, statfs }
        });
        infos.extend(join_all(osts).await);
        infos
    }

    /// Returns the current pools; if the MGS does not answer, the last known ones.
    async fn pools_said(&self) -> Result<Bytes> {
        let answer = self.rt.timeout(MGS_WAIT, self.mgc.config(&self.fsname)).await;
        let pools = answer.ok().and_then(Result::ok).map_or_else(|| self.pools.heard(), |config| config.pools);
        let text = control::encode_pools(&pools);
        if text.len() > XATTR_BYTES_MAX { Err(Errno::E2BIG) } else { Ok(text.into()) }
    }

    async fn import_infos(&self) -> Vec<ImportInfo> {
        let info = |osc: &Osc| ImportInfo { kind: ImportKind::Ost, name: osc.name().to_owned(), state: osc.state() };
        let mut infos: Vec<ImportInfo> = self.lov.osts().iter().map(|ost| info(&ost.osc)).collect();
        infos.push(ImportInfo { kind: ImportKind::Mdt, name: self.mdc.name().to_owned(), state: self.mdc.state() });
        infos.push(ImportInfo { kind: ImportKind::Mgs, name: self.mgc_name(), state: self.check_mgs().await });
        infos
    }

    async fn check_mgs(&self) -> Result<()> {
        let answer = self.rt.timeout(MGS_WAIT, self.mgc.config(&self.fsname)).await;
        answer.unwrap_or(Err(Errno::ENOTCONN)).map(|_| ())
    }
}

/// Checks the index of an MDT.
fn check_mdt(index: &str) -> Result<()> {
    match index.parse::<u32>() {
        Ok(0) => Ok(()),
        Ok(_) => Err(Errno::ENODEV),
        Err(_) => Err(Errno::EINVAL),
    }
}

fn json<T: Serialize>(value: &T) -> Result<Bytes> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|_| Errno::EIO)
}
