//! Parameters of an OST's quotas in Lustre's form: `osd-sheen.*.quota_slave.*`. An OST knows no
//! limits, only what the MDT allows it, so there are none of `limit_user` and the like.

use std::sync::Arc;

use sheen_params::{
    Param, Params,
    quotas::{IDS_MAX, UsageRow, accounting_text},
};
use sheen_wire::quota::{Id, Kind};

use crate::Ost;

/// Kinds with the words for them, in names and in titles.
const KINDS: [(Kind, &str, &str); 3] =
    [(Kind::User, "user", "usr"), (Kind::Group, "group", "grp"), (Kind::Project, "project", "prj")];

/// Registers the parameters below `dir`.
pub fn register(ost: &Arc<Ost>, params: &Params, dir: &str) {
    for (kind, name, short) in KINDS {
        let weak = Arc::downgrade(ost);
        let text = move || weak.upgrade().map(|ost| accounting(&ost, kind, short)).unwrap_or_default();
        params.register(&format!("{dir}.quota_slave.acct_{name}"), Param::text(text));
    }
    let weak = Arc::downgrade(ost);
    let text = move || weak.upgrade().map(|ost| info(&ost)).unwrap_or_default();
    params.register(&format!("{dir}.quota_slave.info"), Param::text(text));
}

/// Returns the use of the OST by users, groups or projects.
fn accounting(ost: &Ost, kind: Kind, short: &str) -> String {
    let (ids, _) = ost.store.accounting().uses(Id { kind, id: 0 }, IDS_MAX);
    let of_kind = ids.into_iter().take_while(|(id, _)| id.kind == kind);
    let row = |(id, used): (Id, sheen_wire::ost::QuotaUse)| {
        let kbytes = used.bytes.div_ceil(1024);
        UsageRow { id: id.id, inodes: used.objects, kbytes }
    };
    accounting_text(short, of_kind.map(row))
}

/// Returns whether the OST is connected to the MDT for its quotas, and has counted its objects.
fn info(ost: &Ost) -> String {
    let is_complete = ost.store.accounting().is_complete();
    let master = if ost.quota.exports.lock().is_empty() { "not setup yet" } else { "setup" };
    let state = format!("glb[1],slv[{}],reint[{}]", u8::from(is_complete), u8::from(!is_complete));
    format!(
        "target name:    {}\npool ID:        0\ntype:           dt\nquota enabled:  ugp\nconn to master: {master}\n\
         space acct:     ugp\nuser uptodate:  {state}\ngroup uptodate: {state}\nproject uptodate: {state}\n",
        ost.name
    )
}
