/*
 * Layouts of directories over MDTs. lustre_user.h includes this file.
 */
#ifndef SHEEN_LUSTRE_LMV_H
#define SHEEN_LUSTRE_LMV_H

#include <linux/types.h>
#include <linux/lustre/lustre_user.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* How names are distributed over the stripes of a directory. */
enum lmv_hash_type {
	LMV_HASH_TYPE_UNKNOWN = 0, /* the MDT chooses */
	LMV_HASH_TYPE_ALL_CHARS = 1,
	LMV_HASH_TYPE_FNV_1A_64 = 2,
	LMV_HASH_TYPE_CRUSH = 3,
	LMV_HASH_TYPE_CRUSH2 = 4,
	LMV_HASH_TYPE_MAX,
	LMV_HASH_TYPE_DEFAULT = LMV_HASH_TYPE_FNV_1A_64
};
#define LMV_HASH_TYPE_MASK 0x0000ffff
/* Flags beside the type. */
#define LMV_HASH_FLAG_OVERSTRIPED 0x01000000 /* several stripes on one MDT */
#define LMV_HASH_FLAG_FIXED 0x02000000
#define LMV_HASH_FLAG_MERGE 0x04000000
#define LMV_HASH_FLAG_SPLIT 0x08000000
#define LMV_HASH_FLAG_LOST_LMV 0x10000000
#define LMV_HASH_FLAG_BAD_TYPE 0x20000000
#define LMV_HASH_FLAG_MIGRATION 0x80000000
#define LMV_HASH_FLAG_LAYOUT_CHANGE (LMV_HASH_FLAG_MIGRATION | LMV_HASH_FLAG_SPLIT | LMV_HASH_FLAG_MERGE)
#define LMV_HASH_FLAG_KNOWN 0xbf000000

static inline bool lmv_is_known_hash_type(__u32 type)
{
	type &= LMV_HASH_TYPE_MASK;
	return type > LMV_HASH_TYPE_UNKNOWN && type < LMV_HASH_TYPE_MAX;
}

#define LMV_USER_MAGIC 0x0CD30CD0 /* a default */
#define LMV_USER_MAGIC_V0 0x0CD20CD0 /* an existing directory */
#define LMV_USER_MAGIC_SPECIFIC 0x0CD40CD0 /* a request with a list of MDTs */
#define LMV_MAGIC_V1 LMV_USER_MAGIC_V0

enum lmv_type {
	LMV_TYPE_DEFAULT = 0x0000,
	LMV_TYPE_RAW = 0x0001,
};

/* A stripe of a directory: 24 bytes. */
struct lmv_user_mds_data {
	struct lu_fid lum_fid;
	__u32 lum_padding;
	__u32 lum_mds; /* index of its MDT */
} __attribute__((packed, __may_alias__));

/* Layout of a directory over MDTs, as in the attributes lustre.lmv and lustre.dmv (the default of
 * subdirectories): 48 bytes, then its stripes. */
struct lmv_user_md_v1 {
	__u32 lum_magic;
	__s32 lum_stripe_count;
	__u32 lum_stripe_offset; /* index of the first MDT, or LMV_OFFSET_DEFAULT */
	__u32 lum_hash_type; /* enum lmv_hash_type and flags */
	__u32 lum_type; /* enum lmv_type */
	__u8 lum_max_inherit;
	__u8 lum_max_inherit_rr;
	__u16 lum_padding1;
	__u32 lum_padding2;
	__u32 lum_padding3;
	char lum_pool_name[LOV_MAXPOOLNAME + 1];
	struct lmv_user_mds_data lum_objects[];
} __attribute__((packed));
#define lmv_user_md lmv_user_md_v1

/* Size in bytes of a request with that many MDTs. */
static inline unsigned int lmv_user_md_size(unsigned int stripes, unsigned int magic)
{
	size_t listed = magic == LMV_USER_MAGIC_SPECIFIC ? stripes : 0;

	return (unsigned int)(sizeof(struct lmv_user_md) + listed * sizeof(struct lmv_user_mds_data));
}

/* Number of levels to which a default is inherited, and for how many of them new directories are
 * placed round-robin. */
enum {
	LMV_INHERIT_UNLIMITED = 0,
	LMV_INHERIT_DEFAULT_PLAIN = LMV_INHERIT_UNLIMITED,
	LMV_INHERIT_END = 1,
	LMV_INHERIT_DEFAULT_OVERSTRIPED = 2,
	LMV_INHERIT_DEFAULT_STRIPED = 3,
	LMV_INHERIT_MAX = 250,
	LMV_INHERIT_NONE = 255,
};
enum {
	LMV_INHERIT_RR_NONE = 0,
	LMV_INHERIT_RR_DEFAULT = LMV_INHERIT_RR_NONE,
	LMV_INHERIT_RR_END = 1,
	LMV_INHERIT_RR_ROOT = 3,
	LMV_INHERIT_RR_MAX = 250,
	LMV_INHERIT_RR_UNLIMITED = 255,
};

#if defined(__cplusplus)
}
#endif

#endif
