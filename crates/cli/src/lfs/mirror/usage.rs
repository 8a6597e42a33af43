//! Usage of `lfs mirror`.

/// Usage of all commands.
pub const USAGE: &str = "\
lfs commands used to manage files with mirrored components:\n\
usage: lfs mirror create [--mirror-count|-N[COUNT]] [SETSTRIPE_OPTIONS] ... <FILE|DIRECTORY> ...\n\
       lfs mirror extend [--mirror-count|-N[COUNT|=TOTAL]] [SETSTRIPE_OPTIONS|-f VICTIM_FILE [--no-verify]] ...\n\
                         [--bandwidth|-W BANDWIDTH_MB[MG]] [--stats] [--stats-interval SECONDS] <FILE> ...\n\
       lfs mirror split {--mirror-id MIRROR_ID} [--destroy|-d] [-f NEW_FILE] <FILE>\n\
       lfs mirror delete {--mirror-id MIRROR_ID} <FILE>\n\
       lfs mirror resync [--only MIRROR_ID[,...]] [--bandwidth|-W BANDWIDTH_MB[MG]]\n\
                         [--stats] [--stats-interval SECONDS] <FILE> ...\n\
       lfs mirror verify [--only MIRROR_ID,MIRROR_ID[,...]] [--verbose|-v] <FILE> ...\n\
       lfs mirror read {--mirror-id|-N MIRROR_ID} [--outfile|-o FILE] <FILE>\n\
       lfs mirror write {--mirror-id|-N MIRROR_ID} [--inputfile|-i FILE] <FILE>\n\
       lfs mirror copy {--read-mirror|-i MIRROR_ID} {--write-mirror|-o MIRROR_ID[,...]} <FILE>\n\
";
