//! The processors: their number, their speed, and other programs that use them.

use std::collections::BTreeSet;

use super::finding::Finding;

/// Share of the processors' time that the host of a virtual machine may take.
const STEAL_MAX: f64 = 0.10;
/// Share of time, in percent, in which programs may wait for a processor.
const PRESSURE_MAX: f64 = 20.0;

/// The processors.
#[derive(Clone, Debug)]
pub struct Processor {
    /// Processors that a process may use.
    pub count: u64,
    /// The governors of the processors' frequencies. Empty: the machine has none.
    pub governors: BTreeSet<String>,
    /// Share of the processors' time since the boot that the host of a virtual machine took.
    pub steal: Option<f64>,
    /// Share of the last minute in which programs waited for a processor, in percent. A shorter
    /// time would show what runs just now, such as this command itself.
    pub cpu_pressure: Option<f64>,
}

/// Checks the processors.
pub fn checks(processor: &Processor) -> Vec<Finding> {
    let found = [
        Some(count(processor.count)),
        governor(&processor.governors),
        processor.steal.map(steal),
        processor.cpu_pressure.map(pressure),
    ];
    found.into_iter().flatten().collect()
}

fn count(count: u64) -> Finding {
    let check = "processors";
    match count {
        0 | 1 => Finding::hint(
            check,
            "there is one processor: programs, mounts and servers take turns",
            "nothing can be done here; put the servers on other machines",
        ),
        _ => Finding::ok(check, format!("{count} processors")),
    }
}

fn governor(governors: &BTreeSet<String>) -> Option<Finding> {
    let check = "governor";
    if governors.is_empty() {
        return None;
    }
    let slow: Vec<&str> = governors.iter().map(String::as_str).filter(|name| *name != "performance").collect();
    Some(match slow.is_empty() {
        true => Finding::ok(check, "the governor of the processors' frequency is performance"),
        false => Finding::hint(
            check,
            format!(
                "processors change their frequency (governor {}): short requests are slower, and measurements vary",
                slow.join(", ")
            ),
            "as root: cpupower frequency-set -g performance",
        ),
    })
}

fn steal(share: f64) -> Finding {
    let check = "steal";
    let text = format!("since the boot, {:.0} % of the processors' time was stolen time", share * 100.0);
    match share > STEAL_MAX {
        true => Finding::hint(
            check,
            format!("{text}: the host of this virtual machine used it"),
            "nothing can be done in this machine; `vmstat 1` shows the present share in the column st",
        ),
        false => Finding::ok(check, text),
    }
}

fn pressure(share: f64) -> Finding {
    let check = "cpu_pressure";
    let text = format!("programs waited for a processor in {share:.0} % of the last minute");
    match share > PRESSURE_MAX {
        true => Finding::hint(check, text, "`top` shows the busy programs; stop those that are not needed"),
        false => Finding::ok(check, text),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    fn quiet() -> Processor {
        Processor {
            count: 8,
            governors: BTreeSet::from(["performance".to_owned()]),
            steal: Some(0.0),
            cpu_pressure: Some(3.0),
        }
    }

    #[test]
    fn quiet_processors_have_only_ok_findings() {
        let all = checks(&quiet());
        assert!(all.iter().all(|f| f.severity == Severity::Ok), "{all:?}");
        assert_eq!(all.len(), 4);
        let unknown = Processor { governors: BTreeSet::new(), steal: None, cpu_pressure: None, ..quiet() };
        assert_eq!(checks(&unknown).len(), 1);
    }

    #[test]
    fn each_disturbance_of_processors_is_a_hint() {
        let governors = ["powersave", "performance"].map(str::to_owned);
        for (processor, check, text) in [
            (Processor { count: 1, ..quiet() }, "processors", "one processor"),
            (Processor { governors: BTreeSet::from(governors), ..quiet() }, "governor", "(governor powersave)"),
            (Processor { steal: Some(0.25), ..quiet() }, "steal", "since the boot, 25 %"),
            (Processor { cpu_pressure: Some(60.0), ..quiet() }, "cpu_pressure", "60 %"),
        ] {
            let found: Vec<Finding> = checks(&processor).into_iter().filter(|f| f.severity != Severity::Ok).collect();
            let [finding] = &found[..] else { panic!("{found:?}") };
            assert_eq!((finding.check, finding.severity), (check, Severity::Hint));
            assert!(finding.text.contains(text) && finding.advice.is_some(), "{finding:?}");
        }
    }
}
