//! The values of parameters that show nodemaps: `mgs.MGS.nodemaps` for `lctl`, and `nodemap.NAME.*`
//! with Lustre's names and formats.

use sheen_wire::nodemap::{DEFAULT, Nodemap, Nodemaps};

use super::{IdType, Property};

/// Returns the text of a nodemap's parameter.
pub type ShowText = fn(&Nodemap) -> String;

/// The parameters `nodemap.NAME.*` that show text. [`Property::param`] names the others.
pub const TEXTS: [(&str, ShowText); 3] = [("fileset", fileset), ("idmap", idmap), ("ranges", ranges)];

impl Property {
    /// Returns the name of the parameter `nodemap.NAME.*` that shows it.
    pub fn param(self) -> &'static str {
        match self {
            Property::Admin => "admin_nodemap",
            Property::Trusted => "trusted_nodemap",
            other => other.name(),
        }
    }
}

/// Returns the nodemaps as one line of JSON.
pub fn render(all: &Nodemaps) -> String {
    // Plain data always serializes.
    serde_json::to_string(all).unwrap_or_default()
}

/// Parses what [`render`] wrote. `None`: the text is something else.
pub fn parse(text: &str) -> Option<Nodemaps> {
    serde_json::from_str(text).ok()
}

/// Returns the nodemap of this name, also [`DEFAULT`] if it is not stored.
pub fn get(all: &Nodemaps, name: &str) -> Option<Nodemap> {
    all.get(name).cloned().or_else(|| (name == DEFAULT).then(|| Nodemap::new(DEFAULT)))
}

/// Returns the names of all nodemaps, sorted, also [`DEFAULT`] if it is not stored.
pub fn names(all: &Nodemaps) -> Vec<&str> {
    let mut names: Vec<&str> = all.maps.iter().map(|map| map.name.as_str()).collect();
    if let Err(at) = names.binary_search(&DEFAULT) {
        names.insert(at, DEFAULT);
    }
    names
}

/// Returns the names and values of all parameters of a nodemap, sorted by name.
pub fn params(map: &Nodemap) -> Vec<(&'static str, String)> {
    let numbers = Property::ALL.into_iter().map(|property| (property.param(), property.get(map).to_string()));
    let mut all: Vec<_> = numbers.chain(TEXTS.into_iter().map(|(param, text)| (param, text(map)))).collect();
    all.sort();
    all
}

fn fileset(map: &Nodemap) -> String {
    map.fileset.clone()
}

fn ranges(map: &Nodemap) -> String {
    list(map.ranges.iter().map(ToString::to_string))
}

fn idmap(map: &Nodemap) -> String {
    list(ids(IdType::Uid, &map.uids).chain(ids(IdType::Gid, &map.gids)))
}

fn ids(id_type: IdType, pairs: &[(u32, u32)]) -> impl Iterator<Item = String> {
    let name = id_type.name();
    pairs.iter().map(move |(client, fs)| format!("{{ idtype: {name}, client_id: {client}, fs_id: {fs} }}"))
}

/// Returns a list in Lustre's form: brackets around lines with an item each.
fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| format!(" {item}")).collect();
    format!("[\n{}\n]\n", items.join(",\n"))
}
