/*
 * Records of changelogs, as llapi_changelog_recv() returns them. lustre_user.h includes this file.
 */
#ifndef SHEEN_LUSTRE_CHANGELOG_H
#define SHEEN_LUSTRE_CHANGELOG_H

#include <string.h>
#include <linux/types.h>
#include <linux/lustre/lustre_user.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* Lustre's types of records. Sheen records no CL_MARK, CL_EXT, CL_HSM and CL_MIGRATE. */
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
	__u32 cr_openflags; /* MDS_FMODE_... of CL_OPEN and CL_DN_OPEN, otherwise 0 */
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

#if defined(__cplusplus)
}
#endif

#endif
