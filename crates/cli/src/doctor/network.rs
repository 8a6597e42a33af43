//! The network: settings of TCP, and the default port.

use sheen_lnet::DEFAULT_PORT;

use super::finding::Finding;

/// Connections that may wait until a server accepts them: as many as servers ask for.
const BACKLOG: u64 = 4096;
/// Smallest maximum of a connection's buffers that is enough, in bytes: the smaller one of the
/// kernel's own defaults. Sheen leaves the size of buffers to the kernel.
const BUFFER_BYTES: u64 = 4 << 20;
/// The kernel's own default for the maximum of receive buffers, in bytes.
const RECEIVE_BYTES: u64 = 6 << 20;

/// The user of the default port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// No process listens on it.
    Free,
    /// A Sheen process of this user.
    Sheen,
    /// Another process.
    Other,
}

/// The network.
#[derive(Clone, Debug)]
pub struct Network {
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// `net.ipv4.tcp_rmem`: minimum, default and maximum in bytes.
    pub receive_bytes: Option<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`, likewise.
    pub send_bytes: Option<[u64; 3]>,
    /// The default port.
    pub port: Port,
}

/// Checks the network.
pub fn checks(network: &Network) -> Vec<Finding> {
    [backlog(network), buffers(network), Some(port(network.port))].into_iter().flatten().collect()
}

fn backlog(network: &Network) -> Option<Finding> {
    let (check, limit) = ("somaxconn", network.somaxconn?);
    Some(match limit >= BACKLOG {
        true => Finding::ok(check, format!("{BACKLOG} clients can connect at once")),
        false => Finding::hint(
            check,
            format!("a server of more than {limit} clients is slow to get them back after a restart"),
            format!("on servers, as root: sysctl net.core.somaxconn={BACKLOG}"),
        ),
    })
}

fn buffers(network: &Network) -> Option<Finding> {
    let check = "tcp_buffers";
    let buffers = [
        ("net.ipv4.tcp_rmem", network.receive_bytes?, RECEIVE_BYTES),
        ("net.ipv4.tcp_wmem", network.send_bytes?, BUFFER_BYTES),
    ];
    let small: Vec<_> = buffers.into_iter().filter(|(_, [_, _, maximum], _)| *maximum < BUFFER_BYTES).collect();
    let Some(smallest) = small.iter().map(|(_, [_, _, maximum], _)| *maximum).min() else {
        return Some(Finding::ok(check, "TCP buffers can grow as the kernel's defaults allow"));
    };
    let settings: Vec<String> = small
        .iter()
        .map(|(name, [minimum, default, _], advised)| format!("{name}='{minimum} {default} {advised}'"))
        .collect();
    Some(Finding::hint(
        check,
        format!("TCP buffers grow to {} KiB only, which does not fill a fast network", smallest >> 10),
        format!("as root: sysctl {}", settings.join(" ")),
    ))
}

fn port(port: Port) -> Finding {
    let check = "port";
    match port {
        Port::Free => Finding::ok(check, format!("port {DEFAULT_PORT} is free")),
        Port::Sheen => Finding::ok(check, format!("Sheen listens on port {DEFAULT_PORT}")),
        Port::Other => Finding::hint(
            check,
            format!("port {DEFAULT_PORT} is in use, not by a Sheen process of this user"),
            format!("`ss -ltnp sport = :{DEFAULT_PORT}` shows it; a server then needs --listen ADDRESS:PORT@tcp"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    fn usual() -> Network {
        let (receive_bytes, send_bytes) = (Some([4096, 131_072, 6 << 20]), Some([4096, 16_384, 4 << 20]));
        Network { somaxconn: Some(4096), receive_bytes, send_bytes, port: Port::Free }
    }

    #[test]
    fn network_findings_are_at_most_hints() {
        assert!(checks(&usual()).iter().all(|f| f.severity == Severity::Ok));
        assert_eq!(checks(&Network { port: Port::Sheen, ..usual() })[2].severity, Severity::Ok);
        for (network, check, advice) in [
            (Network { somaxconn: Some(128), ..usual() }, "somaxconn", "net.core.somaxconn=4096"),
            (
                Network { send_bytes: Some([8192, 65_536, 1 << 20]), ..usual() },
                "tcp_buffers",
                "sysctl net.ipv4.tcp_wmem='8192 65536 4194304'",
            ),
            (Network { port: Port::Other, ..usual() }, "port", "sport = :7988"),
        ] {
            let found = checks(&network).into_iter().find(|f| f.severity == Severity::Hint).unwrap();
            assert_eq!(found.check, check);
            assert!(found.advice.as_deref().unwrap().contains(advice), "{found:?}");
        }
    }

    #[test]
    fn unknown_settings_give_no_findings() {
        let unknown = Network { somaxconn: None, receive_bytes: None, ..usual() };
        assert_eq!(checks(&unknown).len(), 1);
    }
}
