//! `sheen man`: writes the manual pages of `sheen`, `lfs`, `lctl` and `mount.sheen`.
//!
//! The pages consist of the help texts, so they never differ from them. They name the version and
//! no date: equal sources give equal pages.

mod mount_page;
mod roff;
mod tool_pages;
mod usage_text;

use std::{fs, io, path::Path};

use clap_mangen::Man;

use self::roff::{Page, USER_COMMANDS};
use super::completions;
use crate::error::{Context, Result};

/// Writes all pages to `dir`, which is created if it does not exist.
pub fn run(dir: &Path) -> Result {
    fs::create_dir_all(dir).context(format!("cannot create {}", dir.display()))?;
    for page in pages().context("cannot make the manual pages")? {
        let path = dir.join(page.file_name());
        fs::write(&path, page.text()).context(format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn pages() -> io::Result<Vec<Page>> {
    let mut command = completions::command_line();
    command.build();
    let mut pages = Vec::new();
    with_subcommands(&command, &mut pages)?;
    pages.extend(tool_pages::pages());
    pages.push(mount_page::page());
    Ok(pages)
}

/// Adds the pages of a command of `sheen`, and of all commands below it.
fn with_subcommands(command: &clap::Command, pages: &mut Vec<Page>) -> io::Result<()> {
    pages.push(page_of(command)?);
    visible_subcommands(command).try_for_each(|command| with_subcommands(command, pages))
}

fn visible_subcommands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Returns the page of one command. The title is our own: that of [`Man`] lacks an empty date, so
/// that the version would take its place. So is the synopsis: that of [`Man`] lacks the values.
fn page_of(command: &clap::Command) -> io::Result<Page> {
    let man = Man::new(command.clone());
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut page = Page::new(name, USER_COMMANDS);
    let mut sections = Vec::new();
    man.render_name_section(&mut sections)?;
    page.push_roff(&String::from_utf8_lossy(&sections));
    synopsis(&mut page, command);
    sections.clear();
    man.render_description_section(&mut sections)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut sections)?;
    }
    if visible_subcommands(command).next().is_some() {
        man.render_subcommands_section(&mut sections)?;
    }
    page.push_roff(&String::from_utf8_lossy(&sections));
    if let Some(text) = command.get_after_help() {
        after_help(&mut page, &text.to_string());
    }
    page.heading("SEE ALSO");
    page.paragraph(&see_also(name));
    Ok(page)
}

/// Adds the call of a command: its options with their values, then its operands. The options of a
/// required group are alternatives.
fn synopsis(page: &mut Page, command: &clap::Command) {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let (operands, options): (Vec<_>, Vec<_>) = arguments.partition(|argument| argument.is_positional());
    let required = command.get_groups().filter(|group| group.is_required_set());
    let alternatives: Vec<Vec<&clap::Id>> = required.map(|group| group.get_args().collect()).collect();
    let mut words = Vec::new();
    for option in &options {
        match alternatives.iter().find(|group| group.contains(&option.get_id())) {
            // The first of them stands for all.
            Some(group) if group.first() == Some(&option.get_id()) => {
                let group = options.iter().filter(|other| group.contains(&other.get_id()));
                words.push(group.map(|option| option.to_string()).collect::<Vec<_>>().join("|"));
            }
            Some(_) => {}
            None => words.push(option_in_synopsis(option)),
        }
    }
    words.extend(operands.into_iter().map(ToString::to_string));
    if visible_subcommands(command).next().is_some() {
        words.push("COMMAND ...".to_owned());
    }
    page.heading("SYNOPSIS");
    page.call(command.get_bin_name().unwrap_or_else(|| command.get_name()), &words);
}

fn option_in_synopsis(option: &clap::Arg) -> String {
    if option.is_required_set() { option.to_string() } else { format!("[{option}]") }
}

fn see_also(name: &str) -> String {
    match (name, name.rsplit_once('-')) {
        ("sheen-up" | "sheen-mount" | "sheen-umount", _) => "sheen(1), mount.sheen(8)".to_owned(),
        ("sheen-lfs", _) => "lfs(1), sheen(1)".to_owned(),
        ("sheen-lctl", _) => "lctl(1), sheen(1)".to_owned(),
        (_, Some((above, _))) => format!("{above}(1)"),
        (_, None) => "lfs(1), lctl(1), mount.sheen(8)".to_owned(),
    }
}

/// Adds the text that the help shows below the options: paragraphs, and lists of examples.
fn after_help(page: &mut Page, text: &str) {
    let mut has_heading = false;
    for part in text.split("\n\n") {
        let (first, others) = part.split_once('\n').unwrap_or((part, ""));
        let is_list = matches!(first, "Example:" | "Examples:");
        if is_list || !has_heading {
            page.heading(if is_list { "EXAMPLES" } else { "NOTES" });
            has_heading = true;
        }
        match is_list {
            true => page.verbatim(others),
            false => page.paragraph(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn all() -> BTreeMap<String, String> {
        let pages = pages().unwrap();
        let count = pages.len();
        let all: BTreeMap<_, _> = pages.iter().map(|page| (page.file_name(), page.text().to_owned())).collect();
        assert_eq!(all.len(), count, "two pages have one name");
        all
    }

    #[test]
    fn every_command_has_a_manual_page() {
        let all = all();
        for name in ["sheen", "sheen-up", "sheen-mount", "sheen-key", "sheen-key-issue", "sheen-lab-ior", "lfs", "lctl"]
        {
            assert!(all.contains_key(&format!("{name}.1")), "{name}");
        }
        assert!(all.contains_key("mount.sheen.8") && !all.contains_key("sheen-man.1"), "{:?}", all.keys());
        for (name, _) in crate::lfs::usages().filter(|(name, _)| !name.starts_with('-')) {
            assert!(all.contains_key(&format!("lfs-{name}.1")), "lfs {name}");
        }
        for (name, _) in crate::lctl::USAGES.iter().filter(|(name, _)| !name.starts_with('-')) {
            assert!(all.contains_key(&format!("lctl-{name}.1")), "lctl {name}");
        }
    }

    #[test]
    fn pages_have_a_name_a_synopsis_and_no_date() {
        for (file, text) in all() {
            let (name, section) = file.rsplit_once('.').unwrap();
            let title = name.to_uppercase().replace('-', "\\-");
            let head = format!(".TH \"{title}\" \"{section}\" \"\" \"Sheen {}\"", env!("CARGO_PKG_VERSION"));
            assert!(text.starts_with(&head), "{file}: {text}");
            for heading in ["NAME", "SYNOPSIS"] {
                assert!(text.contains(&format!("\n.SH {heading}\n")), "{file} has no {heading}");
            }
            let named = format!("\n{}", name.replace('-', "\\-"));
            let summary = text.split("\n.SH NAME").nth(1).unwrap();
            assert!(summary.contains(&named) && summary.contains(" \\- "), "{file}: {summary}");
        }
    }

    #[test]
    fn synopsis_has_options_values_and_operands() {
        let all = all();
        for (file, words) in [
            ("sheen-mds.1", "\\fBsheen mds\\fR\n\\-\\-dir\\ <DIR>\n\\-\\-mgs\\ <NID>\n[\\-\\-fsname\\ <NAME>]\n"),
            ("sheen-mount.1", "\n<SOURCE>\n<MOUNTPOINT>\n"),
            ("sheen-lab-ior.1", "\n[\\-a\\ <API>]\n"),
            ("sheen-key.1", "\nCOMMAND\\ ...\\&\n"),
            ("sheen-key-issue.1", "\n\\-\\-host|\\-\\-user\\ <USER>\n[\\-\\-nodemap\\ <NAME>]\n"),
        ] {
            assert!(all[file].contains(words), "{file}: {}", all[file]);
        }
    }

    #[test]
    fn only_known_macros_begin_with_a_dot() {
        let known = ["TH", "SH", "PP", "TP", "HP", "IP", "RS", "RE", "nf", "fi", "nh", "ad", "br", "ie", "el"];
        for (file, text) in all() {
            assert!(text.is_ascii(), "{file}");
            for line in text.lines() {
                assert!(!line.starts_with('\''), "{file}: {line}");
                let Some(rest) = line.strip_prefix('.') else { continue };
                let name = rest.split(' ').next().unwrap();
                assert!(known.contains(&name), "{file}: {line}");
            }
        }
    }

    #[test]
    fn pages_are_the_same_each_time() {
        assert_eq!(all(), all());
    }

    #[test]
    fn examples_are_a_section_and_are_not_filled() {
        let mut page = Page::new("x", 1);
        after_help(&mut page, "Some text.\n\nExamples:\n  a b   c\n\nMore.");
        let text = page.text().split(".SH ").collect::<Vec<_>>();
        assert_eq!(text[1], "NOTES\n.PP\nSome text.\n");
        assert_eq!(text[2], "EXAMPLES\n.PP\n.RS 4\n.nf\na b   c\n.fi\n.RE\n.PP\nMore.\n");
    }
}
