//! Texts of the kernel in /proc and /sys, and parameters of Sheen processes: the numbers, fields
//! and lines that the checks need.

/// State of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";
/// Value of `mdt.*.health` of an MDT without problems.
const HEALTHY: &str = "healthy";
/// Parameters of the connections of mounts: to OSTs, MDTs, and the data service of MDTs.
const CONNECTIONS: [&str; 3] = ["osc.", "mdc.", "dom."];

/// Returns the first word of the value of a field: `CapEff:` of `CapEff:   0000`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

/// Returns the share of the last minute in which some program waited, in percent, from a file of
/// /proc/pressure.
pub fn some_avg60(pressure: &str) -> Option<f64> {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ').find_map(|word| word.strip_prefix("avg60="))?.parse().ok()
}

/// Returns the three numbers of a setting such as `net.ipv4.tcp_rmem`.
pub fn three_numbers(setting: &str) -> Option<[u64; 3]> {
    let mut words = setting.split_whitespace().map(|word| word.parse().ok());
    Some([words.next()??, words.next()??, words.next()??])
}

/// Returns the share of the processors' time since the boot that the host of this virtual machine
/// took, from /proc/stat.
pub fn steal(stat: &str) -> Option<f64> {
    // user nice system idle iowait irq softirq steal; the following ones are parts of these.
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(|word| word.parse().unwrap_or(0)).collect();
    Some(*ticks.get(7)? as f64 / ticks.iter().sum::<u64>().max(1) as f64)
}

/// Returns major and minor version of a release of Linux such as `6.18.44-generic`.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns the inodes of the sockets in /proc/net/tcp or tcp6 that listen on a port.
pub fn listening(table: &str, port: u16) -> Vec<u64> {
    let inode = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, own) = words.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(own, 16).ok()? == port && *words.get(3)? == LISTENING;
        is_it.then_some(words.get(9)?.parse().ok()?)
    };
    table.lines().skip(1).filter_map(inode).collect()
}

/// Returns the connections of mounts that are disconnected, by their parameters `state`. Those
/// whose parameter `active` is 0 are deactivated, and left out.
pub fn disconnected(params: &[(String, String)]) -> Vec<String> {
    let is_active = |name: &str| !params.iter().any(|(other, value)| other == name && value.trim() == "0");
    let names = params.iter().filter_map(|(parameter, value)| {
        let name = parameter.strip_suffix(".state")?;
        let connection = CONNECTIONS.into_iter().find_map(|kind| name.strip_prefix(kind))?;
        // The lines after the first one are former states.
        let is_lost = matches!(field(value, "current_state:"), Some("DISCONN" | "CONNECTING"));
        (is_lost && is_active(&format!("{name}.active"))).then(|| connection.to_owned())
    });
    names.collect()
}

/// Returns the MDTs that are not healthy, with the reason.
pub fn unhealthy(params: &[(String, String)]) -> Vec<(String, String)> {
    let reports = params.iter().filter_map(|(parameter, value)| {
        let mdt = parameter.strip_prefix("mdt.")?.strip_suffix(".health")?;
        Some((mdt.to_owned(), value.trim().to_owned()))
    });
    reports.filter(|(_, state)| state != HEALTHY).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_the_texts_of_the_kernel() {
        let status = "Name:\tsheen\nCapEff:\t000001ffffffffff\nNoNewPrivs:\t0\n";
        assert_eq!(field(status, "CapEff:"), Some("000001ffffffffff"));
        assert_eq!(field(status, "CapBnd:"), None);
        let pressure = "some avg10=1.53 avg60=0.24 avg300=8.75 total=3\nfull avg10=9.00 avg60=0.00 total=0\n";
        assert_eq!(some_avg60(pressure), Some(0.24));
        assert_eq!(some_avg60(""), None);
        assert_eq!(three_numbers("4096\t131072\t6291456\n"), Some([4096, 131_072, 6_291_456]));
        assert_eq!(three_numbers("4096\t131072\n"), None);
        assert_eq!(steal("cpu  1 2 3 10 5 6 5 8 9 10\ncpu0 1\n"), Some(0.2));
        assert_eq!(steal("cpu  1 2\n"), None);
    }

    #[test]
    fn version_is_the_begin_of_a_release() {
        let releases = ["6.18.44-fc-v657", "5.4", "6.8-rc1", "generic", "6"];
        assert_eq!(releases.map(version), [Some((6, 18)), Some((5, 4)), Some((6, 8)), None, None]);
    }

    #[test]
    fn only_listening_sockets_of_the_port_are_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F34 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0100007F:1F34 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 20 4 30 10 -1
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0
";
        assert_eq!(listening(table, 7988), [111]);
        assert!(listening(table, 7989).is_empty());
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn deactivated_servers_do_not_count_as_disconnected() {
        let params = [
            pair("osc.a-OST0000-osc-1.state", "current_state: FULL\nstate_history:\n - [ 17, CONNECTING ]\n"),
            pair("osc.a-OST0001-osc-1.state", "current_state: DISCONN\n"),
            pair("osc.a-OST0002-osc-1.state", "current_state: CONNECTING\n"),
            pair("mdc.a-MDT0000-mdc-1.state", "current_state: DISCONN\n"),
            pair("dom.a-MDT0000-dom-1.state", "current_state: DISCONN\n"),
            pair("mgc.MGC10.0.0.1@tcp.state", "current_state: DISCONN\n"),
            pair("osc.a-OST0001-osc-1.active", "1"),
            pair("osc.a-OST0002-osc-1.active", "0\n"),
        ];
        assert_eq!(disconnected(&params), ["a-OST0001-osc-1", "a-MDT0000-mdc-1", "a-MDT0000-dom-1"]);
    }

    #[test]
    fn mdts_that_are_not_healthy_are_found_with_the_reason() {
        let params = [
            pair("mdt.a-MDT0000.health", "healthy\n"),
            pair("mdt.b-MDT0000.health", "read-only: full\n"),
            pair("mdt.b-MDT0000.state", "x"),
        ];
        assert_eq!(unhealthy(&params), [pair("b-MDT0000", "read-only: full")]);
    }
}
