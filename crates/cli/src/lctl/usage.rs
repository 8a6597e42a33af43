//! The texts of `lctl help`.

/// Exit code of a usage error: that of Lustre's CMD_HELP.
pub const EXIT: i32 = 4;

/// Printed if no command is given.
pub const TOP: &str = "\
usage: lctl [--fsname NAME] COMMAND [OPTIONS]... [ARGS]
Shows and sets parameters of the Sheen processes on this machine:
of all file systems, or of one with --fsname. Without a command
it reads commands from standard input, one per line.

  dl           devices: targets, services and the clients' connections to them
  deactivate   stop using an OST (--device DEVICE); activate uses it again
  get_param    values of parameters, by name or pattern
  set_param    set parameters; with -P, or by conf_param, permanently
  list_param   names of parameters
  list_nids    network identifiers of this machine
  ping         whether a server answers
  which_nid    the nearest of several NIDs
  llog_print   permanent settings, or targets and pools; llog_catlist lists the logs
  del_ost      remove an OST from a file system for good
  abort_recovery   end the wait of a restarted server for missing mounts
  lfsck_start  check an MDT or an OST; lfsck_query shows the result, lfsck_stop ends it
  changelog_register   record the changes of an MDT for a user; changelog_deregister
  pool_new     make a pool of OSTs; pool_add, pool_remove, pool_destroy, pool_list
  nodemap_add  rules for the clients at some addresses, or with some keys; nodemap_activate,
               nodemap_modify, nodemap_info and other nodemap commands

Try 'lctl help COMMAND', or 'lctl --list-commands' for a list of commands.
";

const DL: &str = "\
show all the devices
usage: dl [--target|-t] [--yaml|-y] [--fsname NAME]
   -t   with the NID of the other end
   -y   as YAML
";
const LIST_NIDS: &str = "\
print local NIDs
usage: list_nids [--fsname NAME]
";
const PING: &str = "\
check whether a server answers at a NID
usage: ping NID [SECONDS]
";
const WHICH_NID: &str = "\
choose a NID
Prints the first of the NIDs with the smallest distance: those of this host
come before those of other hosts. NIDs without a route are left out.
usage: which_nid NID [NID...]
";
const DEVICE: &str = "\
set the device of activate, deactivate and abort_recovery in interactive mode
usage: device <name|number>
";
const GET_PARAM: &str = "\
get the Lustre or LNET parameter
get value of Lustre or LNet parameter(s) from specified path,
which can contain shell-style filename patterns.
usage: get_param [--dshbak|-b] [--color|-c auto|always|never] [--classify|-F]
                 [--header|-H] [--links|-l] [--no-links|-L]
                 [--merge|-m] [--no-merge|-M] [--no-name|-n] [--only-name|-N]
                 [--module|-o] [--path|-p] [--readable|-r] [--recursive|-R]
                 [--only-tunable|-t] [--writable|-w] [--yaml|-y]
                 [--json] [--fsname NAME]
                 PARAM1 [PARAM2 ...]

";
const SET_PARAM: &str = "\
set the Lustre or LNET parameter
set value of Lustre or LNet parameter(s) at the specified path,
which can contain shell-style filename patterns. A size may be
given as 64K, 4M or 1G. With -P, on the MGS, the setting is permanent:
it is applied wherever the pattern matches, and again whenever a process
starts; -d deletes such a setting and leaves the current values unchanged.
-F makes the settings permanent that 'llog_print params' printed to a file.
A pattern applies to all file systems of this machine; with --fsname
it applies only to that one.
usage: set_param [--no-name|-n] [--permanent|-P] [--fsname NAME]
                 PARAM1=VALUE1 [PARAM2=VALUE2 ...]
       set_param --permanent|-P --delete|-d PARAM1 [PARAM2 ...]
       set_param --file|-F FILE1 [FILE2 ...]

";
const LIST_PARAM: &str = "\
list the Lustre or LNET parameter names
which can contain shell-style filename patterns.
usage: list_param [--dshbak|-b] [--color|-c[auto|always|never]] [--classify|-F]
                  [--dir-only|-D] [--links|-l] [--no-links|-L] [--merge|-m]
                  [--no-merge|-M] [--module|-o] [--path|-p] [--readable|-r]
                  [--recursive|-R] [--writable|-w] [--fsname NAME]
                  PARAM1 [PARAM2 ...]

";
const CONF_PARAM: &str = "\
set a permanent config parameter.
This command must be run on the MGS node
usage: conf_param [--delete|-d] <target.keyword=val>
  -d  Delete the permanent setting from the configuration.
";
const LLOG_PRINT: &str = "\
print the permanent settings (set_param -P), or the targets and pools of a file system
usage: [--device MGS | --fsname NAME] llog_print [--start INDEX] [--end INDEX] {params|FSNAME-client}
";
const LLOG_CATLIST: &str = "\
list the logs that llog_print prints
usage: [--device MGS | --fsname NAME] llog_catlist
";
const ACTIVATE: &str = "\
use an OST again
usage: --device DEVICE activate
";
const DEACTIVATE: &str = "\
stop using an OST: this process sends it no requests, until it ends
or the device is activated again. DEVICE is a connection to an OST, by
its name or number in 'lctl dl'. Permanent and for all processes:
lctl set_param -P osc.<fsname>-OST0001-osc-*.active=0, on the MGS.
usage: --device DEVICE deactivate
";
const ABORT_RECOVERY: &str = "\
end the recovery of a server without the clients that have not recovered
Their uncommitted changes or dirty data are lost. DEVICE is an MDT or OST,
by its name or number in 'lctl dl'; lctl get_param *.*.recovery_status
shows whether it waits.
usage: --device DEVICE abort_recovery
";
const LFSCK_START: &str = "\
check an MDT or OST in the background
usage: lfsck_start {-M|--device} DEVICE [{-t|--type} TYPE[,TYPE...]]
                   [-o|--repair]
       lfsck_start {-A|--all} [{-t|--type} TYPE[,TYPE...]] [-o|--repair]
  namespace  of an MDT: names, inodes, layouts, and the objects of the OSTs
  layout     the same check
  scrub      of an OST: objects against their stored checksums; damaged
             blocks of mirrored files are repaired from another mirror
  all        default
  -o|--orphan  an object that belongs to no file becomes a file in
               /lost+found; it is destroyed if it is empty (namespace only)
  --repair     repairs names, link counts, numbers of files and orphan
               objects as well, while programs run (namespace only)
lctl lfsck_query lists what was found, what was repaired, and what only
'sheen fsck --repair' can repair on a stopped MDT. Without -o and --repair
nothing is repaired.
";
const LFSCK_STOP: &str = "\
end the check of an MDT or OST
usage: lfsck_stop {-M|--device} DEVICE
       lfsck_stop {-A|--all}
";
const LFSCK_QUERY: &str = "\
print the state of the check of an MDT or OST, and what was found
For damaged and repaired blocks it prints the FID of the file;
'lfs fid2path MOUNT FID' prints the file's paths.
usage: lfsck_query {-M|--device} DEVICE [{-t|--type} TYPE[,TYPE...]]
       lfsck_query {-A|--all}
";
const CHANGELOG_REGISTER: &str = "\
register a new user of the changelog of an MDT
Run it where the MDT runs. It prints the id of the user, for
'lfs changelog_clear' and changelog_deregister. The MDT holds the records
of changes until all users have cleared them.
usage: --device FSNAME-MDT0000 changelog_register [-n] [--user|-u NAME]
                                                  [--mask|-m MASK]
  -n  print only the id
  -u  a name that becomes a part of the id
  -m  types of records: 'CREAT UNLNK', or '+ATIME -CLOSE' to change the default
";
const CHANGELOG_DEREGISTER: &str = "\
deregister a user of the changelog of an MDT
usage: --device FSNAME-MDT0000 changelog_deregister {ID | --user|-u NAME}
";
const DEL_OST: &str = "\
permanently remove an OST from a file system
Run it where the MGS runs. The OST must be deactivated before:
lctl set_param -P osc.FSNAME-OSTxxxx-osc-*.active=0
Data that is still on the OST cannot be reached any more. The index is not
used again.
usage: del_ost [--dryrun|-n] --target|-t FSNAME-OSTxxxx
";
const POOL_NEW: &str = "\
add a new pool
usage: pool_new <fsname>.<poolname>
";
const POOL_ADD: &str = "\
add the named OSTs to the pool
usage: pool_add <fsname>.<poolname> <ostname indexed list>
";
const POOL_REMOVE: &str = "\
remove the named OST from the pool
usage: pool_remove <fsname>.<poolname> <ostname indexed list>
";
const POOL_DESTROY: &str = "\
destroy a pool
usage: pool_destroy <fsname>.<poolname>
";
const POOL_LIST: &str = "\
list pools and pools members
usage: pool_list  <fsname>[.<poolname>] | <pathname>
";
const NODEMAP_ACTIVATE: &str = "\
activate the nodemaps of clients' addresses, and the nodemap 'default' for
clients at other addresses; 0 deactivates them. The nodemap that a key names
applies in both cases. Nodemaps never apply to holders of a key of the cluster
itself. Set up 'default' first: unless it was modified, it squashes all users.
usage: nodemap_activate {0|1}
";
const NODEMAP_ADD: &str = "\
add a new nodemap
It squashes all users until it is modified. Clients belong to it by their
address (nodemap_add_range) or by their key ('sheen key issue --nodemap').
All nodemap commands must be run on the MGS. With 'lctl --fsname NAME ...'
the MGS of that file system executes them, if there are several.
usage: nodemap_add <nodemap_name>
";
const NODEMAP_DEL: &str = "\
remove a nodemap
Clients whose key names it are refused from then on.
usage: nodemap_del <nodemap_name>
";
const NODEMAP_MODIFY: &str = "\
modify a nodemap's property
  admin           1: root of the clients is not squashed
  trusted         1: ids other than root's are not mapped
  deny_unknown    1: squashed users are refused
  audit_mode      0: refused operations are not recorded
  readonly_mount  1: the clients cannot change anything
  squash_uid      the user that squashed users are
  squash_gid      the group that squashed groups are
For a client with a user's key, only readonly_mount and audit_mode matter.
usage: nodemap_modify --name|-n <nodemap_name> --property|-p <property_name>
                      --value|-v <value>
";
const NODEMAP_ADD_RANGE: &str = "\
add a range of addresses to a nodemap
A range is an address or one range of them: 10.0.0.7@tcp, 10.0.1.*@tcp,
10.0.[1-4].[0-255]@tcp, 10.0.0.0/16@tcp or 10.0.0.1@tcp:10.0.1.9@tcp.
usage: nodemap_add_range --name|-n <nodemap_name> --range|-r <nid_range>
";
const NODEMAP_DEL_RANGE: &str = "\
delete a range of addresses from a nodemap, as a whole
usage: nodemap_del_range --name|-n <nodemap_name> --range|-r <nid_range>
";
const NODEMAP_ADD_IDMAP: &str = "\
add a UID or GID mapping to a nodemap
usage: nodemap_add_idmap --name|-n <nodemap_name> --idtype|-i {uid|gid}
                         --idmap|-m <client_id>:<fs_id>
";
const NODEMAP_DEL_IDMAP: &str = "\
delete a UID or GID mapping from a nodemap
usage: nodemap_del_idmap --name|-n <nodemap_name> --idtype|-i {uid|gid}
                         --idmap|-m <client_id>:<fs_id>
";
const NODEMAP_SET_FILESET: &str = "\
confine the clients of a nodemap to a directory of the file system
'clear' or '' ends this.
usage: nodemap_set_fileset --name|-n <nodemap_name> --fileset|-f <path>
";
const NODEMAP_INFO: &str = "\
list the nodemaps, or show one or all of them
usage: nodemap_info [list|nodemap_name|all]
";
const NODEMAP_TEST_NID: &str = "\
print the nodemap of a client at an address, whether nodemaps are active or not
usage: nodemap_test_nid [--nid|-n] <nid>
";
const NODEMAP_TEST_ID: &str = "\
print the id to which an id of a client at an address is mapped or squashed
usage: nodemap_test_id --nid|-n <nid> --idtype|-t {uid|gid} --id|-i <id>
";
const HELP: &str = "\
usage: help [COMMAND]
";

/// Every command and its usage.
pub const COMMANDS: &[(&str, &str)] = &[
    ("help", HELP),
    ("--version", "usage: --version\n"),
    ("dl", DL),
    ("device_list", DL),
    ("list_nids", LIST_NIDS),
    ("ping", PING),
    ("which_nid", WHICH_NID),
    ("get_param", GET_PARAM),
    ("set_param", SET_PARAM),
    ("list_param", LIST_PARAM),
    ("conf_param", CONF_PARAM),
    ("llog_print", LLOG_PRINT),
    ("llog_catlist", LLOG_CATLIST),
    ("device", DEVICE),
    ("activate", ACTIVATE),
    ("deactivate", DEACTIVATE),
    ("abort_recovery", ABORT_RECOVERY),
    ("changelog_register", CHANGELOG_REGISTER),
    ("changelog_deregister", CHANGELOG_DEREGISTER),
    ("lfsck_start", LFSCK_START),
    ("lfsck_stop", LFSCK_STOP),
    ("lfsck_query", LFSCK_QUERY),
    ("del_ost", DEL_OST),
    ("pool_new", POOL_NEW),
    ("pool_add", POOL_ADD),
    ("pool_remove", POOL_REMOVE),
    ("pool_destroy", POOL_DESTROY),
    ("pool_list", POOL_LIST),
    ("nodemap_activate", NODEMAP_ACTIVATE),
    ("nodemap_add", NODEMAP_ADD),
    ("nodemap_del", NODEMAP_DEL),
    ("nodemap_modify", NODEMAP_MODIFY),
    ("nodemap_add_range", NODEMAP_ADD_RANGE),
    ("nodemap_del_range", NODEMAP_DEL_RANGE),
    ("nodemap_add_idmap", NODEMAP_ADD_IDMAP),
    ("nodemap_del_idmap", NODEMAP_DEL_IDMAP),
    ("nodemap_set_fileset", NODEMAP_SET_FILESET),
    ("nodemap_info", NODEMAP_INFO),
    ("nodemap_test_nid", NODEMAP_TEST_NID),
    ("nodemap_test_id", NODEMAP_TEST_ID),
];

/// Returns the usage of a command.
pub fn of(command: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(name, _)| *name == command).map(|(_, text)| *text)
}
