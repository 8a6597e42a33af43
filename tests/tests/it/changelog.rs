//! The changelog of an MDT: its records, users and readers on a mount.

use std::path::Path;

use sheen_tests::{Ran, sandbox::Sandbox};

/// The types of records that the first test compares.
const OF_NAMES: &str = "CREAT|MKDIR|HLINK|SLINK|MKNOD|UNLNK|RMDIR|RENME";

#[test]
fn changelog_has_the_changes_of_names_until_they_are_cleared() {
    Sandbox::enter("changelog", |s| {
        s.up("sheen", "/mnt/here");
        let sh = |script: &str| -> Ran { s.sh(Path::new("/mnt/here"), script) };
        let show = |what: &str| {
            let script = format!("sync .; lfs changelog sheen-MDT0000 | awk '$2 ~ /({OF_NAMES})$/ {{print {what}}}'");
            sh(&script).ok()
        };
        let names = || show("$2, $NF");
        sh("touch before; lctl set_param -P jobid_var=JOB").ok();
        let registered = sh("lctl --device sheen-MDT0000 changelog_register").ok();
        assert_eq!(registered, "sheen-MDT0000: Registered changelog userid 'cl1'\n");
        sh("touch f; mkdir d; ln f g; ln -s f l; mkfifo p; mv f d/h; rm g; rm d/h; rmdir d").ok();
        let expected =
            "01CREAT f\n02MKDIR d\n03HLINK g\n04SLINK l\n05MKNOD p\n08RENME f\n06UNLNK g\n06UNLNK h\n07RMDIR d\n";
        assert_eq!(names(), expected);
        let all = show("$0");
        let first = all.lines().next().unwrap_or_default();
        assert!(first.contains(" 0x0 t=[0x") && first.contains(" j=touch.0 ef=0xf u=0:0 nid="), "{first}");
        assert!(first.ends_with(" p=[0x200000007:0x1:0x0] f"), "{first}");
        let users = sh("lctl get_param -n mdd.sheen-MDT0000.changelog_users").ok();
        assert!(users.starts_with("current_index: ") && users.contains("\ncl1 "), "{users}");
        sh("lfs changelog_clear sheen-MDT0000 cl1 0").ok();
        assert_eq!(names(), "");
        assert_eq!(sh("lfs changelog_clear sheen-MDT0000 cl7 0").code, 2);
        let deregistered = sh("lctl --device sheen-MDT0000 changelog_deregister cl1").ok();
        assert_eq!(deregistered, "sheen-MDT0000: Deregistered changelog user 'cl1'\n");
        sh("mkdir e").ok();
        assert_eq!(names(), "");
        assert_eq!(sh("lctl --device sheen-MDT0000 changelog_deregister cl1").code, 2);
    });
}

#[test]
fn mask_selects_the_types_of_records() {
    Sandbox::enter("changelog-mask", |s| {
        s.up("sheen", "/mnt/here");
        let sh = |script: &str| -> Ran { s.sh(Path::new("/mnt/here"), script) };
        let id = sh("lctl --device sheen-MDT0000 changelog_register -n -u audit -m 'MKDIR SATTR'").ok();
        assert_eq!(id, "cl1-audit\n");
        sh("mkdir d; chmod 700 d; rmdir d; sync .").ok();
        let types = || sh("lfs changelog sheen-MDT0000 | awk '{print $2}'").ok();
        assert_eq!(types(), "02MKDIR\n14SATTR\n");
        sh("lctl set_param mdd.sheen-MDT0000.changelog_mask='-MKDIR -SATTR'").ok();
        let mask = sh("lctl get_param -n mdd.sheen-MDT0000.changelog_mask").ok();
        assert!(mask.contains("CREAT") && !mask.contains("MKDIR"), "{mask}");
        assert_eq!(sh("lctl set_param mdd.sheen-MDT0000.changelog_mask=NOSUCH").code, 22);
        assert_eq!(sh("lctl --device sheen-MDT0000 changelog_register -m NOSUCH").code, 22);
        sh("lctl --device sheen-MDT0000 changelog_deregister -u audit").ok();
    });
}

#[test]
fn opens_and_closes_are_recorded_if_the_mask_has_them() {
    Sandbox::enter("changelog-opens", |s| {
        s.up("sheen", "/mnt/here");
        let sh = |script: &str| -> Ran { s.sh(Path::new("/mnt/here"), script) };
        sh("lctl --device sheen-MDT0000 changelog_register -m 'CREAT OPEN CLOSE'").ok();
        sh("echo x > f; cat f").ok();
        // Of the file alone: `sync` opens the directory. Programs close files in the background.
        let of_file = "$2 == \"01CREAT\" { t = $6; next } \
                       t != \"\" && $6 == t { match($0, / m=[rwx-]+/); print $2 substr($0, RSTART, RLENGTH) }";
        let wait = format!(
            "export LC_ALL=C; \
             show() {{ sync .; lfs changelog sheen-MDT0000 | awk '{of_file}' | sort; }}; \
             until [ \"$(show | wc -l)\" -ge 4 ]; do sleep 0.1; done; show"
        );
        assert_eq!(sh(&wait).ok(), "10OPEN m=-w-\n10OPEN m=r--\n11CLOSE\n11CLOSE\n");
    });
}

#[test]
fn write_to_a_mirrored_file_is_recorded_with_the_user_who_opened_it() {
    Sandbox::enter("changelog-users", |s| {
        s.up("sheen", "/mnt/here");
        let sh = |script: &str| -> Ran { s.sh(Path::new("/mnt/here"), script) };
        sh("lfs mirror create -N2 -c 1 f && chmod 666 f").ok();
        sh("lctl --device sheen-MDT0000 changelog_register -m 'FLRW CLOSE'").ok();
        sh("setpriv --reuid 65534 --regid 65534 --clear-groups bash -c 'echo x >> f'").ok();
        let shown = "show() { sync .; lfs changelog sheen-MDT0000 | awk '{match($0, / u=[0-9:]+/); print $2 substr($0, RSTART, RLENGTH)}'; }; \
                     until [ \"$(show | wc -l)\" -ge 2 ]; do sleep 0.1; done; show";
        assert_eq!(sh(shown).ok(), "21FLRW u=65534:65534\n11CLOSE u=65534:65534\n");
    });
}

#[test]
fn follower_prints_records_as_they_come_until_a_signal_ends_it() {
    Sandbox::enter("changelog-follow", |s| {
        s.up("sheen", "/mnt/here");
        let sh = |script: &str| -> Ran { s.sh(Path::new("/mnt/here"), script) };
        sh("lctl --device sheen-MDT0000 changelog_register -m MKDIR").ok();
        // If a signal did not end the waits, the last loop would take longer than this test may.
        let follow = "out=$(mktemp); \
             begin() { : > $out; lfs changelog --follow sheen-MDT0000 >> $out & reader=$!; }; \
             until_printed() { until grep -q \" $1\\$\" $out; do sleep 0.1; done; }; \
             begin; mkdir first; until_printed first; mkdir second; until_printed second; \
             kill -KILL $reader; wait $reader; echo $?; \
             for n in $(seq 20); do begin; until_printed second; kill $reader; wait $reader; echo $?; done | uniq; \
             rm $out";
        assert_eq!(sh(follow).ok(), "137\n143\n");
    });
}
