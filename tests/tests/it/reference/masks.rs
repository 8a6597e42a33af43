//! Masks: values that differ from run to run or from host to host (ids, free space, times,
//! addresses) are replaced before two answers are compared. Spacing and widths of columns stay.

use std::{collections::BTreeSet, sync::LazyLock};

use regex::{Captures, Regex};

use super::placement::Placement;

/// Stands for the character NUL in records, which are text.
pub const NUL: char = '\u{2400}';

/// Commands that list in an order that each system has of its own: that of a directory's hashes,
/// or of the creation of pools and attributes.
const UNORDERED: &[&str] = &[
    "lfs find ",
    "lfs getdirstripe -r ",
    "lfs project ",
    "touch pj/g; lfs project ",
    "lfs pool_list ",
    "lctl pool_list ",
    "attr -l ",
];

/// Patterns and replacements.
const MASKS: &[(&str, &str)] = &[
    // FIDs of files and objects: sequences from 0x200000400 on. Smaller ones, such as those of old
    // objects, are compared exactly.
    (r"\[0x[2-9a-f][0-9a-f]{8,}:0x[0-9a-f]+:0x0\]", "[<fid>]"),
    (r"\b0x[2-9a-f][0-9a-f]{8,}:0x[0-9a-f]+:0x0", "<fid>"),
    (r"(?m)^( *lmm_(?:seq|object_id): +)0x[0-9a-f]+$", "${1}<id>"),
    // Checksums of random bytes.
    (r"(?m)^(Mirror \d+:\t)0x[0-9a-f]+", "${1}<crc>"),
    (r"\b(mirror \d+):[0-9a-f]{7,8}\b", "${1}:<crc>"),
    // A mount's instance (and no layout's magic), a client's uuid, an address.
    (r"(?m)^[0-9a-f]{16}$", "<instance>"),
    (r"-[0-9a-f]{16}\b", "-<instance>"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (r"\d+\.\d+\.\d+\.\d+(:\d+)?@tcp\b", "<nid>"),
    // lfs find: times as ctime(3) has them and in seconds.
    (
        r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)  ?\d?\d \d\d:\d\d:\d\d \d{4}\b",
        "<ctime>",
    ),
    (r"\b1[78]\d{8}\b", "<seconds>"),
    // ls -l, ls -i, stat, dd.
    (r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)  ?\d?\d  ?\d\d:?\d\d\b", "<date>"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{9} \+0000", "<time>"),
    (r"(?m)^\d+ (-rw|drw)", "<inode> ${1}"),
    (r"(?m)^(Device: )\S+(\s+Inode: )\d+ +", "${1}<device>${2}<inode> "),
    (r"(copied, )[\d.e-]+ s, [\d.]+ [kMG]?B/s", "${1}<speed>"),
    (r"(regular empty file) \d+", "${1} <inode>"),
    // Counts of statahead, which depend on the time that attributes take.
    (
        r"(?m)^((?:statahead|agl|contents) total|(?:list|fname|hit|miss)_total|statahead wrong|readdir pages): \d+$",
        "${1}: #",
    ),
    // Versions of the programs.
    (r"(?m)^((?:lfs |lctl |version=)?)(?:2\.17\.57_\S+|\d+\.\d+\.\d+)$", "${1}<version>"),
    // A default that follows from the memory of the host.
    (r"(?m)(max_read_ahead_mb(?:==|: ))\d+$", "${1}#"),
    // Rates of a migration.
    (r"(?m)^(- \{ seconds: )\d+(, rmbps: ) *\d+(, wmbps: ) *\d+", "${1}#${2}#${3}#"),
    // The size of a file that fills an OST: 10 MB or more.
    (r"(?m)^(<inode> -rw-r--r-- 1 root root) [1-9]\d{7,}( <date> full)$", "${1} #${2}"),
    // Sizes of statfs.
    (r"(?m)^(Blocks: Total: |Inodes: Total: )\d+ +(Free: )\d+(?: +(Available: )\d+)?", "${1}# ${2}# ${3}#"),
    (r"(?m)^(\w+ [0-9a-f]+ 4096 4096) \d+ \d+ \d+ \d+ \d+ 255$", "${1} # # # # # 255"),
    (r"\bID: [0-9a-f]+ +", "ID: # "),
    (r"(?m)^\d+ \d+ \d+:\d+ / /mnt", "# # # / /mnt"),
    // The capacity of a pipe on this host.
    (r"\bmax_read=\d+", "max_read=#"),
    // A file's own FID, and that of the directory for each of its names. In `lma` the bit 4 means a
    // parent on another MDT, and the recorded file system has two MDTs.
    (r"(?m)^(trusted\.lma=0x00000000)0[04](000000)[0-9a-f]{32}$", "${1}00${2}<fid>"),
    (r"(?m)^(trusted\.link=0xdff1ea11[0-9a-f]{44})[0-9a-f]{32}", "${1}<fid>"),
    // The directory of the second name of `c2`.
    (r"(<fid>63320018)[0-9a-f]{32}", "${1}<fid>"),
    // Inode numbers, which follow from FIDs.
    (r"\b144115\d{12}\b", "<inode>"),
    // getconf's constants of this host, not of the file system.
    (r"(?m)^((?:LOGNAME|TTY_NAME|HOST_NAME|LOGIN_NAME|CHARCLASS_NAME)_MAX +)\d+$", "${1}#"),
];

/// The numbers in a row of `df` or `lfs df`. Cells keep their widths.
static DF_ROW: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?m)^(\S+ +[\d.]+[kKMGTP]? +[\d.]+[kKMGTP]? +[\d.]+[kKMGTP]? +\d+%)( .*)$"));
static DF_CELL: LazyLock<Regex> = LazyLock::new(|| regex(r" +[\d.]+([kKMGTP]?)"));
/// Use of the superuser, who owns the files of all cases.
static ROOT_USE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^( +/mnt/c1) +\d+( .* -) +\d+( .* - )$"));
/// Space in use of an ordinary user, which depends on the OSTs' file system.
static USER_SPACE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^( +/mnt/c1) +\d+(\*? .*)$"));
/// A composite layout in hexadecimal. The number of components is in the third group.
static COMPOSITE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?m)^(\w+\.lov=0x)(d00bd60b[0-9a-f]{20}([0-9a-f]{4})[0-9a-f]{32})([0-9a-f]+)$"));
static BLANKS: LazyLock<Regex> = LazyLock::new(|| regex(" +"));
/// The output of dd(1) that met a full OST or a limit of space. Less than 1 MB is not masked.
static COPIED: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?m)^(?:[1-9]\d*(\+0 records (?:in|out))|[1-9]\d{6,}( bytes)(?: \(.*\))?( copied))"));
/// The data version of a file with data.
static DATA_VERSION: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^\d{10,}$"));
/// A row of getstripe's table: index, object, object, group.
static OBJECT_ROW: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?m)^(\t *\S+)\t( *\d+)\t( *0x[0-9a-f]+)\t( *0x[0-9a-f]+)( \*)?$"));
/// The OSTs of components and mirrors, which the file system seldom leaves to the user.
static COMPONENTS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let all = [
        (r"(l_ost_idx: +)\d+(, l_fid)", "${1}#${2}"),
        (r"(?m)^(      lmm_stripe_offset: )\d+$", "${1}#"),
        (r"(?m)^(      - l_ost_idx: )\d+(\n        l_fid)", "${1}#${2}"),
    ];
    all.iter().map(|(r, to)| (regex(r), *to)).collect()
});
/// The number, the references of targets, and the NID of the other end in lists of devices. A
/// client may use another address than the recorded one. The recorded servers had more clients.
static DEVICES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let all = [
        (r"(?m)^ *\d+ (UP|IN) ", "# ${1} "),
        (r"(?m)^(# UP (?:mdt|obdfilter) \S+ \S+) \d+", "${1} #"),
        (r"(?m) (?:0@lo|<nid>)$", " <peer>"),
    ];
    all.iter().map(|(r, to)| (regex(r), *to)).collect()
});
static ALL: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| MASKS.iter().map(|(r, to)| (regex(r), *to)).collect());

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"))
}

/// Masks `text`. `placement` knows for which files the user chose the OSTs.
pub fn mask(text: &str, command: &str, placement: &Placement) -> String {
    let text = COMPONENTS.iter().fold(text.to_owned(), |text, (r, to)| r.replace_all(&text, *to).into_owned());
    let mut text = placement.mask(&text, command);
    if UNORDERED.iter().any(|start| command.starts_with(start)) {
        let mut lines: Vec<&str> = text.split_inclusive(['\n', NUL]).collect();
        lines.sort_unstable();
        // Lustre repeats the warning about a directive.
        lines.dedup_by(|a, b| a == b && a.starts_with("lfs find: warning: "));
        text = lines.concat();
    }
    if command.starts_with("lfs getstripe ") {
        text = sort_entries(&text, command.split(' ').next_back().unwrap_or_default());
    }
    text = OBJECT_ROW.replace_all(&text, object_row).into_owned();
    text = COMPOSITE.replace_all(&text, composite).into_owned();
    text = DF_ROW
        .replace_all(&text, |c: &Captures| format!("{}{}", DF_CELL.replace_all(&c[1], blank_cell), &c[2]))
        .into_owned();
    if ["lfs quota -u root /mnt/c1", "lfs quota /mnt/c1"].contains(&command) {
        text = ROOT_USE.replace_all(&text, "${1} #${2} #${3}").into_owned();
    }
    if command == "lfs quota -u 65534 /mnt/c1" {
        text = USER_SPACE.replace_all(&text, "${1} #${2}").into_owned();
    }
    if text.contains("No space left on device") || text.contains("Disk quota exceeded") {
        text = COPIED.replace_all(&text, "#${1}${2}${3}").into_owned();
    }
    if command.starts_with("lfs data_version ") {
        text = DATA_VERSION.replace_all(&text, "<version>").into_owned();
    }
    if command.starts_with("df ") || command.ends_with("; df /mnt/c1") {
        // The columns of df(1) are as wide as their contents.
        text = BLANKS.replace_all(&text, " ").into_owned();
    }
    for (pattern, to) in ALL.iter() {
        text = pattern.replace_all(&text, *to).into_owned();
    }
    if command.starts_with("lctl dl") { devices(&text) } else { text }
}

/// Masks a list of devices. Devices are listed in the order in which they were set up, and those of
/// two mounts look the same.
fn devices(text: &str) -> String {
    let text = DEVICES.iter().fold(text.to_owned(), |text, (r, to)| r.replace_all(&text, *to).into_owned());
    let lines: BTreeSet<&str> = text.split_inclusive('\n').collect();
    lines.into_iter().collect()
}

/// Sorts the entries below a directory, whose order depends on hashes. An entry begins with its
/// path, and is followed by its layout.
fn sort_entries(text: &str, dir: &str) -> String {
    let below = format!("{dir}/");
    let mut entries = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.starts_with(&below) {
            entries.push(String::new());
        }
        entries.last_mut().expect("never empty").push_str(line);
    }
    entries[1..].sort_unstable();
    entries.concat()
}

/// Masks the parts of a composite layout behind its header and the entries of its components: each
/// part names the file and its objects.
fn composite(c: &Captures) -> String {
    // A number of two bytes, the lower one first.
    let count = u16::from_str_radix(&c[3], 16).map_or(0, u16::swap_bytes);
    let entries = c[4].get(..96 * usize::from(count)).unwrap_or(&c[4]);
    format!("{}{}{entries}<parts>", &c[1], &c[2])
}

/// Masks the ids in a row, if they fill their columns.
fn object_row(c: &Captures) -> String {
    let widths = [c[2].len(), c[3].len(), c[4].len()];
    if widths != [14, 13, 14] {
        return c[0].to_owned();
    }
    format!("{}\t<14 wide>\t<13 wide>\t<14 wide>{}", &c[1], c.get(5).map_or("", |m| m.as_str()))
}

fn blank_cell(c: &Captures) -> String {
    // Lustre's cells with a unit letter are two columns narrower.
    format!("{:>1$}", "#", c[0].len() + if c[1].is_empty() { 0 } else { 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_replaces_varying_values_and_keeps_the_rest() {
        let mask = |text: &str| mask(text, "", &Placement::default());
        assert_eq!(mask("x [0x200000402:0x1b9:0x0] y"), "x [<fid>] y");
        assert_eq!(mask("0x100010000:0x0:0x0"), "0x100010000:0x0:0x0");
        let row = "\t  0x2\t            18\t         0x12\t   0x300000401\n";
        assert_eq!(mask(row), "\t  0x2\t<14 wide>\t<13 wide>\t<14 wide>\n");
        let narrow = row.replacen("            18", "18", 1);
        assert_eq!(mask(&narrow), narrow);
        let df = "lustre-OST0000_UUID       733980        6648      671332   1%  /mnt/c1[OST:0] \n";
        let wider = "lustre-OST0000_UUID     73398000        6648      671332  31%  /mnt/c1[OST:0] \n";
        assert_eq!(mask(df), mask(wider));
        assert_ne!(mask(df), mask(&df.replacen(" 6648", "  6648", 1)));
        let entry = "11".repeat(48);
        let composite = format!("lustre.lov=0xd00bd60b{}0100{}{entry}", "0".repeat(20), "0".repeat(32));
        assert_eq!(mask(&format!("{composite}0123\n")), format!("{composite}<parts>\n"));
        let lov = "d00bd10b0100000002000000000000000204000002000000000040000200ffff010400c00200000002000000000000000000000003000000010400c00200000002000000000000000000000000000000";
        assert_eq!(mask(lov), "d00bd10b01000000 <fid> 00004000 0200 ffff <object> 00000000 +0 <object> 00000000 +1");
        for date in ["Nov 21 19:43", "Dec  1 00:16", "Dec 1 00:16", "Dec  1  2026"] {
            assert_eq!(mask(&format!("12 {date} f")), "12 <date> f");
        }
        let full = |count: &str, bytes: &str| {
            mask(&format!("dd: No space left on device\n{count}+0 records out\n{bytes} copied, 1 s, 1 MB/s"))
        };
        assert_eq!(full("16", "16777216 bytes (17 MB, 16 MiB)"), full("612", "642043904 bytes (642 MB, 612 MiB)"));
        assert_eq!(full("0", "0 bytes"), "dd: No space left on device\n0+0 records out\n0 bytes copied, <speed>");
        let list = "  9 UP mdt a a_UUID 7\n 10 UP osc b-ff3298de21e05800 c 5 0@lo\n 11 UP osc b-ff3298de239be800 c 5 1.2.3.4:5@tcp\n";
        let masked = "# UP mdt a a_UUID #\n# UP osc b-<instance> c 5 <peer>\n";
        assert_eq!(super::mask(list, "lctl dl -t", &Placement::default()), masked);
    }
}
