//! Usage of `lfs find`, in Lustre's wording.

/// `find`
pub const FIND: &str = "\
find files matching given attributes recursively in directory tree.
usage: find <directory|filename> ...
     [[!] --atime|-A [+-]N[smhdwy]] [[!] --btime|-B [+-]N[smhdwy]]
     [[!] --ctime|-C [+-]N[smhdwy]] [[!] --mtime|-M [+-]N[smhdwy]]
     [[!] --attrs=[^]ATTR[,...]]
     [[!] --blocks|-b N] [[!] --component-count [+-]<comp_cnt>]
     [[!] --component-start [+-]N[kMGTPE]]
     [[!] --component-end|-E [+-]N[kMGTPE]]
     [[!] --component-flags {init,stale,prefer,prefrd,prefwr,offline,nosync,extension}]
     [[!] --extension-size|--ext-size|-z [+-]N[kMGT]]
     [[!] --foreign[=<foreign_type>]]
     [[!] --gid|-g|--group|-G <gid>|<gname>] [--help|-h]
     [[!] --layout|-L released,raid0,mdt] [--lazy|-l] [[!] --links [+-]n]
     [--maxdepth|-D N] [--mindepth|-d N]
     [[!] --mdt-count|-T [+-]<stripes>]
     [[!] --mdt-hash|-H <[^][blm],[^]fnv_1a_64,all_char,crush,...>
     [[!] --mdt-index|--mdt|-m <uuid|index,...>]
     [[!] --mirror-count|-N [+-]<n>]
     [[!] --mirror-state <[^]state>]
     [[!] --name|-n <pattern>] [[!] --newer[XY] <reference>]
     [[!] --ost|-O <uuid|index,...>] [[!] --perm [/-]mode]
     [[!] --pool <pool>] [--print|-P] [--print0|-0] [--printf <format>]
     [[!] --projid <projid>] [[!] --size|-s [+-]N[bkMGTPE]]
     [--skip|-k PERCENT] [[!] --stripe-count|-c [+-]<stripes>]
     [[!] --stripe-index|-i <index,...>]
     [[!] --stripe-size|-S [+-]N[kMGT]] [--threads N]
     [[!] --type|-t <filetype>]
     [[!] --uid|-u|--user|-U <uid>|<uname>]
\t !: used before an option indicates 'NOT' requested attribute
\t -: used before a value indicates less than requested value
\t +: used before a value indicates more than requested value
\t ^: used before a flag indicates to exclude it

";
