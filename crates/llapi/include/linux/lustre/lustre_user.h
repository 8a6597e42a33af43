/*
 * Layouts as programs see them: their bytes in the attribute lustre.lov; and file identifiers.
 *
 * The names, sizes and numbers are those of Lustre's header of this name; the comments are Sheen's.
 * All fields of a layout are little-endian in the attribute. The structs here read them on a
 * little-endian machine.
 */
#ifndef SHEEN_LUSTRE_USER_H
#define SHEEN_LUSTRE_USER_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#if defined(__cplusplus)
extern "C" {
#endif

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

/* ---- space and attributes ---- */

/* For llapi_obd_statfs(): MDTs; OSTs; the third has no effect. */
#define LL_STATFS_LMV 1
#define LL_STATFS_LOV 2
#define LL_STATFS_NODELAY 4

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
	__u32 os_state; /* 1: degraded */
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
#define LOV_MIN_STRIPE_BITS 16
#define LOV_MIN_STRIPE_SIZE (1 << LOV_MIN_STRIPE_BITS)
#define LOV_MAX_STRIPE_COUNT 2000
#define LOV_ALL_STRIPES 0xffff
#define LUSTRE_MIRROR_COUNT_MAX 16
#define LUSTRE_EOF 0xffffffffffffffffULL
#define XATTR_LUSTRE_LOV "lustre.lov"

/* ---- layouts ---- */

#define LOV_USER_MAGIC_V1 0x0BD10BD0
#define LOV_USER_MAGIC LOV_USER_MAGIC_V1
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
	LOV_PATTERN_MDT = 0x100,
	LOV_PATTERN_OVERSTRIPING = 0x200,
	LOV_PATTERN_FOREIGN = 0x400,
	LOV_PATTERN_F_RELEASED = (int)0x80000000,
};

/* One object: 24 bytes. */
struct lov_user_ost_data_v1 {
	struct ost_id l_ost_oi;
	__u32 l_ost_gen; /* 0 */
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
} __attribute__((packed));
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
} __attribute__((packed));

/* Size in bytes of a plain layout with that many objects. */
static inline size_t lov_user_md_size(__u16 stripes, __u32 magic)
{
	size_t head = magic == LOV_USER_MAGIC_V1 ? sizeof(struct lov_user_md_v1) : sizeof(struct lov_user_md_v3);

	return head + stripes * sizeof(struct lov_user_ost_data_v1);
}

struct lu_extent {
	__u64 e_start;
	__u64 e_end; /* byte after the last; LUSTRE_EOF: no end */
} __attribute__((packed));

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
#define MIRROR_ID_MASK 0x7fff0000
#define MIRROR_ID_SHIFT 16

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

/* ---- layouts by ioctl(2), of open files ---- */

/*
 * A new file that is opened for writing with this flag has no layout until LL_IOC_LOV_SETSTRIPE, or
 * the first write, gives it one. The first ioctl takes a struct lov_user_md_v1 or _v3 (EEXIST: the
 * file has a layout). The second stores one, with all objects: of a composite layout the last
 * component with objects, of an empty file the last component. The attribute lustre.lov has all
 * components.
 */
#define O_LOV_DELAY_CREATE (O_NOCTTY | FASYNC)
#define LL_IOC_LOV_SETSTRIPE 0x4030669aU
#define LL_IOC_LOV_GETSTRIPE 0xbfff669bU
/* Files without locks. Not supported here: ENOTTY. */
#define LL_IOC_SETFLAGS 0x40086698U
#define LL_FILE_IGNORE_LOCK 0x00000001

/* ---- directories ---- */

/* How names are distributed over the stripes of a directory. */
enum lmv_hash_type {
	LMV_HASH_TYPE_UNKNOWN = 0, /* the MDT chooses */
	LMV_HASH_TYPE_ALL_CHARS = 1,
	LMV_HASH_TYPE_FNV_1A_64 = 2,
	LMV_HASH_TYPE_CRUSH = 3,
	LMV_HASH_TYPE_CRUSH2 = 4,
};
/* Number of levels to which a default is inherited, and for how many of them new directories are
 * placed round-robin. */
enum {
	LMV_INHERIT_UNLIMITED = 0,
	LMV_INHERIT_END = 1,
	LMV_INHERIT_MAX = 250,
	LMV_INHERIT_NONE = 255,
};
enum {
	LMV_INHERIT_RR_NONE = 0,
	LMV_INHERIT_RR_MAX = 250,
	LMV_INHERIT_RR_UNLIMITED = 255,
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
};

/* ---- advice ---- */

enum lu_ladvise_type {
	LU_LADVISE_INVALID = 0,
	LU_LADVISE_WILLREAD = 1,
	LU_LADVISE_DONTNEED = 2,
	LU_LADVISE_LOCKNOEXPAND = 3,
	LU_LADVISE_LOCKAHEAD = 4,
};

enum ladvise_flag {
	LF_ASYNC = 0x1,
	LF_UNSET = 0x2,
};

enum lock_mode_user {
	MODE_READ_USER = 1,
	MODE_WRITE_USER = 2,
};

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

#if defined(__cplusplus)
}
#endif

/* ---- swap of layouts ---- */

#define SWAP_LAYOUTS_CHECK_DV1	(1 << 0)
#define SWAP_LAYOUTS_CHECK_DV2	(1 << 1)
#define SWAP_LAYOUTS_KEEP_MTIME	(1 << 2)
#define SWAP_LAYOUTS_KEEP_ATIME	(1 << 3)

/* ---- changelogs ---- */

/* Lustre's types of records. Sheen records no CL_EXT, CL_OPEN, CL_HSM, CL_MIGRATE, CL_FLRW, CL_RESYNC,
 * CL_GETXATTR and CL_DN_OPEN. */
enum changelog_rec_type {
	CL_NONE = -1,
	CL_MARK = 0,
	CL_CREATE = 1,
	CL_MKDIR = 2,
	CL_HARDLINK = 3,
	CL_SOFTLINK = 4,
	CL_MKNOD = 5,
	CL_UNLINK = 6,
	CL_RMDIR = 7,
	CL_RENAME = 8,
	CL_EXT = 9,
	CL_OPEN = 10,
	CL_CLOSE = 11,
	CL_LAYOUT = 12,
	CL_TRUNC = 13,
	CL_SETATTR = 14,
	CL_SETXATTR = 15,
	CL_XATTR = CL_SETXATTR,
	CL_HSM = 16,
	CL_MTIME = 17,
	CL_CTIME = 18,
	CL_ATIME = 19,
	CL_MIGRATE = 20,
	CL_FLRW = 21,
	CL_RESYNC = 22,
	CL_GETXATTR = 23,
	CL_DN_OPEN = 24,
	CL_LAST
};

static inline const char *changelog_type2str(int type)
{
	static const char *const names[] = {
		"MARK",	 "CREAT", "MKDIR", "HLINK", "SLINK", "MKNOD", "UNLNK", "RMDIR",	 "RENME",
		"RNMTO", "OPEN",  "CLOSE", "LYOUT", "TRUNC", "SATTR", "XATTR", "HSM",	 "MTIME",
		"CTIME", "ATIME", "MIGRT", "FLRW",  "RESYNC", "GXATR", "NOPEN",
	};

	return type >= 0 && type < CL_LAST ? names[type] : NULL;
}

/* Flags of a record: its parts, and below CLF_FLAGMASK those of its type. */
enum changelog_rec_flags {
	CLF_VERSION = 0x1000,
	CLF_RENAME = 0x2000,
	CLF_JOBID = 0x4000,
	CLF_EXTRA_FLAGS = 0x8000,
	CLF_FLAGSHIFT = 12,
	CLF_FLAGMASK = (1U << CLF_FLAGSHIFT) - 1,
	CLF_VERMASK = ~CLF_FLAGMASK
};

#define CLF_UNLINK_LAST 0x0001 /* the name was the last one of the file */
#define CLF_RENAME_LAST 0x0001 /* the replaced name was the last one of its file */

enum changelog_rec_extra_flags {
	CLFE_UIDGID = 0x0001,
	CLFE_NID = 0x0002,
	CLFE_OPEN = 0x0004,
	CLFE_XATTR = 0x0008
};

/* The fixed part of a record. The optional parts follow in the order of their structs below, then
 * the names: without a NUL, except between the two names of a renamed file. */
struct changelog_rec {
	__u16 cr_namelen; /* of both names and the NUL between them */
	__u16 cr_flags; /* enum changelog_rec_flags */
	__u32 cr_type; /* enum changelog_rec_type */
	__u64 cr_index;
	__u64 cr_prev; /* 0 */
	__u64 cr_time; /* seconds << 30 | nanoseconds */
	union {
		struct lu_fid cr_tfid; /* the file */
		__u32 cr_markerflags;
	};
	struct lu_fid cr_pfid; /* the directory */
};

struct changelog_ext_rename {
	struct lu_fid cr_sfid; /* the renamed file, or zero */
	struct lu_fid cr_spfid; /* its former directory, or zero */
};

#define LUSTRE_JOBID_SIZE 32

struct changelog_ext_jobid {
	char cr_jobid[LUSTRE_JOBID_SIZE];
};

struct changelog_ext_extra_flags {
	__u64 cr_extra_flags; /* enum changelog_rec_extra_flags: the parts that follow */
};

struct changelog_ext_uidgid {
	__u64 cr_uid;
	__u64 cr_gid;
};

struct changelog_ext_nid {
	__u64 cr_nid;
	__u64 extra;
	__u32 padding;
};

struct changelog_ext_openmode {
	__u32 cr_openflags; /* 0 */
};

struct changelog_ext_xattr {
	char cr_xattr[256];
};

/* The offset of the part after those that the flags name. */
static inline size_t changelog_rec_offset(unsigned int flags, unsigned int extra)
{
	size_t offset = sizeof(struct changelog_rec);

	if (flags & CLF_RENAME)
		offset += sizeof(struct changelog_ext_rename);
	if (flags & CLF_JOBID)
		offset += sizeof(struct changelog_ext_jobid);
	if (flags & CLF_EXTRA_FLAGS) {
		offset += sizeof(struct changelog_ext_extra_flags);
		if (extra & CLFE_UIDGID)
			offset += sizeof(struct changelog_ext_uidgid);
		if (extra & CLFE_NID)
			offset += sizeof(struct changelog_ext_nid);
		if (extra & CLFE_OPEN)
			offset += sizeof(struct changelog_ext_openmode);
		if (extra & CLFE_XATTR)
			offset += sizeof(struct changelog_ext_xattr);
	}
	return offset;
}

static inline struct changelog_ext_rename *changelog_rec_rename(const struct changelog_rec *rec)
{
	return (struct changelog_ext_rename *)((char *)rec + changelog_rec_offset(rec->cr_flags & CLF_VERSION, 0));
}

static inline struct changelog_ext_jobid *changelog_rec_jobid(const struct changelog_rec *rec)
{
	return (struct changelog_ext_jobid *)((char *)rec + changelog_rec_offset(rec->cr_flags & CLF_RENAME, 0));
}

static inline struct changelog_ext_extra_flags *changelog_rec_extra_flags(const struct changelog_rec *rec)
{
	unsigned int before = rec->cr_flags & (CLF_RENAME | CLF_JOBID);

	return (struct changelog_ext_extra_flags *)((char *)rec + changelog_rec_offset(before, 0));
}

/* The extra part that follows those in `before`. */
static inline void *changelog_rec_extra(const struct changelog_rec *rec, unsigned int before)
{
	unsigned int extra = (unsigned int)changelog_rec_extra_flags(rec)->cr_extra_flags & before;

	return (char *)rec + changelog_rec_offset(rec->cr_flags, extra);
}

static inline struct changelog_ext_uidgid *changelog_rec_uidgid(const struct changelog_rec *rec)
{
	return (struct changelog_ext_uidgid *)changelog_rec_extra(rec, 0);
}

static inline struct changelog_ext_nid *changelog_rec_nid(const struct changelog_rec *rec)
{
	return (struct changelog_ext_nid *)changelog_rec_extra(rec, CLFE_UIDGID);
}

static inline struct changelog_ext_openmode *changelog_rec_openmode(const struct changelog_rec *rec)
{
	return (struct changelog_ext_openmode *)changelog_rec_extra(rec, CLFE_UIDGID | CLFE_NID);
}

static inline struct changelog_ext_xattr *changelog_rec_xattr(const struct changelog_rec *rec)
{
	return (struct changelog_ext_xattr *)changelog_rec_extra(rec, CLFE_UIDGID | CLFE_NID | CLFE_OPEN);
}

static inline char *changelog_rec_name(const struct changelog_rec *rec)
{
	unsigned int extra = 0;

	if (rec->cr_flags & CLF_EXTRA_FLAGS)
		extra = (unsigned int)changelog_rec_extra_flags(rec)->cr_extra_flags;
	return (char *)rec + changelog_rec_offset(rec->cr_flags, extra);
}

/* The former name of a renamed file, and its length. */
static inline size_t changelog_rec_snamelen(const struct changelog_rec *rec)
{
	const char *name = changelog_rec_name(rec);
	const char *end = (const char *)memchr(name, 0, rec->cr_namelen);

	return end == NULL ? 0 : (size_t)(name + rec->cr_namelen - end - 1);
}

static inline char *changelog_rec_sname(const struct changelog_rec *rec)
{
	return changelog_rec_name(rec) + rec->cr_namelen - changelog_rec_snamelen(rec);
}

#endif
