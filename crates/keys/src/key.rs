//! A key, and the text of its file.

use std::{
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};
use sheen_wire::{
    auth::{Claim, ClusterId, GROUPS_MAX, Issued, IssuedKey, KeyId, Role, User},
    frame,
    nodemap::is_name,
};

/// Bytes of a secret.
const SECRET_BYTES: usize = 32;

/// First lines of a key file.
const HEADING: &str = "\
# A key of a Sheen file system. A process that knows it can read and change all files.
# Copy it only to hosts that you trust, with mode 0600.
";
/// The same for a key of a host.
const HOST_HEADING: &str = "\
# A host's key of a Sheen file system. A process that knows it can act as any user that the nodemap
# of the host permits, and as root without one.
";
/// The same for a key of a user.
const USER_HEADING: &str = "\
# A user's key of a Sheen file system. A process that knows it can act as this user.
";

/// Distinguishes the secrets of issued keys from others that are derived of the same secret.
const ISSUED: &[u8] = b"sheen issued key 1";
/// Distinguishes the ids of keys that clients have applied for.
const APPLICANT: &[u8] = b"sheen applicant 1";

/// The secret of a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; SECRET_BYTES]);

/// A secret is not printed.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The servers that share it.
    pub cluster: ClusterId,
    /// Its id.
    pub id: KeyId,
    /// Time at which it was made, in seconds since 1970. Of several keys with the same authority, a
    /// client uses the newest.
    pub created: i64,
    /// Its secret.
    pub secret: Secret,
    /// For a key that was issued by another key of the cluster: that one, and its authority.
    pub issue: Option<Issue>,
}

/// A key without its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The servers that share it.
    pub cluster: ClusterId,
    /// Its id.
    pub id: KeyId,
    /// Its authority.
    pub role: Role,
    /// Time at which it was made, in seconds since 1970.
    pub created: i64,
    /// Address of the client that has applied for it, if one has.
    pub applicant: Option<IpAddr>,
}

/// The origin of an issued key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issue {
    /// The key of the cluster that has issued it.
    pub by: KeyId,
    /// Its authority.
    pub role: Role,
}

/// Why a key cannot be read, stored or found.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The text is not that of a key file.
    #[error("{path} is not a key file: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The fault in it.
        reason: String,
    },
    /// Others can read the file.
    #[error("{path} can be read by others (mode {mode:04o}): make a new key, or run `chmod 600 {path}`")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file belongs to another user, who knows the secret.
    #[error("{path} belongs to user {owner}: copy it with `sheen key add`, or run `chown` on it")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The user's id.
        owner: u32,
    },
    /// A directory of keys has keys of several clusters.
    #[error("{0} has keys of several clusters: remove those that are not this file system's")]
    SeveralClusters(PathBuf),
    /// The server belongs to another cluster than this process.
    #[error(
        "the server belongs to cluster {theirs}, and this process to cluster {own}; check the address; if the file \
         system has a new key, restart this process, and for a server remove the directory `keys` in its own first"
    )]
    OtherCluster {
        /// The server's cluster.
        theirs: ClusterId,
        /// The cluster of this process.
        own: ClusterId,
    },
    /// The key cannot issue such a key.
    #[error("key {0} cannot issue this key: only a key of the cluster itself can, with at most {GROUPS_MAX} groups")]
    CannotIssue(KeyId),
    /// A server needs a key of the cluster itself.
    #[error("key {0} is not for servers; start the server with a key of the cluster itself")]
    NotForServers(KeyId),
    /// The key was withdrawn.
    #[error("key {0} was withdrawn")]
    Withdrawn(KeyId),
    /// A server has no key yet.
    #[error("this server has no key yet")]
    NoKeyYet,
    /// A directory for keys of this user is not known.
    #[error("no directory for keys: set SHEEN_KEY_DIR or HOME")]
    NoDirectory,
}

/// The content of a key file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    cluster: String,
    id: String,
    created: i64,
    secret: Option<String>,
    by: Option<String>,
    role: Option<String>,
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Option<Vec<u32>>,
    nodemap: Option<String>,
    applicant: Option<IpAddr>,
}

impl Text {
    fn issue(&self) -> Result<Option<Issue>, String> {
        let Text { by, role, uid, gid, groups, nodemap, .. } = self;
        if nodemap.as_deref().is_some_and(|name| !is_name(name)) {
            return Err("nodemap: not a name of one".to_owned());
        }
        let role = match (role.as_deref(), uid, gid, groups) {
            (None, None, None, None) if by.is_none() && nodemap.is_none() => return Ok(None),
            (Some("host"), None, None, None) => Role::Host(nodemap.clone()),
            (Some("user"), Some(uid @ 1..), Some(gid), Some(groups)) if groups.len() <= GROUPS_MAX => {
                Role::User(User { uid: *uid, gid: *gid, groups: groups.clone(), nodemap: nodemap.clone() })
            }
            _ => return Err("role: expected host without, or user with uid, gid and groups".to_owned()),
        };
        let by = by.as_deref().ok_or("by: missing")?.parse().map_err(|e| format!("by: {e}"))?;
        Ok(Some(Issue { by, role }))
    }
}

impl KeyError {
    /// Returns whether it says that this process may not list `dir`.
    pub fn is_denied_directory(&self, dir: &Path) -> bool {
        matches!(self, KeyError::Io { path, error } if path == dir && error.kind() == io::ErrorKind::PermissionDenied)
    }
}

impl Key {
    /// Makes a key of `random` bytes: for its id and its secret.
    pub fn new(cluster: ClusterId, id: u64, secret: [u8; SECRET_BYTES], created: i64) -> Key {
        Key { cluster, id: KeyId(id), created, secret: Secret(secret), issue: None }
    }

    /// Issues a key with less authority. All servers that know this one can check it.
    ///
    /// # Errors
    /// This key was issued itself, or the role has too many groups or an invalid nodemap.
    pub fn issue(&self, issued: Issued, created: i64) -> Result<Key, KeyError> {
        let Issued { id, role } = &issued;
        let groups = if let Role::User(user) = role { user.groups.len() } else { 0 };
        let is_named = role.nodemap().is_none_or(is_name);
        if self.issue.is_some() || *role == Role::Server || groups > GROUPS_MAX || !is_named {
            return Err(KeyError::CannotIssue(self.id));
        }
        let claim = frame::to_body(&issued).map_err(|_| KeyError::CannotIssue(self.id))?;
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.secret.0));
        context.update(ISSUED);
        context.update(&claim);
        let secret = context.sign().as_ref().try_into().map_err(|_| KeyError::CannotIssue(self.id))?;
        let issue = Some(Issue { by: self.id, role: role.clone() });
        Ok(Key { cluster: self.cluster, id: *id, created, secret: Secret(secret), issue })
    }

    /// Issues the key of a client that has applied for one. The key is the same each time: it has
    /// the same id for the same role and host. `host`: the client's, for a host's key.
    ///
    /// # Errors
    /// As [`Key::issue`].
    pub fn issue_to_applicant(&self, role: Role, host: IpAddr) -> Result<Key, KeyError> {
        let host = Some(host.to_canonical()).filter(|_| matches!(role, Role::Host(_)));
        let applicant = frame::to_body(&(&role, host)).map_err(|_| KeyError::CannotIssue(self.id))?;
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.secret.0));
        context.update(APPLICANT);
        context.update(&applicant);
        let tag = context.sign();
        let id = tag.as_ref().first_chunk().ok_or(KeyError::CannotIssue(self.id))?;
        self.issue(Issued { id: KeyId(u64::from_le_bytes(*id)), role }, self.created)
    }

    /// Returns an issued key as its server sends it. `None`: it was not issued.
    pub fn to_issued(&self) -> Option<IssuedKey> {
        let issued = self.claim().issued?;
        Some(IssuedKey { by: self.root(), issued, created: self.created, secret: self.secret.0 })
    }

    /// Returns a key that a server of this cluster has sent.
    pub fn from_issued(cluster: ClusterId, key: IssuedKey) -> Key {
        let IssuedKey { by, issued: Issued { id, role }, created, secret } = key;
        Key { cluster, id, created, secret: Secret(secret), issue: Some(Issue { by, role }) }
    }

    /// Returns the key of the cluster that servers need to know to check this one.
    pub fn root(&self) -> KeyId {
        self.issue.as_ref().map_or(self.id, |issue| issue.by)
    }

    /// Returns its authority.
    pub fn role(&self) -> &Role {
        self.issue.as_ref().map_or(&Role::Server, |issue| &issue.role)
    }

    /// Returns the claim of a client with this key.
    pub fn claim(&self) -> Claim {
        let issued = self.issue.as_ref().map(|issue| Issued { id: self.id, role: issue.role.clone() });
        Claim { key: self.root(), issued }
    }

    /// Returns the name of its file.
    pub fn file_name(&self) -> String {
        format!("{}-{}.key", self.cluster, self.id)
    }

    /// Returns the key without its secret.
    pub fn record(&self) -> Record {
        let Key { cluster, id, created, .. } = self;
        Record { cluster: *cluster, id: *id, role: self.role().clone(), created: *created, applicant: None }
    }

    /// Returns the text of its file.
    pub fn to_text(&self) -> String {
        let secret: String = self.secret.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}secret = \"{secret}\"\n", self.to_record_text())
    }

    /// Returns the text of its file without the secret.
    pub(crate) fn to_record_text(&self) -> String {
        let Key { cluster, id, created, issue, .. } = self;
        let (heading, mut more) = match issue {
            None => (HEADING, String::new()),
            Some(Issue { by, role: Role::User(User { uid, gid, groups, .. }) }) => (
                USER_HEADING,
                format!("by = \"{by}\"\nrole = \"user\"\nuid = {uid}\ngid = {gid}\ngroups = {groups:?}\n"),
            ),
            Some(Issue { by, .. }) => (HOST_HEADING, format!("by = \"{by}\"\nrole = \"host\"\n")),
        };
        if let Some(nodemap) = self.role().nodemap() {
            more += &format!("nodemap = \"{nodemap}\"\n");
        }
        format!("{heading}cluster = \"{cluster}\"\nid = \"{id}\"\ncreated = {created}\n{more}")
    }

    /// Parses the text of several key files behind each other.
    ///
    /// # Errors
    /// As [`Key::parse`]. There is none.
    pub fn parse_all(text: &str) -> Result<Vec<Key>, String> {
        let begins_line = |at: &usize| text[..*at].is_empty() || text[..*at].ends_with('\n');
        let mut starts: Vec<usize> = text.match_indices("cluster").map(|(at, _)| at).filter(begins_line).collect();
        // Comments before the first one belong to it.
        starts.first_mut().into_iter().for_each(|first| *first = 0);
        starts.push(text.len());
        if starts.len() < 2 {
            starts.insert(0, 0);
        }
        starts.windows(2).map(|ends| Key::parse(&text[ends[0]..ends[1]])).collect()
    }

    /// Parses the text of a key file. The error says what is wrong, without the text.
    pub fn parse(text: &str) -> Result<Key, String> {
        // The message of the parser, not its excerpt: that could contain the secret.
        let text: Text = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        let issue = text.issue()?;
        Ok(Key {
            cluster: text.cluster.parse().map_err(|e| format!("cluster: {e}"))?,
            id: text.id.parse().map_err(|e| format!("id: {e}"))?,
            created: text.created,
            secret: Secret(
                text.secret.as_deref().and_then(parse_secret).ok_or("secret: expected 64 hexadecimal digits")?,
            ),
            issue,
        })
    }
}

impl Record {
    /// Parses the text of a key file without a secret.
    pub(crate) fn parse(text: &str) -> Result<Record, String> {
        let text: Text = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        Ok(Record {
            cluster: text.cluster.parse().map_err(|e| format!("cluster: {e}"))?,
            id: text.id.parse().map_err(|e| format!("id: {e}"))?,
            role: text.issue()?.map_or(Role::Server, |issue| issue.role),
            created: text.created,
            applicant: text.applicant,
        })
    }

    /// Returns whether a client has applied for it, and was of the same user, or for a host's key
    /// on the same host, as the client of another key.
    pub(crate) fn is_same_applicant(&self, key: &Key, host: IpAddr) -> bool {
        match (self.applicant, &self.role, key.role()) {
            (Some(_), Role::User(one), Role::User(other)) => one.uid == other.uid,
            (Some(applicant), Role::Host(_), Role::Host(_)) => applicant == host.to_canonical(),
            _ => false,
        }
    }
}

fn parse_secret(text: &str) -> Option<[u8; SECRET_BYTES]> {
    if text.len() != 2 * SECRET_BYTES || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut secret = [0; SECRET_BYTES];
    for (byte, digits) in secret.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new(ClusterId(0xc0), 0x1d, std::array::from_fn(|i| i as u8), 1_700_000_000)
    }

    #[test]
    fn key_file_round_trips() {
        assert_eq!(Key::parse(&key().to_text()), Ok(key()));
        assert_eq!(key().file_name(), "00000000000000c0-000000000000001d.key");
    }

    fn user() -> Role {
        Role::User(User { uid: 1000, gid: 100, groups: vec![4, 27], nodemap: Some("lab_1".to_owned()) })
    }

    #[test]
    fn issued_keys_round_trip_and_differ_in_their_secrets() {
        let issue = |id, role| key().issue(Issued { id: KeyId(id), role }, 1_700_000_009).unwrap();
        let named = |name: &str| Role::Host(Some(name.to_owned()));
        let keys = [issue(1, user()), issue(2, user()), issue(1, Role::Host(None)), issue(1, named("a"))];
        for one in &keys {
            assert_eq!(Key::parse(&one.to_text()).as_ref(), Ok(one));
            assert_eq!(one.root(), key().id);
            let Claim { key: root, issued } = one.claim();
            let again = key().issue(issued.unwrap(), one.created).unwrap();
            assert_eq!((root, again), (key().id, one.clone()), "the server's view");
            assert_eq!(keys.iter().filter(|other| other.secret == one.secret).count(), 1);
            assert!(one.issue(Issued { id: KeyId(3), role: Role::Host(None) }, 0).is_err());
        }
        for role in [Role::Server, named("a b"), named("")] {
            assert!(key().issue(Issued { id: KeyId(1), role }, 0).is_err());
        }
        let text = keys[0].to_text();
        for (from, to) in [
            ("uid = 1000\n", ""),
            ("uid = 1000", "uid = 0"),
            ("\"user\"", "\"host\""),
            ("lab_1", "lab 1"),
            ("by = ", "cluster = "),
        ] {
            assert!(Key::parse(&text.replace(from, to)).is_err(), "{from}");
        }
    }

    #[test]
    fn several_key_files_behind_each_other_are_parsed() {
        let other = Key::new(ClusterId(0xc0), 0x2e, [7; 32], 1_700_000_001);
        let both = format!("{}{}", key().to_text(), other.to_text());
        assert_eq!(Key::parse_all(&both), Ok(vec![key(), other]));
        let (_, bare) = both.split_once("\ncluster").unwrap();
        assert_eq!(Key::parse_all(&format!("cluster{bare}")).unwrap().len(), 2);
        assert_eq!(Key::parse_all(&key().to_text()), Ok(vec![key()]));
        for bad in ["", "# nothing\n", &format!("{both}cluster = 1\n"), &format!("x = 1\n{both}")] {
            assert!(Key::parse_all(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_and_debug_output_contain_no_secret() {
        let text = key().to_text();
        let secret = text.split("secret = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        assert!(!format!("{:?}", key()).contains(&secret[..8]));
        for bad in [
            text.replace("secret = \"", "secret = \"0"),
            text.replace("secret = ", "secrets = "),
            text.replace("id = \"0", "id = \"x"),
            format!("secret = \"{secret}\n"),
            format!("{text}secret = \"{secret}\"\n"),
            String::new(),
        ] {
            let error = Key::parse(&bad).unwrap_err();
            assert!(!error.contains(&secret[..8]), "{error}");
        }
    }
}
