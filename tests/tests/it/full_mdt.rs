//! An MDT whose disk is full, as a user meets it.

use std::path::Path;

use sheen_tests::sandbox::Sandbox;

#[test]
fn full_mdt_refuses_new_files_and_lets_removals_go_on() {
    Sandbox::enter("full_mdt", |sandbox| {
        let root = Path::new("/");
        let mdt = sandbox.dir().join("mdt0");
        let mdt = mdt.display();
        sandbox.sh(root, &format!("mkdir -p {mdt} && mount -t tmpfs -o size=64m none {mdt}")).ok();
        sandbox.up("full", "/mnt/f");
        let mnt = Path::new("/mnt/f");
        let status = || sandbox.sh(root, &format!("sheen status --dir {}", sandbox.dir().display())).ok();
        assert!(!status().contains("problem"));
        sandbox.sh(mnt, "mkdir a; for i in {1..500}; do : >a/$i || exit 1; done; sync .").ok();
        sandbox.sh(root, &format!("dd if=/dev/zero of={mdt}/ballast bs=64k"));

        // The MDT finds out at its next commit.
        let refused = sandbox.sh(mnt, "for i in {1..100000}; do : >a/n$i || exit 1; done");
        assert!(refused.code == 1 && refused.err.contains("No space left on device"), "{refused:?}");
        assert!(status().contains("full-MDT0000: no new files: the disk is full"), "{}", status());
        sandbox.sh(mnt, "echo data >>a/1 && mv a/1 a/one && chmod 600 a/one && ls a >/dev/null && sync .").ok();
        sandbox.sh(mnt, "rm -r a && sync .").ok();

        sandbox.sh(root, &format!("rm {mdt}/ballast")).ok();
        sandbox.sh(mnt, "mkdir b && : >b/1 && sync .").ok();
        assert!(!status().contains("problem"));
        sandbox
            .sh(root, &format!("sheen umount /mnt/f && sheen down --dir {} && umount {mdt}", sandbox.dir().display()))
            .ok();
    });
}
