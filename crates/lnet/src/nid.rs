//! Network identifiers: where a process can be reached.
//!
//! Lustre writes a NID as `address@network`. Sheen knows the networks `lo` (the same process) and
//! `tcp`. It adds a port to the address, so that several processes can share a host. `10.0.0.1@tcp`
//! means port [`DEFAULT_PORT`], and `127.0.0.1:40001@tcp` names a port. A number behind `tcp`
//! (`tcp0`, `tcp1`) is accepted and means the same network: Sheen has only one.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    str::FromStr,
};

use sheen_rt::Rt;
use sheen_wire::mgs::FSNAME_MAX;

/// Default port. Lustre's acceptor has port 988, which needs root; Sheen adds 7000.
pub const DEFAULT_PORT: u16 = 7988;
/// Maximum number of NIDs in a mount source.
pub const SOURCE_NIDS_MAX: usize = 32;

/// The address of a process in a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Nid {
    /// This process: a direct call.
    Lo,
    /// A TCP address.
    Tcp(SocketAddr),
}

/// A NID as users write it: the address may be a host name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NidName {
    /// `0@lo`.
    Lo,
    /// `HOST[:PORT]@tcp`.
    Tcp {
        /// Host name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

/// Text that is not a NID or not a mount source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NidError {
    /// Not `address@network`.
    #[error("'{0}' is not a NID; write it as HOST@tcp, HOST:PORT@tcp or 0@lo")]
    Form(String),
    /// An unknown network.
    #[error("'{0}' names the network '{1}'; this version of Sheen knows tcp and lo")]
    Network(String, String),
    /// A host name where an address is needed.
    #[error("'{0}' is not an IP address")]
    NotAnAddress(String),
    /// Not `NID[:NID...]:/FSNAME[/DIRECTORY]`.
    #[error(
        "'{0}' does not name a file system; write it as HOST@tcp:/FSNAME or HOST@tcp:/FSNAME/DIRECTORY, for example 10.0.0.1@tcp:/sheen"
    )]
    Source(String),
    /// Not a file system name.
    #[error("'{0}' is not a file system name: 1 to {FSNAME_MAX} letters, digits, '_' or '-'")]
    Fsname(String),
    /// More NIDs than [`SOURCE_NIDS_MAX`].
    #[error("too many NIDs in '{0}': at most {SOURCE_NIDS_MAX}")]
    TooMany(String),
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nid::Lo => f.write_str("0@lo"),
            Nid::Tcp(SocketAddr::V4(a)) if a.port() == DEFAULT_PORT => write!(f, "{}@tcp", a.ip()),
            Nid::Tcp(addr) => write!(f, "{addr}@tcp"),
        }
    }
}

impl Nid {
    /// Returns the address of its host. `None`: it is this process.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Nid::Lo => None,
            Nid::Tcp(address) => Some(address.ip()),
        }
    }
}

impl FromStr for Nid {
    type Err = NidError;

    /// Accepts `0@lo` and `ADDRESS[:PORT]@tcp` with a numeric address; for names see [`NidName`].
    fn from_str(s: &str) -> Result<Nid, NidError> {
        match s.parse()? {
            NidName::Lo => Ok(Nid::Lo),
            NidName::Tcp { host, port } => match host.parse::<IpAddr>() {
                Ok(ip) => Ok(Nid::Tcp(SocketAddr::new(ip, port))),
                Err(_) => Err(NidError::NotAnAddress(host)),
            },
        }
    }
}

impl fmt::Display for NidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NidName::Lo => f.write_str("0@lo"),
            NidName::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}@tcp"),
            NidName::Tcp { host, port: DEFAULT_PORT } => write!(f, "{host}@tcp"),
            NidName::Tcp { host, port } => write!(f, "{host}:{port}@tcp"),
        }
    }
}

impl FromStr for NidName {
    type Err = NidError;

    fn from_str(s: &str) -> Result<NidName, NidError> {
        let (address, network) = s.rsplit_once('@').ok_or_else(|| NidError::Form(s.to_owned()))?;
        if network == "lo" {
            return if address == "0" { Ok(NidName::Lo) } else { Err(NidError::Form(s.to_owned())) };
        }
        let number = network.strip_prefix("tcp");
        if !number.is_some_and(|n| n.len() <= 5 && n.bytes().all(|b| b.is_ascii_digit())) {
            return Err(NidError::Network(s.to_owned(), network.to_owned()));
        }
        host_port(address).ok_or_else(|| NidError::Form(s.to_owned()))
    }
}

impl From<Nid> for NidName {
    fn from(nid: Nid) -> NidName {
        match nid {
            Nid::Lo => NidName::Lo,
            Nid::Tcp(addr) => NidName::Tcp { host: addr.ip().to_string(), port: addr.port() },
        }
    }
}

impl NidName {
    /// Returns the NIDs of the name, in the resolver's order. Numeric addresses need no resolver.
    ///
    /// Errors: those of the resolver; `NotFound` if the name has no address.
    pub async fn resolve(&self, rt: &Rt) -> io::Result<Vec<Nid>> {
        let NidName::Tcp { host, port } = self else { return Ok(vec![Nid::Lo]) };
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![Nid::Tcp(SocketAddr::new(ip, *port))]);
        }
        let (name, port) = (host.clone(), *port);
        let found: Vec<Nid> = rt
            .run_blocking(move || Ok::<_, io::Error>((name, port).to_socket_addrs()?.map(Nid::Tcp).collect()))
            .await?;
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("host '{host}' has no address")));
        }
        Ok(found)
    }
}

/// Parses `HOST[:PORT]`. An IPv6 address with a port is in brackets.
fn host_port(s: &str) -> Option<NidName> {
    let (host, port) = if let Some(rest) = s.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
    } else if s.parse::<std::net::Ipv6Addr>().is_ok() {
        (s, None)
    } else {
        match s.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (s, None),
        }
    };
    let port = match port {
        Some(p) => p.parse().ok().filter(|p| *p != 0)?,
        None => DEFAULT_PORT,
    };
    let is_host = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':');
    if host.is_empty() || host.len() > 255 || !host.bytes().all(is_host) {
        return None;
    }
    Some(NidName::Tcp { host: host.to_owned(), port })
}

/// A mount source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Addresses of the MGS, in the order to try them.
    pub nids: Vec<NidName>,
    /// Name of the file system.
    pub fsname: String,
    /// Path of a directory in it, without slashes at its ends. Empty: the root.
    pub subdir: String,
}

/// Parses a mount source, `NID[:NID...]:/FSNAME[/DIRECTORY]`. Several NIDs are separated by `:`
/// (Lustre's failover nodes) or `,` (Lustre's addresses of one node). All NIDs have `@tcp`, or none
/// has.
///
/// ```
/// let source = sheen_lnet::parse_source("mgs1:40001@tcp:mgs2@tcp:/sheen/home")?;
/// assert_eq!((source.nids.len(), &source.fsname[..], &source.subdir[..]), (2, "sheen", "home"));
/// # Ok::<(), sheen_lnet::NidError>(())
/// ```
///
/// # Errors
/// It has another form, or too many NIDs. The path has `.` or `..`.
pub fn parse_source(source: &str) -> Result<Source, NidError> {
    let wrong = || NidError::Source(source.to_owned());
    let (rest, path) = source.split_once(":/").ok_or_else(wrong)?;
    let (fsname, subdir) = path.split_once('/').unwrap_or((path, ""));
    check_fsname(fsname)?;
    let names: Vec<&str> = subdir.split('/').filter(|name| !name.is_empty()).collect();
    if names.iter().any(|name| matches!(*name, "." | "..")) {
        return Err(wrong());
    }
    let of_nids = |nids| Source { nids, fsname: fsname.to_owned(), subdir: names.join("/") };
    if !rest.contains('@') {
        let nids = hosts(rest).ok_or_else(wrong)?;
        if nids.len() > SOURCE_NIDS_MAX {
            return Err(NidError::TooMany(source.to_owned()));
        }
        return Ok(of_nids(nids));
    }
    let words = split_nids(rest);
    if words.len() > SOURCE_NIDS_MAX {
        return Err(NidError::TooMany(source.to_owned()));
    }
    Ok(of_nids(words.into_iter().map(str::parse).collect::<Result<_, _>>()?))
}

/// Splits a list of NIDs, which are separated by `:` or `,`. A NID ends behind its network.
///
/// ```
/// assert_eq!(sheen_lnet::split_nids("a:1@tcp:b@tcp,c@tcp"), ["a:1@tcp", "b@tcp", "c@tcp"]);
/// ```
pub fn split_nids(list: &str) -> Vec<&str> {
    let (mut rest, mut words) = (list, Vec::new());
    loop {
        let at = rest.find('@').unwrap_or(0);
        let Some(end) = rest[at..].find([':', ',']).map(|i| at + i) else {
            words.push(rest);
            return words;
        };
        words.push(&rest[..end]);
        rest = &rest[end + 1..];
    }
}

/// Parses NIDs without `@tcp`: `HOST[:PORT]`, separated by `:` or `,`. A number behind `:` is a
/// port.
fn hosts(list: &str) -> Option<Vec<NidName>> {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let mut nids = Vec::new();
    for part in list.split(',') {
        // The colons of an IPv6 address separate nothing.
        if let Some(nid) = host_port(part) {
            nids.push(nid);
            continue;
        }
        let mut words = part.split(':').peekable();
        while let Some(host) = words.next() {
            let port = words.next_if(|word| is_number(word)).map_or(String::new(), |port| format!(":{port}"));
            let nid = if is_number(host) { None } else { host_port(&format!("{host}{port}")) };
            nids.push(nid?);
        }
    }
    Some(nids)
}

/// Checks whether `name` can name a file system.
pub fn check_fsname(name: &str) -> Result<(), NidError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || name.len() > FSNAME_MAX || !name.bytes().all(good) {
        return Err(NidError::Fsname(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> NidName {
        NidName::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn nids_read_and_print_as_in_lustre() {
        for text in ["0@lo", "10.0.0.1@tcp", "127.0.0.1:40001@tcp", "[::1]:7988@tcp", "[fe80::1]:9@tcp"] {
            let nid: Nid = text.parse().unwrap();
            assert_eq!(nid.to_string(), text);
            assert_eq!(NidName::from(nid).to_string(), text);
            assert_eq!(text.parse::<NidName>().unwrap(), NidName::from(nid));
        }
        for (text, same) in
            [("10.0.0.1:7988@tcp", "10.0.0.1@tcp"), ("10.0.0.1@tcp3", "10.0.0.1@tcp"), ("::1@tcp", "[::1]:7988@tcp")]
        {
            assert_eq!(text.parse::<Nid>().unwrap().to_string(), same);
        }
        assert_eq!("node-3.cluster@tcp0".parse(), Ok(tcp("node-3.cluster", DEFAULT_PORT)));
    }

    #[test]
    fn parse_refuses_invalid_nids_with_a_hint() {
        for text in
            ["", "@tcp", "10.0.0.1", "1@lo", "a b@tcp", "h:0@tcp", "h:99999@tcp", "h:1:2@tcp", "[::1@tcp", "[x]@tcp"]
        {
            assert!(matches!(text.parse::<NidName>(), Err(NidError::Form(_))), "{text}");
        }
        for text in ["h@o2ib", "h@tcpx", "h@tcp123456", "h@"] {
            assert!(matches!(text.parse::<NidName>(), Err(NidError::Network(..))), "{text}");
        }
        assert_eq!("mgs@tcp".parse::<Nid>(), Err(NidError::NotAnAddress("mgs".into())));
    }

    #[test]
    fn parse_source_accepts_nid_lists_and_refuses_bad_sources() {
        let good = |s: &str| parse_source(s).map(|source| (source.nids, source.fsname)).unwrap();
        let subdir = |s: &str| parse_source(s).map(|source| source.subdir).ok();
        assert_eq!(subdir("h:/sheen").as_deref(), Some(""));
        assert_eq!(subdir("h:/sheen//a/b/").as_deref(), Some("a/b"));
        assert_eq!((subdir("h:/sheen/a/.."), subdir("h:/sheen/./a")), (None, None));
        assert_eq!(good("h@tcp:/sheen"), (vec![tcp("h", 7988)], "sheen".into()));
        assert_eq!(good("h:/sheen"), (vec![tcp("h", 7988)], "sheen".into()));
        assert_eq!(good("127.0.0.1:4@tcp:/s/"), (vec![tcp("127.0.0.1", 4)], "s".into()));
        assert_eq!(good("a:1@tcp:b@tcp1,c:2@tcp:/s"), (vec![tcp("a", 1), tcp("b", 7988), tcp("c", 2)], "s".into()));
        assert_eq!(good("[::1]:5@tcp:[::2]@tcp:/s"), (vec![tcp("::1", 5), tcp("::2", 7988)], "s".into()));
        assert_eq!(good("0@lo:/s").0, [NidName::Lo]);
        assert_eq!(good("a@tcp,b@tcp:/s").0, [tcp("a", 7988), tcp("b", 7988)]);
        assert_eq!(good("a:b:/s").0, [tcp("a", 7988), tcp("b", 7988)]);
        assert_eq!(good("a:1:b:2,c,::1:/s").0, [tcp("a", 1), tcp("b", 2), tcp("c", 7988), tcp("::1", 7988)]);
        for bad in
            ["", "sheen", "h@tcp", "h@tcp:sheen", ":/s", "h@tcp:/", "h@tcp:/toolongname", "h@tcp:/a/../b", "a@tcp:b:/s"]
        {
            assert!(parse_source(bad).is_err(), "{bad}");
        }
        for bad in ["a,:/s", ",a:/s", "a:b::/s", "a:1:2:/s", "a:0:/s", "a:99999:/s", "a,b@tcp:/s", "a@tcp,,b@tcp:/s"] {
            assert!(parse_source(bad).is_err(), "{bad}");
        }
        let many = vec!["a"; SOURCE_NIDS_MAX + 1].join(",") + ":/s";
        assert_eq!(parse_source(&many), Err(NidError::TooMany(many.clone())));
    }
}
