//! A node of a measurement: a server, by the name of one of its targets or by a NID.

use std::fmt;

use serde::Serialize;
use sheen_lnet::{Nid, NidName};

/// A node. The record shows its name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Node {
    name: String,
    #[serde(skip)]
    nids: Vec<NidName>,
}

impl Node {
    /// Returns the node that a user names with an option. `find` returns the addresses of a target,
    /// none if it is unknown.
    ///
    /// # Errors
    /// A message for the user.
    pub fn named(
        option: &str,
        name: &str,
        find: impl FnOnce(&str) -> Result<Vec<Nid>, String>,
    ) -> Result<Node, String> {
        let of_user = |e: &dyn fmt::Display| format!("{option} {name}: {e}");
        let nids = match name.parse::<NidName>() {
            Ok(nid) => vec![nid],
            Err(e) if name.contains('@') => return Err(of_user(&e)),
            Err(_) => find(name).map_err(|e| of_user(&e))?.into_iter().map(NidName::from).collect(),
        };
        if nids.is_empty() {
            let text = "is not a NID such as HOST@tcp, and no process of yours on this host knows a target of the name";
            return Err(of_user(&text));
        }
        Ok(Node { name: name.to_owned(), nids })
    }

    /// Returns the names of its addresses, in the order to try.
    pub fn nids(&self) -> &[NidName] {
        &self.nids
    }

    /// Whether the node has an address of another one.
    pub fn is_at(&self, other: &Node) -> bool {
        self.nids.iter().any(|nid| other.nids.contains(nid))
    }

    /// Whether it is the process of the tool.
    pub fn is_here(&self) -> bool {
        self.nids.contains(&NidName::Lo)
    }

    /// Returns its name, with its addresses if the name is that of a target.
    pub fn description(&self) -> String {
        let nids: Vec<String> = self.nids.iter().map(NidName::to_string).collect();
        if self.name.contains('@') { self.name.clone() } else { format!("{} at {}", self.name, nids.join(", ")) }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Result<Node, String> {
        Node::named("--to", name, |target| match target {
            "a-OST0000" => Ok(vec!["10.0.0.1@tcp".parse().unwrap(), "10.0.0.2:9@tcp".parse().unwrap()]),
            "twice" => Err("several".into()),
            _ => Ok(Vec::new()),
        })
    }

    #[test]
    fn node_is_named_by_a_target_or_a_nid() {
        let [target, nid, other] = ["a-OST0000", "10.0.0.2:9@tcp", "oss1@tcp"].map(|name| named(name).unwrap());
        assert_eq!((target.to_string(), target.nids().len()), ("a-OST0000".into(), 2));
        assert_eq!(target.description(), "a-OST0000 at 10.0.0.1@tcp, 10.0.0.2:9@tcp");
        assert_eq!(other.description(), "oss1@tcp");
        assert!(target.is_at(&nid) && nid.is_at(&target) && !other.is_at(&nid));
        assert!(named("0@lo").unwrap().is_here() && !other.is_here());
        assert_eq!(serde_json::to_value(&target).unwrap(), "a-OST0000");
    }

    #[test]
    fn unknown_node_is_refused_with_its_option() {
        for (name, message) in [
            ("a-OST0001", "--to a-OST0001: is not a NID such as HOST@tcp, and no process"),
            ("twice", "--to twice: several"),
            ("a b@tcp", "--to a b@tcp: 'a b@tcp' is not a NID"),
        ] {
            let refused = named(name).unwrap_err();
            assert!(refused.starts_with(message), "{refused}");
        }
    }
}
