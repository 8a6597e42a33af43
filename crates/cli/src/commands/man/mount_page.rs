//! The manual page mount.sheen(8). The meanings of the mount options are those of the table in
//! docs/administration.md. The other lists are those of [`mount_options`].

use super::roff::{ADMINISTRATION, Page};
use crate::mount_options::{HARMLESS, HARMLESS_WITH_VALUE, UNSUPPORTED};

/// The document with the table.
const GUIDE: &str = include_str!("../../../../../docs/administration.md");
/// Heading of the section with the table.
const HEADING: &str = "\n### Mount options\n";

/// Returns the page.
pub fn page() -> Page {
    let mut page = Page::new("mount.sheen", ADMINISTRATION);
    page.name_section("mount.sheen, mount.fuse.sheen", "mount a Sheen file system");
    page.heading("SYNOPSIS");
    let calls: [(&str, &[&str]); 2] = [
        ("mount", &["-t sheen", "[-fnrsvw]", "[-o OPTIONS]", "SOURCE", "DIRECTORY"]),
        ("mount.sheen", &["SOURCE", "DIRECTORY", "[-fnrsvw]", "[-o OPTIONS]", "[-t TYPE]"]),
    ];
    for (command, arguments) in calls {
        page.call(command, &arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>());
    }
    description(&mut page);
    options(&mut page);
    environment_and_files(&mut page);
    page.heading("SEE ALSO");
    page.paragraph("sheen(1), sheen-mount(1), sheen-key(1), mount(8), fstab(5)");
    page.paragraph("The documents docs/administration.md and docs/security.md explain mounts and keys.");
    page
}

fn description(page: &mut Page) {
    page.heading("DESCRIPTION");
    page.paragraph(
        "mount(8) runs this helper for the types sheen and fuse.sheen, also for entries of fstab(5). It is the program \
         sheen under another name, and does the same as sheen-mount(1).",
    );
    page.paragraph(
        "SOURCE is HOST@tcp:/FSNAME or HOST:PORT@tcp:/FSNAME, where HOST runs the MGS. Several NIDs of the MGS are \
         separated by commas. FSNAME/DIRECTORY mounts a directory of the file system.",
    );
    page.paragraph("The keys of root must include a key of the file system, for example in /etc/sheen/keys.");
}

fn options(page: &mut Page) {
    page.heading("OPTIONS");
    page.item("-o OPTIONS", "Mount options, separated by commas.");
    page.item("-f", "Check the options, the source, the mount point and access to FUSE, and mount nothing.");
    page.item("-s", "Ignore mount options that Sheen does not know or does not support.");
    page.item("-v", "Print what was mounted.");
    page.item("-r", "As -o ro.");
    page.item("-w", "As -o rw.");
    page.item("-n, -t TYPE", "Accepted and ignored.");
    page.heading("MOUNT OPTIONS");
    page.paragraph("Of contradicting options the last one takes effect.");
    for (names, meaning) in documented_options() {
        page.item(&plain(names), &plain(meaning));
    }
    page.paragraph(
        "Trust: a process that knows the key of the file system can act as any user. Set-user-id programs and devices \
         are therefore off by default.",
    );
    page.paragraph(
        "A remount changes ro, suid, dev, exec, noatime, nodiratime and nosymfollow if they are named. All other \
         options keep their values. The remount is refused while files are open for writing.",
    );
    page.paragraph(
        "Requests come over io_uring since Linux 6.14, if it is on in the kernel: the module fuse has the parameter \
         enable_uring for this. With io_uring=on, root's mount switches it on until the next boot.",
    );
    page.heading("OPTIONS WITHOUT EFFECT");
    page.paragraph("These options are accepted and change nothing:");
    let with_value = HARMLESS_WITH_VALUE.iter().map(|name| format!("{name}="));
    let names: Vec<String> = HARMLESS.iter().map(|&name| name.to_owned()).chain(with_value).collect();
    page.paragraph(&format!("{}, and all that begin with x- or X-.", names.join(", ")));
    page.heading("UNSUPPORTED OPTIONS");
    page.paragraph("Unknown options are refused, and so are these:");
    for (name, instead) in UNSUPPORTED {
        page.item(name, instead);
    }
}

fn environment_and_files(page: &mut Page) {
    page.heading("ENVIRONMENT");
    page.item("SHEEN_MOUNT_OPTIONS", "Options for all mounts. Those of the command line come after them.");
    page.item("SHEEN_KEY_DIR", "Directory of keys, instead of ~/.config/sheen/keys and /etc/sheen/keys.");
    page.heading("EXIT STATUS");
    page.item("0", "Success.");
    page.item("1", "Invalid arguments.");
    page.item("32", "The mount failed.");
    page.heading("EXAMPLES");
    page.paragraph("A line of /etc/fstab:");
    page.verbatim("node1@tcp:/scratch  /mnt/scratch  sheen  _netdev,nofail  0 0");
}

/// Returns the rows of the table of mount options: names and meaning, as Markdown.
fn documented_options() -> impl Iterator<Item = (&'static str, &'static str)> {
    let section = GUIDE.split_once(HEADING).map_or("", |(_, section)| section);
    let section = section.split_once("\n#").map_or(section, |(section, _)| section);
    let rows = section.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    // The first two rows are the heads of the columns and a line.
    rows.skip(2).filter_map(|row| row.split_once('|'))
}

/// Returns the text of Markdown without the marks of code and links.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut left = markdown;
    while let Some((before, label, after)) = link(left) {
        text.push_str(before);
        text.push_str(label);
        left = after;
    }
    text.push_str(left);
    text.retain(|c| c != '`');
    text.trim().to_owned()
}

/// Splits text at its first link, `[LABEL](TARGET)`: the text before, the label, the text after.
fn link(text: &str) -> Option<(&str, &str, &str)> {
    let (before, label) = text.split_once('[')?;
    let (label, target) = label.split_once("](")?;
    let (_, after) = target.split_once(')')?;
    Some((before, label, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands::mount_helper, mount_options::known};

    #[test]
    fn page_documents_the_options_that_the_helper_accepts() {
        let rows: Vec<_> = documented_options().collect();
        assert!(rows.len() > 20, "{rows:?}");
        let page = page();
        for (names, meaning) in rows {
            let name = plain(names).split([',', ';', ' ']).next().unwrap().to_owned();
            let word = name.replace("=USER", "=0").replace("=N", "=5");
            assert_eq!(known(vec![word.clone()]), [word.as_str()], "{names}: {meaning}");
            assert!(page.text().contains(&format!("\n\\fB{name}")), "{name}: {}", page.text());
        }
        assert!(page.text().contains("\\fBsync\\fR\nopen files with O_SYNC"), "{}", page.text());
    }

    #[test]
    fn synopsis_has_the_letters_of_the_helper() {
        let (_, letters) = mount_helper::USAGE.split_once("[-").unwrap();
        let (letters, _) = letters.split_once(']').unwrap();
        let mut sorted: Vec<char> = letters.chars().collect();
        sorted.sort_unstable();
        let sorted: String = sorted.into_iter().collect();
        assert!(page().text().contains(&format!("[\\-{sorted}]")), "{letters}");
    }

    #[test]
    fn markdown_becomes_plain_text() {
        assert_eq!(plain(" `a`, see [the `b`](c.md#d) and [e](f) "), "a, see the b and e");
        assert_eq!(plain("[x] y"), "[x] y");
    }
}
