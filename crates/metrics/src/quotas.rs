//! Points from the texts of quotas, with the labels of lustrefs-exporter: one for each id.

use sheen_params::{TypedParam, quotas::field_of_ids};

use crate::point::{LabelSet, Point, add_place, labels_of, with};
use crate::table::Component;

/// The pool of limits within all targets, in the name of a parameter.
const NO_POOL: &str = "0x0";

/// Returns the values of a field. The name of the parameter has the kind of the ids, and the pool.
pub fn points(text: &str, field: &str, param: &TypedParam, component: Component) -> Vec<Point> {
    let parts: Vec<&str> = param.name.split('.').collect();
    let [.., scope, kind] = parts[..] else { return Vec::new() };
    let accounting = match kind {
        "glb-usr" | "acct_user" => "user",
        "glb-grp" | "acct_group" => "group",
        _ => "project",
    };
    let mut labels = labels_of(&param.labels, component);
    if component == Component::Qmt {
        add_place(&mut labels, &param.labels, component);
        labels = with_scope(&labels, scope);
    }
    let labels = with(&labels, "accounting", accounting);
    let point = |(id, number): (u32, u64)| Point::number(with(&labels, "id", &id.to_string()), number);
    field_of_ids(text, field).map(point).collect()
}

/// Adds the resource that is limited (`dt`: space, `md`: files), and the pool.
fn with_scope(labels: &LabelSet, scope: &str) -> LabelSet {
    let (manager, pool) = scope.split_once('-').unwrap_or((scope, NO_POOL));
    let pool = if pool == NO_POOL { "" } else { pool };
    with(&with(labels, "manager", manager), "pool", pool)
}
