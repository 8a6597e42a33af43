//! Usage texts of the commands, in Lustre's wording where Lustre has the command.

/// The lines about mirrors and stripes that the usages of `setstripe` and `migrate` share.
macro_rules! stripes {
    () => {
        "\
\t\t[--mirror-count|-N[MIRROR_COUNT]]\n\
\t\t[--ost|-o OST_INDEX[,OST_INDEX,...]]\n\
\t\t[--overstripe-count|-C STRIPE_COUNT]\n\
\t\t[--pool|-p POOL_NAME]\n\
\t\t[--stripe-count|-c STRIPE_COUNT]\n\
\t\t[--stripe-index|-i START_OST_IDX]\n\
\t\t[--stripe-size|-S STRIPE_SIZE]\n"
    };
}

/// `setstripe`
pub const SETSTRIPE: &str = concat!(
    "\
Create a file with specified striping/composite layout, or\n\
set the default layout on an existing directory.\n\
Usage: setstripe   [--component-add|--component-del|--delete|-d]\n\
\t\t[--comp-set --comp-id|-I COMP_ID|--comp-flags=COMP_FLAGS]\n\
\t\t[--component-end|-E END_OFFSET]\n\
\t\t[--copy=SOURCE_LAYOUT_FILE]|--yaml|-y YAML_TEMPLATE_FILE]\n\
\t\t[--ec|--ec-stripe-count DATA+PARITY]\n\
\t\t[--ec-expert DATA+PARITY]\n\
\t\t[--extension-size|--ext-size|-z EXT_SIZE]\n\
\t\t[--help|-h]\n\
\t\t[--foreign=FOREIGN_TYPE --xattr|-x LAYOUT]\n\
\t\t[--layout|-L PATTERN] [--mode FILE_MODE]\n",
    stripes!(),
    "\t\tFILENAME|DIRECTORY\n\
\n\
"
);

/// `migrate`
pub const MIGRATE: &str = concat!(
    "\
migrate directories and their inodes between MDTs.\n\
usage: migrate --mdt-index|-m MDT_INDEX[,MDT_INDEX,...] [--verbose|-v] DIRECTORY ...\n\
\n\
migrate file objects from one OST layout to another\n\
(safe while others read and write the files).\n\
Usage: migrate   [--component-end|-E END_OFFSET]\n\
\t\t[--copy=SOURCE_LAYOUT_FILE]|--yaml|-y YAML_TEMPLATE_FILE]\n\
\t\t[--extension-size|--ext-size|-z EXT_SIZE]\n\
\t\t[--help|-h]\n\
\t\t[--layout|-L PATTERN]\n",
    stripes!(),
    "\t\t[--bandwidth|-W BANDWIDTH_MB[MG]]\n\
\t\t[--auto|--auto-stripe|-A]\n\
\t\t[--block|-b] [--non-block|-n] [--checksum]\n\
\t\t[--non-direct|-D] [--verbose|-v]\n\
\t\t[--restripe] [--stats] [--stats-interval SECONDS]\n\
\t\t-0|--null|--files-from=LIST_FILE|FILENAME ...\n\
\n\
"
);

/// Lustre's usage of `getstripe`, with `$more` before its last line.
macro_rules! getstripe {
    ($more:literal) => {
        concat!(
            "\
List the layout pattern for a given file or files in a\n\
directory or recursively for all files in a directory tree.\n\
Usage: getstripe [--ost|-O OST_NAME] [--quiet|-q] [--verbose|-v]\n\
\t\t   [--stripe-count|-c] [--stripe-index|-i] [--fid|-F]\n\
\t\t   [--pool|-p] [--stripe-size|-S] [--directory|-d]\n\
\t\t   [--mdt-index|-m] [--recursive|-r] [--raw|-R]\n\
\t\t   [--layout|-L] [--generation|-g] [--yaml|-y]\n\
\t\t   [--help|-h] [--hex-idx]\n\
\t\t   [--component-id|-I[=COMP_ID]]\n\
\t\t   [--component-flags[=COMP_FLAGS]]\n\
\t\t   [--component-count]\n\
\t\t   [--extension-size|--ext-size|-z]\n\
\t\t   [--component-start[=[+-]START_OFFSET]]\n\
\t\t   [--component-end|-E[[+-]END_OFFSET]]\n\
\t\t   [[!] --mirror-index=[+-]MIRROR_INDEX |\n\
\t\t   [!] --mirror-id=[+-]MIRROR_ID] [--mirror-count|-N]\n\
\t\t   [--no-follow]\n",
            $more,
            "\t\t   FILENAME|DIRECTORY\n"
        )
    };
}

/// `getstripe`: for usage errors and `--help`
pub const GETSTRIPE: &str = getstripe!("");

/// `lfs help getstripe`: also lists the options that Lustre does not have
pub const GETSTRIPE_HELP: &str = getstripe!("\t\t   [--draw[=FILE.svg]]\n");

/// `df`
pub const DF: &str = "\
report filesystem disk space usage or inodes usage of each MDS and all OSDs or a batch belonging to a specific pool.\n\
Usage: df [--inodes|-i] [--human-readable|-h] [--lazy|-l]\n\
[--mdt|-m[INDEX]] [--ost|-o[INDEX]] [--output|-u FIELD_LIST] [--no-header|-N]\n\
[--only-summary|-s] [--pool|-p FSNAME[.POOL]] [PATH]\n\
";

/// `check`
pub const CHECK: &str = "\
Display the status of MGTs, MDTs or OSTs (as specified in the command)\n\
or all the servers (MGTs, MDTs and OSTs) [for specified path only].\n\
usage: check {mgts|osts|mdts|all} [PATH]\n\
";

/// `getname`
pub const GETNAME: &str = "\
list instances and specified mount points [for specified path only]\n\
Usage: getname [--help|-h] [--instance|-i] [--fsname|-n] [--uuid|-u]\n\
\t\t [PATH ...]\n\
";

/// `fid2path`
pub const FID2PATH: &str = "\
Resolve the full path(s) for given FID(s). For a specific hardlink specify link number <linkno>.\n\
usage: fid2path [--print0|-0] [--print-fid|-f] [--print-link|-c] [--link|-l <linkno>] [--name|-n] <fsname|root> <fid>...\n\
";

/// `path2fid`
pub const PATH2FID: &str = "\
Display the fid(s) for a given path(s).\n\
usage: path2fid [--parents] <path> ...\n\
";

/// `ladvise`
pub const LADVISE: &str = "\
Provide servers with advice about access patterns for a file.\n\
usage: ladvise [--advice|-a ADVICE] [--start|-s START[kMGT]]\n\
               [--background|-b] [--unset|-u]\n\n\
               {--end|-e END[kMGT]|--length|-l LENGTH[kMGT]}\n\
               {[--mode|-m [READ,WRITE]}\n\
               <file> ...\n\
";

/// `group_lock`
pub const GROUP_LOCK: &str = "\
Run a command while this mount holds a group lock on a file.\n\
usage: group_lock --gid|-g GID [--nonblock|-n] <file> <command> [ARGS]...\n\
";

/// `lfs help`
pub const LFS: &str = "\
usage: lfs [COMMAND] [OPTIONS]... [ARGS]\n\
Without any parameters, interactive mode is invoked\n\
Try 'lfs help <COMMAND>', or 'lfs --list-commands' for a list of commands.\n\
";

/// `osts`
pub const OSTS: &str = "\
list OSTs connected to client [for specified path only]\n\
usage: osts [PATH]\n\
";

/// `mdts`
pub const MDTS: &str = "\
list MDTs connected to client [for specified path only]\n\
usage: mdts [PATH]\n\
";
