//! Job statistics: what each job has done on each target, in Lustre's form.

use std::path::Path;

use sheen_tests::{Ran, sandbox::Sandbox, wait::eventually};

/// Returns the samples and the sum of a counter of a job.
fn counted(stats: &str, job: &str, counter: &str) -> (u64, u64) {
    let mut all = (0, 0);
    for entry in stats.split("- job_id:").filter(|entry| entry.lines().next().is_some_and(|id| id.trim() == job)) {
        let line = entry.lines().find(|line| line.trim_start().starts_with(&format!("{counter}:")));
        let number = |name: &str| {
            let (_, rest) = line?.split_once(&format!("{name}:"))?;
            rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        all = (all.0 + number(" samples").unwrap_or(0), all.1 + number(" sum").unwrap_or(0));
    }
    all
}

fn stats(s: &Sandbox, of: &str) -> String {
    s.sh(Path::new("/"), &format!("lctl get_param -n {of}.*.job_stats")).ok()
}

#[test]
fn job_stats_count_what_the_programs_of_each_job_do() {
    Sandbox::enter("jobs", |s| {
        s.up("sheen", "/mnt/here");
        s.mount_again("/mnt/there");
        let sh = |at: &str, script: &str| -> Ran { s.sh(Path::new(at), script) };
        sh("/mnt/here", "dd if=/dev/zero of=before bs=1M count=1 2>/dev/null").ok();
        assert_eq!(stats(s, "obdfilter"), "job_stats:\n".repeat(4), "by default there are no jobs");
        sh("/", "lctl set_param -P jobid_var=JOB").ok();
        for (at, job) in [("/mnt/here", "4711"), ("/mnt/there", "4712")] {
            // Small writes are sent later, by no operation of the program.
            let script =
                format!("export JOB={job}; dd if=/dev/zero of={job} bs=4k count=300 2>/dev/null; mkdir d{job}; sync .");
            sh(at, &script).ok();
        }
        for job in ["4711", "4712"] {
            let written = || counted(&stats(s, "obdfilter"), job, "write_bytes").1;
            eventually(format!("the bytes of job {job} are counted"), || written() == 300 * 4096);
            let mdt = stats(s, "mdt");
            assert_eq!(counted(&mdt, job, "mkdir").0, 1, "{mdt}");
            assert_eq!(counted(&mdt, job, "mknod").0, 1, "{mdt}");
        }
        sh("/mnt/there", "JOB=reader cat 4711 >/dev/null").ok();
        assert!(counted(&stats(s, "obdfilter"), "reader", "read_bytes").1 >= 300 * 4096);
        // A program without the variable, as in Lustre.
        sh("/mnt/there", "mkdir plain").ok();
        assert_eq!(counted(&stats(s, "mdt"), "mkdir.0", "mkdir").0, 1);
        sh("/", "lctl set_param jobid_name=%j-%u; lctl set_param mdt.*.job_stats=mkdir.0").ok();
        sh("/mnt/there", "JOB=4713 mkdir other").ok();
        let mdt = stats(s, "mdt");
        assert_eq!((counted(&mdt, "4713-0", "mkdir").0, counted(&mdt, "mkdir.0", "mkdir").0), (1, 0), "{mdt}");
        sh("/", "lctl set_param *.*.job_stats=clear jobid_var=disable").ok();
        sh("/mnt/there", "mkdir last").ok();
        assert_eq!(stats(s, "mdt"), "job_stats:\n");
        let refused = sh("/", "lctl set_param jobid_var='A B'");
        assert_eq!(refused.code, 22, "{refused:?}");
    });
}
