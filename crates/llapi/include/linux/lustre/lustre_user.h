/*
 * Layouts as programs see them: their bytes in the attribute lustre.lov; and file identifiers. The
 * header includes further ones: directories over MDTs, changelogs, archives, ioctl(2).
 *
 * The names, sizes and numbers are those of Lustre's header of this name; the comments are Sheen's.
 * All fields of a layout are little-endian in the attribute. The structs here read them on a
 * little-endian machine.
 */
#ifndef SHEEN_LUSTRE_USER_H
#define SHEEN_LUSTRE_USER_H

#include <linux/fs.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
/* struct statx: from <sys/stat.h> with _GNU_SOURCE. */
#ifndef STATX_BASIC_STATS
#include <linux/stat.h>
#endif

#if defined(__cplusplus)
extern "C" {
#endif

/* f_type of statfs(2) on a mount of Lustre. Sheen's mounts have FUSE's number, 0x65735546:
 * llapi_search_fsname() tells whether a path is on one. */
#define LL_SUPER_MAGIC 0x0BD00BD0
#define LUSTRE_SUPER_MAGIC LL_SUPER_MAGIC

typedef struct stat lstat_t;
#define lstat_f lstat
#define fstat_f fstat
#define fstatat_f fstatat
typedef struct statx lstatx_t;

/* ---- file identifiers ---- */

struct lu_fid {
	__u64 f_seq; /* sequence */
	__u32 f_oid; /* id in the sequence */
	__u32 f_ver; /* version, 0 today */
};

/* Printed as [0x200000401:0x1:0x0]: printf(DFID "\n", PFID(&fid)) */
#define DFID_NOBRACE "%#llx:0x%x:0x%x"
#define DFID "[" DFID_NOBRACE "]"
#define PFID(fid) (unsigned long long)(fid)->f_seq, (fid)->f_oid, (fid)->f_ver
/* and read: sscanf(text, SFID, RFID(&fid)) */
#define SFID "0x%llx:0x%x:0x%x"
#define RFID(fid) (unsigned long long *)&(fid)->f_seq, &(fid)->f_oid, &(fid)->f_ver
/* Length of the longest FID in characters, with the NUL: without and with brackets. */
#define FID_NOBRACE_LEN 40
#define FID_LEN (FID_NOBRACE_LEN + 2)

static inline bool fid_is_zero(const struct lu_fid *fid)
{
	return fid->f_seq == 0 && fid->f_oid == 0;
}

/* An object of an OST: its FID. (The pair is its older name.) */
struct ost_id {
	union {
		struct {
			__u64 oi_id;
			__u64 oi_seq;
		} oi;
		struct lu_fid oi_fid;
	};
};

#define UUID_MAX 40
struct obd_uuid {
	char uuid[UUID_MAX];
};

static inline char *obd_uuid2str(const struct obd_uuid *uuid)
{
	return (char *)uuid->uuid;
}

static inline bool obd_uuid_equals(const struct obd_uuid *one, const struct obd_uuid *other)
{
	return strncmp(one->uuid, other->uuid, UUID_MAX) == 0;
}

static inline int obd_uuid_empty(struct obd_uuid *uuid)
{
	return uuid->uuid[0] == 0;
}

static inline void obd_str2uuid(struct obd_uuid *uuid, const char *text)
{
	size_t length = strlen(text);

	memset(uuid->uuid, 0, UUID_MAX);
	memcpy(uuid->uuid, text, length < UUID_MAX ? length : UUID_MAX - 1);
}

/* The file system of a target: scratch of scratch-OST0007_UUID. */
static inline void obd_uuid2fsname(char *name, char *uuid, unsigned int room)
{
	const char *end = strrchr(uuid, '-');
	size_t length = end != NULL ? (size_t)(end - uuid) : strlen(uuid);

	if (room == 0)
		return;
	if (length >= room)
		length = room - 1;
	memcpy(name, uuid, length);
	name[length] = 0;
}

#define MAX_OBD_NAME 128

struct ll_fid {
	__u64 id;
	__u32 generation;
	__u32 f_type;
};

/* For llapi_rmfid(), and for LL_IOC_GETPARENT, which is not implemented. */
struct fid_array {
	__u32 fa_nr;
	__u32 fa_padding0;
	__u64 fa_padding1;
	struct lu_fid fa_fids[];
};
#define OBD_MAX_FIDS_IN_ARRAY 4096

struct getparent {
	struct lu_fid gp_fid;
	__u32 gp_linkno;
	__u32 gp_name_size;
	char gp_name[];
} __attribute__((packed));

/* Directory in the root of each file system. */
#define dot_lustre_name ".lustre"

/* ---- space and attributes ---- */

/* For llapi_obd_statfs(): MDTs; OSTs; the third has no effect. */
#define LL_STATFS_LMV 1
#define LL_STATFS_LOV 2
#define LL_STATFS_NODELAY 4

enum obd_statfs_state {
	OS_STATFS_DEGRADED = 0x001,
	OS_STATFS_READONLY = 0x002,
	OS_STATFS_NOCREATE = 0x004,
	OS_STATFS_NOPRECREATE = OS_STATFS_NOCREATE,
	OS_STATFS_ENOSPC = 0x020,
	OS_STATFS_ENOINO = 0x040,
	OS_STATFS_SUM = 0x100,
	OS_STATFS_NONROT = 0x200,
};

/* Space of a target: 144 bytes. */
struct obd_statfs {
	__u64 os_type;
	__u64 os_blocks; /* of os_bsize bytes, as the next two */
	__u64 os_bfree;
	__u64 os_bavail;
	__u64 os_files;
	__u64 os_ffree;
	__u8 os_fsid[40];
	__u32 os_bsize;
	__u32 os_namelen;
	__u64 os_maxbytes;
	__u32 os_state; /* enum obd_statfs_state: OS_STATFS_DEGRADED or 0 */
	__u32 os_fprecreated; /* 0 */
	__u32 os_granted; /* 0 */
	__u32 os_spare3;
	__u32 os_spare4;
	__u32 os_spare5;
	__u32 os_spare6;
	__u32 os_spare7;
	__u32 os_spare8;
	__u32 os_spare9;
};

/* Attributes that llapi_get_lum_file() stores. (Sizes are never lazy here.) */
#define OBD_MD_FLID 0x00000001ULL
#define OBD_MD_FLATIME 0x00000002ULL
#define OBD_MD_FLMTIME 0x00000004ULL
#define OBD_MD_FLCTIME 0x00000008ULL
#define OBD_MD_FLSIZE 0x00000010ULL
#define OBD_MD_FLBLOCKS 0x00000020ULL
#define OBD_MD_FLBLKSZ 0x00000040ULL
#define OBD_MD_FLMODE 0x00000080ULL
#define OBD_MD_FLTYPE 0x00000100ULL
#define OBD_MD_FLUID 0x00000200ULL
#define OBD_MD_FLGID 0x00000400ULL
#define OBD_MD_FLFLAGS 0x00000800ULL
#define OBD_MD_FLNLINK 0x00002000ULL
#define OBD_MD_FLRDEV 0x00010000ULL
#define OBD_MD_FLLAZYSIZE 0x0400000000000000ULL
#define OBD_MD_FLLAZYBLOCKS 0x0800000000000000ULL
#define OBD_MD_FLBTIME 0x1000000000000000ULL

/* ---- limits ---- */

#define LUSTRE_MAXFSNAME 8
#define LUSTRE_MAXINSTANCE 16
#define LOV_MAXPOOLNAME 15
#define LOV_POOLNAMEF "%.15s"
#define LOV_POOL_IGNORE "ignore" /* Lustre's names for "no pool" and "pool of the directory" */
#define LOV_POOL_INHERIT "inherit"
#define LOV_POOL_NONE "none"
#define LOV_MIN_STRIPE_BITS 16
#define LOV_MIN_STRIPE_SIZE (1 << LOV_MIN_STRIPE_BITS)
#define LOV_MAX_STRIPE_COUNT_OLD 160
#define LOV_MAX_STRIPE_COUNT 2000
#define LOV_ALL_STRIPES 0xffff
#define LOV_ALL_STRIPES_WIDE 0xffe0 /* up to LOV_ALL_STRIPES: several stripes on every OST */
#define LOV_V1_INSANE_STRIPE_INDEX (LOV_ALL_STRIPES_WIDE - 1)
#define LOV_V1_INSANE_STRIPE_COUNT LOV_V1_INSANE_STRIPE_INDEX
#define LOV_OFFSET_DEFAULT ((__u16)-1)
#define LMV_OFFSET_DEFAULT ((__u32)-1)
#define LMV_MAX_STRIPE_COUNT 2000
#define LMV_MAX_STRIPES_PER_MDT 5
#define LUSTRE_MIRROR_COUNT_DEF 16
#define LUSTRE_MIRROR_COUNT_MAX 16
#define LUSTRE_EOF 0xffffffffffffffffULL
#define XATTR_LUSTRE_PREFIX "lustre."
#define XATTR_LUSTRE_LOV "lustre.lov"

/* ---- layouts ---- */

#define LOV_USER_MAGIC_V1 0x0BD10BD0
#define LOV_USER_MAGIC LOV_USER_MAGIC_V1
#define LOV_USER_MAGIC_JOIN_V1 0x0BD20BD0 /* never used */
#define LOV_USER_MAGIC_V3 0x0BD30BD0
#define LOV_USER_MAGIC_SPECIFIC 0x0BD50BD0 /* v3 with a list of OSTs to use */
#define LOV_USER_MAGIC_COMP_V1 0x0BD60BD0
#define LOV_USER_MAGIC_FOREIGN 0x0BD70BD0
#define LOV_USER_MAGIC_SEL 0x0BD80BD0
#define LOV_MAGIC_V1 LOV_USER_MAGIC_V1
#define LOV_MAGIC_V3 LOV_USER_MAGIC_V3
#define LOV_MAGIC_SPECIFIC LOV_USER_MAGIC_SPECIFIC
#define LOV_MAGIC_COMP_V1 LOV_USER_MAGIC_COMP_V1
#define LOV_MAGIC_FOREIGN LOV_USER_MAGIC_FOREIGN
#define LOV_MAGIC_SEL LOV_USER_MAGIC_SEL

/* Bits of lmm_pattern. */
enum lov_pattern {
	LOV_PATTERN_NONE = 0x000,
	LOV_PATTERN_RAID0 = 0x001,
	LOV_PATTERN_RAID1 = 0x002,
	LOV_PATTERN_PARITY = 0x004,
	LOV_PATTERN_MDT = 0x100,
	LOV_PATTERN_OVERSTRIPING = 0x200,
	LOV_PATTERN_FOREIGN = 0x400,
	LOV_PATTERN_COMPRESS = 0x800,
	LOV_PATTERN_BAD = LOV_PATTERN_RAID1 | LOV_PATTERN_MDT | LOV_PATTERN_FOREIGN,
	LOV_PATTERN_F_MASK = (int)0xffff0000,
	LOV_PATTERN_F_HOLE = 0x40000000,
	LOV_PATTERN_F_RELEASED = (int)0x80000000,
	LOV_PATTERN_DEFAULT = (int)0xffffffff,
};

static inline bool lov_pattern_supported(enum lov_pattern pattern)
{
	int base = pattern & ~LOV_PATTERN_F_MASK;

	return base == LOV_PATTERN_RAID0 || base == LOV_PATTERN_MDT ||
	       base == (LOV_PATTERN_RAID0 | LOV_PATTERN_OVERSTRIPING);
}

/* One object: 24 bytes. */
struct lov_user_ost_data_v1 {
	struct ost_id l_ost_oi;
	union {
		__u32 l_ost_type;
		__u32 l_ost_gen; /* 0 */
	};
	__u32 l_ost_idx; /* index of its OST */
} __attribute__((packed));
#define lov_user_ost_data lov_user_ost_data_v1
#define l_object_id l_ost_oi.oi.oi_id
#define l_object_seq l_ost_oi.oi.oi_seq
#define l_object_fid l_ost_oi.oi_fid

/* A plain layout: 32 bytes, then its objects. */
struct lov_user_md_v1 {
	__u32 lmm_magic;
	__u32 lmm_pattern;
	struct ost_id lmm_oi; /* the file's id and sequence */
	__u32 lmm_stripe_size;
	__u16 lmm_stripe_count;
	union {
		__u16 lmm_stripe_offset; /* in a request: the first OST, or -1 */
		__u16 lmm_layout_gen;
	};
	struct lov_user_ost_data_v1 lmm_objects[];
} __attribute__((packed, __may_alias__));
#define lov_user_md lov_user_md_v1
#define lmm_object_id lmm_oi.oi.oi_id
#define lmm_object_seq lmm_oi.oi.oi_seq

/* A plain layout in a pool: 48 bytes, then its objects. */
struct lov_user_md_v3 {
	__u32 lmm_magic;
	__u32 lmm_pattern;
	struct ost_id lmm_oi;
	__u32 lmm_stripe_size;
	__u16 lmm_stripe_count;
	union {
		__u16 lmm_stripe_offset;
		__u16 lmm_layout_gen;
	};
	char lmm_pool_name[LOV_MAXPOOLNAME + 1];
	struct lov_user_ost_data_v1 lmm_objects[];
} __attribute__((packed, __may_alias__));

/* Size in bytes of a plain layout with that many objects. */
static inline size_t lov_user_md_size(__u16 stripes, __u32 magic)
{
	size_t head = magic == LOV_USER_MAGIC_V1 ? sizeof(struct lov_user_md_v1) : sizeof(struct lov_user_md_v3);

	return head + stripes * sizeof(struct lov_user_ost_data_v1);
}

/* Attributes with a layout. No function here stores them; Lustre's IOC_MDC_GETFILEINFO does. */
struct lov_user_mds_data_v1 {
	lstat_t lmd_st;
	struct lov_user_md_v1 lmd_lmm;
} __attribute__((packed));

struct lov_user_mds_data_v2 {
	struct lu_fid lmd_fid;
	lstatx_t lmd_stx;
	__u64 lmd_flags;
	__u32 lmd_lmmsize;
	__u32 lmd_padding;
	struct lov_user_md_v1 lmd_lmm;
} __attribute__((packed));
#define lov_user_mds_data lov_user_mds_data_v2

/* A foreign layout. Sheen has none. */
struct lov_foreign_md {
	__u32 lfm_magic;
	__u32 lfm_length;
	__u32 lfm_type; /* enum lustre_foreign_types */
	__u32 lfm_flags;
	char lfm_value[];
} __attribute__((packed));

enum lustre_foreign_types {
	LU_FOREIGN_TYPE_NONE = 0,
	LU_FOREIGN_TYPE_POSIX = 1,
	LU_FOREIGN_TYPE_PCCRW = 2,
	LU_FOREIGN_TYPE_PCCRO = 3,
	LU_FOREIGN_TYPE_S3 = 4,
	LU_FOREIGN_TYPE_SYMLINK = 0xda05,
	LU_FOREIGN_TYPE_UNKNOWN = (int)0xffffffff,
};

struct lu_extent {
	__u64 e_start;
	__u64 e_end; /* byte after the last; LUSTRE_EOF: no end */
} __attribute__((packed));

/* Printed as [0, 0x100000): printf(DEXT "\n", PEXT(&extent)) */
#define DEXT "[%#llx, %#llx)"
#define PEXT(extent) (unsigned long long)(extent)->e_start, (unsigned long long)(extent)->e_end

static inline bool lu_extent_is_overlapped(struct lu_extent *one, struct lu_extent *other)
{
	return one->e_start < other->e_end && other->e_start < one->e_end;
}

static inline bool lu_extent_is_equal(struct lu_extent *one, struct lu_extent *other)
{
	return one->e_start == other->e_start && one->e_end == other->e_end;
}

static inline bool lu_extent_is_whole(struct lu_extent *extent)
{
	return extent->e_start == 0 && extent->e_end == LUSTRE_EOF;
}

/* Unit of the stripe size field where it is an extension size, in bytes. */
#define SEL_UNIT_SIZE 1024llu

/* Flags of a component. */
enum lov_comp_md_entry_flags {
	LCME_FL_STALE = 0x00000001,
	LCME_FL_PREF_RD = 0x00000002,
	LCME_FL_PREF_WR = 0x00000004,
	LCME_FL_PREF_RW = LCME_FL_PREF_RD | LCME_FL_PREF_WR,
	LCME_FL_OFFLINE = 0x00000008,
	LCME_FL_INIT = 0x00000010,
	LCME_FL_NOSYNC = 0x00000020,
	LCME_FL_EXTENSION = 0x00000040,
	LCME_FL_PARITY = 0x00000080,
	LCME_FL_COMPRESS = 0x00000100,
	LCME_FL_PARTIAL = 0x00000200,
	LCME_FL_NOCOMPR = 0x00000400,
	LCME_FL_NEG = (int)0x80000000,
};

/* State of the mirrors of a file. */
enum lov_comp_md_flags {
	LCM_FL_NONE = 0,
	LCM_FL_RDONLY = 1,
	LCM_FL_WRITE_PENDING = 2,
	LCM_FL_SYNC_PENDING = 3,
	LCM_FL_FLR_MASK = 3,
};

enum lcme_id {
	LCME_ID_INVAL = 0x0,
	LCME_ID_MAX = 0x7fffffff,
	LCME_ID_ALL = (int)0xffffffff,
	LCME_ID_NOT_ID = LCME_FL_NEG,
};
#define LCME_ID_MASK LCME_ID_MAX
#define SEQ_ID_MAX 0x0000ffff
#define SEQ_ID_MASK SEQ_ID_MAX
#define MIRROR_ID_MASK 0x7fff0000
#define MIRROR_ID_SHIFT 16

static inline __u32 pflr_id(__u16 mirror_id, __u16 number)
{
	return (((__u32)mirror_id << MIRROR_ID_SHIFT) & MIRROR_ID_MASK) | number;
}

static inline __u16 mirror_id_of(__u32 id)
{
	return (id & MIRROR_ID_MASK) >> MIRROR_ID_SHIFT;
}

/* A component of a composite layout: 48 bytes. Its plain layout is lcme_offset bytes after the
 * start of the composite layout. */
struct lov_comp_md_entry_v1 {
	__u32 lcme_id;
	__u32 lcme_flags;
	struct lu_extent lcme_extent;
	__u32 lcme_offset;
	__u32 lcme_size;
	__u32 lcme_layout_gen;
	__u64 lcme_timestamp;
	__u32 lcme_padding_1;
} __attribute__((packed));

/* A composite layout: 32 bytes, then its components. */
struct lov_comp_md_v1 {
	__u32 lcm_magic;
	__u32 lcm_size; /* of the whole layout, in bytes */
	__u32 lcm_layout_gen;
	__u16 lcm_flags;
	__u16 lcm_entry_count;
	__u16 lcm_mirror_count; /* number of mirrors, minus one */
	__u16 lcm_padding1[3];
	__u64 lcm_padding2;
	struct lov_comp_md_entry_v1 lcm_entries[];
} __attribute__((packed));

/* ---- open files ---- */

/*
 * A new file that is opened for writing with this flag has no layout until LL_IOC_LOV_SETSTRIPE, or
 * the first write, gives it one.
 */
#ifndef FASYNC
#define FASYNC 00020000
#endif
#define O_LOV_DELAY_CREATE (O_NOCTTY | FASYNC)

/* Of LL_IOC_GETFLAGS. They have no effect. */
enum ll_file_flags {
	LL_FILE_IGNORE_LOCK = 0x01, /* work without locks: Sheen takes them all the same */
	LL_FILE_GROUP_LOCKED = 0x02,
	LL_FILE_READAHEA = 0x04,
	LL_FILE_LOCKED_DIRECTIO = 0x08,
	LL_FILE_FLOCK_WARNING = 0x20,
};

/* For LL_IOC_FUTIMES_3, which is not implemented. */
struct ll_futimes_3 {
	__u64 lfu_atime_sec;
	__u64 lfu_atime_nsec;
	__u64 lfu_mtime_sec;
	__u64 lfu_mtime_nsec;
	__u64 lfu_ctime_sec;
	__u64 lfu_ctime_nsec;
};

/* For LL_IOC_PROJECT, which is not implemented: use FS_IOC_FSSETXATTR. */
struct lu_project {
	__u32 project_type; /* enum lu_project_type */
	__u32 project_id;
	__u32 project_xflags;
	__u32 project_reserved;
	char project_name[256];
};

enum lu_project_type {
	LU_PROJECT_NONE = 0,
	LU_PROJECT_SET = 1,
	LU_PROJECT_GET = 2,
	LU_PROJECT_MAX
};

/* ---- leases ---- */

enum ll_lease_mode {
	LL_LEASE_RDLCK = 0x01,
	LL_LEASE_WRLCK = 0x02,
	LL_LEASE_UNLCK = 0x04,
};

enum ll_lease_flags {
	LL_LEASE_RESYNC = 0x1,
	LL_LEASE_RESYNC_DONE = 0x2,
	LL_LEASE_LAYOUT_MERGE = 0x4,
	LL_LEASE_LAYOUT_SPLIT = 0x8,
	LL_LEASE_PCC_ATTACH = 0x10,
};

#define IOC_IDS_MAX 4096
struct ll_ioc_lease {
	__u32 lil_mode; /* enum ll_lease_mode */
	__u32 lil_flags; /* enum ll_lease_flags */
	__u32 lil_count;
	__u32 lil_ids[];
};

/* ---- data versions ---- */

enum ioc_data_version_flags {
	LL_DV_RD_FLUSH = (1 << 0),
	LL_DV_WR_FLUSH = (1 << 1),
	LL_DV_SZ_UPDATE = (1 << 2), /* EINVAL */
};

struct ioc_data_version {
	__u64 idv_version;
	__u32 idv_layout_version;
	__u32 idv_flags; /* enum ioc_data_version_flags */
};

/* ---- advice ---- */

enum lu_ladvise_type {
	LU_LADVISE_INVALID = 0,
	LU_LADVISE_WILLREAD = 1,
	LU_LADVISE_DONTNEED = 2,
	LU_LADVISE_LOCKNOEXPAND = 3,
	LU_LADVISE_LOCKAHEAD = 4,
	LU_LADVISE_MAX
};
#define LU_LADVISE_NAMES {                                                                                 \
	[LU_LADVISE_WILLREAD] = "willread", [LU_LADVISE_DONTNEED] = "dontneed",                            \
	[LU_LADVISE_LOCKNOEXPAND] = "locknoexpand", [LU_LADVISE_LOCKAHEAD] = "lockahead",                  \
}

enum ladvise_flag {
	LF_ASYNC = 0x1,
	LF_UNSET = 0x2,
};
#define LF_LOCKNOEXPAND_MASK LF_UNSET
#define LF_DEFAULT_MASK LF_ASYNC
#define LF_MASK (LF_ASYNC | LF_UNSET)

enum lock_mode_user {
	MODE_READ_USER = 1,
	MODE_WRITE_USER = 2,
	MODE_MAX_USER
};
#define LOCK_MODE_NAMES {[MODE_READ_USER] = "READ", [MODE_WRITE_USER] = "WRITE"}

enum lockahead_results {
	LLA_RESULT_SENT = 0,
	LLA_RESULT_DIFFERENT = 1,
	LLA_RESULT_SAME = 2,
};

#define LAH_COUNT_MAX 1024

struct llapi_lu_ladvise {
	__u16 lla_advice; /* enum lu_ladvise_type */
	__u16 lla_value1;
	__u32 lla_value2;
	__u64 lla_start; /* first byte */
	__u64 lla_end; /* see llapi_ladvise() */
	__u32 lla_value3;
	__u32 lla_value4;
};
#define lla_lockahead_mode lla_value1
#define lla_peradvice_flags lla_value2
#define lla_lockahead_result lla_value3

#define LADVISE_MAGIC 0x1ADF1CE0

/* Argument of LL_IOC_LADVISE. */
struct llapi_ladvise_hdr {
	__u32 lah_magic; /* LADVISE_MAGIC */
	__u32 lah_count;
	__u64 lah_flags; /* enum ladvise_flag */
	__u32 lah_value1;
	__u32 lah_value2;
	__u64 lah_value3;
	struct llapi_lu_ladvise lah_advise[];
};

/* ---- swap of layouts ---- */

#define SWAP_LAYOUTS_CHECK_DV1	(1 << 0)
#define SWAP_LAYOUTS_CHECK_DV2	(1 << 1)
#define SWAP_LAYOUTS_KEEP_MTIME	(1 << 2)
#define SWAP_LAYOUTS_KEEP_ATIME	(1 << 3)
#define SWAP_LAYOUTS_CLOSE	(1 << 4)

/* For LL_IOC_LOV_SWAP_LAYOUTS, which is not implemented. */
struct lustre_swap_layouts {
	__u64 sl_flags;
	__u32 sl_fd;
	__u32 sl_gid;
	__u64 sl_dv1;
	__u64 sl_dv2;
};

#if defined(__cplusplus)
}
#endif

#include <linux/lustre/lustre_lmv.h>
#include <linux/lustre/lustre_changelog.h>
#include <linux/lustre/lustre_hsm.h>
#include <linux/lustre/lustre_ioctl.h>


/* ---- quotas ---- */

/* Types, as the kernel's. */
#ifndef USRQUOTA
#define USRQUOTA 0
#define GRPQUOTA 1
#endif
#ifndef PRJQUOTA
#define PRJQUOTA 2
#endif

/* Bits of dqb_valid, as the kernel's: which limits, uses and times of struct obd_dqblk count. */
#ifndef QIF_BLIMITS
#define QIF_BLIMITS 1
#define QIF_SPACE 2
#define QIF_ILIMITS 4
#define QIF_INODES 8
#define QIF_BTIME 16
#define QIF_ITIME 32
#define QIF_LIMITS (QIF_BLIMITS | QIF_ILIMITS)
#define QIF_USAGE (QIF_SPACE | QIF_INODES)
#define QIF_TIMES (QIF_BTIME | QIF_ITIME)
#define QIF_ALL (QIF_LIMITS | QIF_USAGE | QIF_TIMES)
#endif

/* Commands of llapi_quotactl. Those with POOL take the name of a pool in qc_poolname. */
#define LUSTRE_Q_GETINFO 0x800005 /* grace times */
#define LUSTRE_Q_SETINFO 0x800006
#define LUSTRE_Q_GETQUOTA 0x800007 /* use and limits of an id */
#define LUSTRE_Q_SETQUOTA 0x800008
#define LUSTRE_Q_GETDEFAULT 0x80000d /* default limits; their times are grace times */
#define LUSTRE_Q_SETDEFAULT 0x80000e /* of an id other than 0: the default limits apply to it */
#define LUSTRE_Q_GETQUOTAPOOL 0x80000f
#define LUSTRE_Q_SETQUOTAPOOL 0x800010
#define LUSTRE_Q_GETINFOPOOL 0x800011
#define LUSTRE_Q_SETINFOPOOL 0x800012
#define LUSTRE_Q_GETDEFAULT_POOL 0x800013
#define LUSTRE_Q_SETDEFAULT_POOL 0x800014
#define LUSTRE_Q_DELETEQID 0x800015 /* removes the limits of an id */
#define LUSTRE_Q_RESETQID 0x800016  /* EOPNOTSUPP, as the next three */
#define LUSTRE_Q_ITERQUOTA 0x800017
#define LUSTRE_Q_ITEROQUOTA 0x800018
#define LUSTRE_Q_GETALLQUOTA 0x800019

#define LUSTRE_Q_CMD_IS_POOL(cmd)                                                                          \
	((cmd) == LUSTRE_Q_GETQUOTAPOOL || (cmd) == LUSTRE_Q_SETQUOTAPOOL ||                               \
	 (cmd) == LUSTRE_Q_GETINFOPOOL || (cmd) == LUSTRE_Q_SETINFOPOOL ||                                 \
	 (cmd) == LUSTRE_Q_GETDEFAULT_POOL || (cmd) == LUSTRE_Q_SETDEFAULT_POOL)

/* A time of struct obd_dqblk: its lower 48 bits are seconds, the others are flags. */
#define LQUOTA_GRACE_BITS 48
#define LQUOTA_GRACE_MASK ((1ULL << LQUOTA_GRACE_BITS) - 1)
#define LQUOTA_GRACE(t) ((t) & LQUOTA_GRACE_MASK)
#define LQUOTA_FLAG(t) ((t) >> LQUOTA_GRACE_BITS)
#define LQUOTA_GRACE_FLAG(t, f) ((__u64)(t) | (__u64)(f) << LQUOTA_GRACE_BITS)
#define LQUOTA_FLAG_DEFAULT 0x0001 /* the default limits apply to the id */
/* Grace time with which a soft limit never acts as a hard one. */
#define NOTIFY_GRACE_TIME LQUOTA_GRACE_MASK

/* Grace times in seconds. */
struct obd_dqinfo {
	__u64 dqi_bgrace;
	__u64 dqi_igrace;
	__u32 dqi_flags;
	__u32 dqi_valid;
};

/* Limits of space are in KiB, the use in bytes. While a soft limit is exceeded, dqb_btime and
 * dqb_itime are the seconds since 1970 at which it acts as a hard one; otherwise they are 0. */
struct obd_dqblk {
	__u64 dqb_bhardlimit;
	__u64 dqb_bsoftlimit;
	__u64 dqb_curspace;
	__u64 dqb_ihardlimit;
	__u64 dqb_isoftlimit;
	__u64 dqb_curinodes;
	__u64 dqb_btime;
	__u64 dqb_itime;
	__u32 dqb_valid;
	__u32 dqb_padding;
};

/* qc_valid: the whole file system, or the target with index qc_idx, or with uuid obd_uuid. */
enum {
	QC_GENERAL = 0,
	QC_MDTIDX = 1,
	QC_OSTIDX = 2,
	QC_UUID = 3
};

struct if_quotactl {
	__u32 qc_cmd;
	__u32 qc_type; /* USRQUOTA, GRPQUOTA or PRJQUOTA */
	__u32 qc_id;
	__u32 qc_stat;
	__u32 qc_valid;
	__u32 qc_idx;
	struct obd_dqinfo qc_dqinfo;
	struct obd_dqblk qc_dqblk;
	char obd_type[16];
	struct obd_uuid obd_uuid;
	char qc_poolname[]; /* for commands with POOL: at least LOV_MAXPOOLNAME + 1 bytes */
};

static inline const char *qtype_name(int qtype)
{
	switch (qtype) {
	case USRQUOTA:
		return "usr";
	case GRPQUOTA:
		return "grp";
	case PRJQUOTA:
		return "prj";
	}
	return "unknown";
}

#endif
