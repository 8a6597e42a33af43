//! Manual pages of `lfs` and `lctl`, and of each of their commands, from the usage texts.

use super::{
    roff::{Page, USER_COMMANDS},
    usage_text::{Block, UsageText},
};
use crate::{lctl, lfs};

/// Usage text of the command `help`, whose own text is that of the tool.
const HELP: &str = "print the usage of a command\nusage: help [COMMAND]\n";

/// Summaries of commands whose usage text, which is Lustre's, begins with their less common use.
const SUMMARIES: &[(&str, &str)] =
    &[("migrate", "move files to another layout, or directories and their inodes to other MDTs")];

/// A tool with commands.
struct Tool {
    name: &'static str,
    summary: &'static str,
    /// The usage text of the tool itself.
    usage: &'static str,
    /// The names and usage texts of its commands.
    commands: Vec<(&'static str, &'static str)>,
}

/// Returns the pages of both tools.
pub fn pages() -> Vec<Page> {
    let lfs = Tool {
        name: "lfs",
        summary: "layouts, free space and FIDs of a file system",
        usage: lfs::USAGE,
        commands: lfs::usages().collect(),
    };
    let lctl = Tool {
        name: "lctl",
        summary: "parameters, devices, pools and nodemaps of file systems",
        usage: lctl::USAGE,
        commands: lctl::USAGES.to_vec(),
    };
    [lfs, lctl].iter().flat_map(Tool::pages).collect()
}

impl Tool {
    /// Returns the page of the tool and those of its commands. A command such as `--version` is an
    /// option in the tool's own page.
    fn pages(&self) -> Vec<Page> {
        let commands = self.commands.iter().filter(|(name, _)| !name.starts_with('-'));
        let commands: Vec<(&str, UsageText)> = commands.map(|(name, usage)| (*name, self.parse(name, usage))).collect();
        let mut pages = vec![self.overview(&commands)];
        pages.extend(commands.iter().map(|(name, text)| self.page(name, text)));
        pages
    }

    fn parse(&self, command: &str, usage: &str) -> UsageText {
        UsageText::parse(self.name, if command == "help" { HELP } else { usage })
    }

    fn overview(&self, commands: &[(&str, UsageText)]) -> Page {
        let text = UsageText::parse(self.name, self.usage);
        let mut page = Page::new(self.name, USER_COMMANDS);
        page.name_section(self.name, self.summary);
        self.synopsis(&mut page, &text);
        page.heading("DESCRIPTION");
        // Its list of commands would repeat a part of the section COMMANDS.
        let paragraphs = text.blocks.iter().filter(|block| matches!(block, Block::Paragraph(_)));
        paragraphs.for_each(|block| push(&mut page, block));
        page.heading("COMMANDS");
        for (name, text) in commands {
            page.item(&format!("{}-{name}(1)", self.name), self.summary_of(name, text));
        }
        page.heading("OPTIONS");
        page.item("--list-commands", "Print the names of the commands.");
        page.item("--version", "Print the version.");
        page.heading("EXIT STATUS");
        page.item("0", "Success.");
        page.item("1", "There is no such command.");
        page.item("4", "Wrong usage: the usage is printed on standard output, the error on standard error.");
        page.item("other", "The errno of the first failure, such as 2 (no such file or directory).");
        page.heading("SEE ALSO");
        page.paragraph("sheen(1), mount.sheen(8)");
        self.push_document(&mut page);
        page
    }

    fn page(&self, command: &str, text: &UsageText) -> Page {
        let name = format!("{}-{command}", self.name);
        let mut page = Page::new(&name, USER_COMMANDS);
        page.name_section(&name, self.summary_of(command, text));
        self.synopsis(&mut page, text);
        let (options, others): (Vec<_>, Vec<_>) = text.blocks.iter().partition(|block| is_option(block));
        for (heading, blocks) in [("DESCRIPTION", others), ("OPTIONS", options)] {
            if !blocks.is_empty() {
                page.heading(heading);
            }
            blocks.into_iter().for_each(|block| push(&mut page, block));
        }
        page.heading("SEE ALSO");
        page.paragraph(&format!("{}(1), sheen(1)", self.name));
        self.push_document(&mut page);
        page
    }

    fn synopsis(&self, page: &mut Page, text: &UsageText) {
        page.heading("SYNOPSIS");
        for call in &text.calls {
            if let Some(purpose) = &call.purpose {
                page.paragraph(purpose);
            }
            let (command, arguments) = call.split();
            match command {
                Some(command) => page.call(&format!("{} {command}", self.name), &arguments),
                None => page.call(self.name, &arguments),
            }
        }
    }

    fn summary_of<'a>(&self, command: &str, text: &'a UsageText) -> &'a str {
        let ours = SUMMARIES.iter().find(|(name, _)| *name == command).map(|(_, summary)| *summary);
        ours.or_else(|| text.summary()).unwrap_or(self.summary)
    }

    fn push_document(&self, page: &mut Page) {
        page.paragraph(&format!("The document docs/{}.md explains all options, with examples.", self.name));
    }
}

fn push(page: &mut Page, block: &Block) {
    match block {
        Block::Paragraph(text) => page.paragraph(text),
        Block::Item(term, meaning) => page.item(term, meaning),
    }
}

fn is_option(block: &Block) -> bool {
    matches!(block, Block::Item(term, _) if term.len() > 1 && term.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(file: &str) -> String {
        pages().iter().find(|page| page.file_name() == file).unwrap().text().to_owned()
    }

    #[test]
    fn pages_of_lfs_show_calls_and_purposes() {
        let text = page("lfs-mkdir.1");
        assert!(
            text.contains("\nlfs\\-mkdir \\- Create striped directory on specified MDT, same as setdirstripe\n"),
            "{text}"
        );
        assert!(text.contains(".HP 4\n\\fBlfs mkdir\\fR\n[OPTION]\n<directory>\n"), "{text}");
        assert!(text.contains("To create dir with a foreign (free format) layout :\n.HP 4\n\\fBlfs\\fR\n"), "{text}");
        let text = page("lfs-migrate.1");
        assert_eq!(text.matches(".HP").count(), 2, "{text}");
        assert!(text.contains("\nlfs\\-migrate \\- move files to another layout"), "{text}");
        assert!(text.contains("from one OST layout to another (safe while others read and write"), "{text}");
        let text = page("lfs.1");
        assert!(
            text.contains("\\fBlfs\\-getstripe(1)\\fR\nList the layout pattern for a given file or files"),
            "{text}"
        );
    }

    #[test]
    fn pages_of_lctl_have_lists_and_options() {
        let text = page("lctl-nodemap_modify.1");
        assert!(text.contains(".TP\n\\fBdeny_unknown\\fR\n1: squashed users are refused\n"), "{text}");
        let text = page("lctl-dl.1");
        assert!(text.contains(".SH OPTIONS\n.TP\n\\fB\\-t\\fR\nwith the NID of the other end\n"), "{text}");
        let text = page("lctl-deactivate.1");
        assert!(text.contains(".HP 4\n\\fBlctl\\fR\n\\-\\-device\\ DEVICE\ndeactivate\n"), "{text}");
        let text = page("lctl.1");
        assert!(!text.contains("devices: targets") && text.contains("\\fBlctl\\-set_param(1)\\fR"), "{text}");
    }
}
