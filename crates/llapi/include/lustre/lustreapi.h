/*
 * liblustreapi: layouts, names by FID, group locks, advice and targets of a Sheen mount. Link with
 * -llustreapi.
 *
 * The functions, types and numbers are those of Lustre's library of this name; docs/api.md lists
 * what is implemented. Names by FID, removal by FID and changelogs are restricted to the superuser.
 *
 * A function returns 0 or more on success. A heading states how its functions report an error:
 * "-1" (or null): errno has the error. "-errno": the function returns the error negated, and errno
 * has it, too. Null for a required pointer is EINVAL. ENOTTY: not on a mount.
 */
#ifndef SHEEN_LUSTREAPI_H
#define SHEEN_LUSTREAPI_H

#include <glob.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <linux/lustre/lustre_user.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define lustre_fid struct lu_fid

/* From <fcntl.h> with _GNU_SOURCE, and from <mntent.h>. */
struct file_handle;
struct mntent;

/* ---- messages on standard error ---- */

enum llapi_message_level {
	LLAPI_MSG_OFF = 0,
	LLAPI_MSG_FATAL = 1,
	LLAPI_MSG_ERROR = 2,
	LLAPI_MSG_WARN = 3,
	LLAPI_MSG_NORMAL = 4,
	LLAPI_MSG_INFO = 5,
	LLAPI_MSG_DEBUG = 6,
	LLAPI_MSG_MAX
};
#define LLAPI_MSG_MASK 0x00000007
#define LLAPI_MSG_NO_ERRNO 0x00000010 /* with a level: print only the text */

static inline const char *llapi_msg_level2str(enum llapi_message_level level)
{
	static const char *const names[LLAPI_MSG_MAX] = {"OFF", "FATAL", "ERROR", "WARNING", "NORMAL", "INFO", "DEBUG"};

	return (unsigned int)level < LLAPI_MSG_MAX ? names[level] : NULL;
}

/* Messages above the level are not printed. Initially all are printed. */
void llapi_msg_set_level(int level);
int llapi_msg_get_level(void);

/* For llapi_error and llapi_printf below only. */
void sheen_llapi_error(int level, int error, const char *message);
void sheen_llapi_printf(int level, const char *message);

/* Longest message, in bytes. A longer one is truncated. */
#define SHEEN_LLAPI_MESSAGE_MAX 4096

/* Prints an error: the text, and the meaning of the errno (possibly negated). */
__attribute__((__format__(__printf__, 3, 4), __unused__))
static inline void llapi_error(int level, int error, const char *format, ...)
{
	char text[SHEEN_LLAPI_MESSAGE_MAX];
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	sheen_llapi_error(level, error, text);
}
#define llapi_err_noerrno(level, ...) llapi_error((level) | LLAPI_MSG_NO_ERRNO, 0, __VA_ARGS__)

/* Prints a message unchanged. */
__attribute__((__format__(__printf__, 2, 3), __unused__))
static inline void llapi_printf(int level, const char *format, ...)
{
	char text[SHEEN_LLAPI_MESSAGE_MAX];
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	sheen_llapi_printf(level, text);
}

/* ---- files with stripes, the older way: -errno ---- */

struct llapi_stripe_param {
	unsigned long long lsp_stripe_size; /* 0: default */
	char *lsp_pool;
	int lsp_stripe_offset; /* -1: any OST */
	int lsp_stripe_pattern; /* enum lov_pattern; 0: default */
	int lsp_stripe_count; /* 0: default; -1: every OST; length of lsp_osts if it is used */
	bool lsp_is_specific; /* use exactly the OSTs in lsp_osts */
	bool lsp_is_create;
	__u8 lsp_max_inherit;
	__u8 lsp_max_inherit_rr;
	__u32 lsp_osts[];
};
#define lsp_tgts lsp_osts

/* Opens a file (with O_CREAT a new one) and sets its layout if it has none (EEXIST: it has one); of
 * a directory sets the default. */
int llapi_file_open(const char *name, int flags, int mode, unsigned long long stripe_size, int stripe_offset,
		    int stripe_count, int stripe_pattern);
int llapi_file_open_pool(const char *name, int flags, int mode, unsigned long long stripe_size, int stripe_offset,
			 int stripe_count, int stripe_pattern, char *pool_name);
int llapi_file_open_param(const char *name, int flags, mode_t mode, const struct llapi_stripe_param *param);
/* Returns 0, or -EINVAL: no file can have such stripes. */
int llapi_stripe_limit_check(unsigned long long stripe_size, int stripe_offset, int stripe_count, int stripe_pattern);
/* As llapi_file_open with O_CREAT | O_WRONLY and 0644; closes the file again. */
int llapi_file_create(const char *name, unsigned long long stripe_size, int stripe_offset, int stripe_count,
		      int stripe_pattern);
int llapi_file_create_pool(const char *name, unsigned long long stripe_size, int stripe_offset, int stripe_count,
			   int stripe_pattern, char *pool_name);
/* Stores the layout of a file or directory. It needs room for
 * lov_user_md_size(LOV_MAX_STRIPE_COUNT, LOV_USER_MAGIC_V3) bytes, or 65536 if it is composite. */
int llapi_file_get_stripe(const char *path, struct lov_user_md *lum);
int llapi_file_fget_mdtidx(int fd, int *mdtidx);
/*
 * Store the attributes, a mask of the stored attributes (OBD_MD_FL...), and the layout of a name
 * (even if it is a symbolic link) or of an open file. Any pointer may be null. lmm_magic is 0 if
 * there is no layout. EOVERFLOW: lumsize is too small.
 */
int llapi_get_lum_file(const char *path, __u64 *valid, lstatx_t *statx, struct lov_user_md *lum, size_t lumsize);
int llapi_get_lum_dir(const char *path, __u64 *valid, lstatx_t *statx, struct lov_user_md *lum, size_t lumsize);
int llapi_get_lum_file_fd(int dir_fd, const char *fname, __u64 *valid, lstatx_t *statx, struct lov_user_md *lum,
			  size_t lumsize);
int llapi_get_lum_dir_fd(int dir_fd, __u64 *valid, lstatx_t *statx, struct lov_user_md *lum, size_t lumsize);
/* Creates a file without a name in a directory, open for reading and writing. stripe_param null:
 * the default layout of the directory. mdt_idx: -1. */
int llapi_create_volatile_param(const char *directory, int mdt_idx, int open_flags, mode_t mode,
				const struct llapi_stripe_param *stripe_param);
int llapi_create_volatile_idx(const char *directory, int mdt_idx, int open_flags);
__attribute__((__unused__))
static inline int llapi_create_volatile(const char *directory, int open_flags)
{
	return llapi_create_volatile_idx(directory, -1, open_flags);
}

/* ---- directories over MDTs: -errno ---- */

/*
 * In the struct, lsp_stripe_offset is the first MDT (-1: any), lsp_osts lists MDTs,
 * lsp_stripe_pattern is an enum lmv_hash_type, and lsp_max_inherit and lsp_max_inherit_rr apply to
 * defaults. A default with count 0 and offset -1 deletes the existing one. Pools: null.
 */
int llapi_dir_create(const char *name, mode_t mode, const struct llapi_stripe_param *param);
int llapi_dir_create_pool(const char *name, int flags, int stripe_offset, int stripe_count, int stripe_pattern,
			  const char *poolname); /* flags: the mode */
int llapi_dir_set_default_lmv(const char *name, const struct llapi_stripe_param *param);
int llapi_dir_set_default_lmv_stripe(const char *name, int stripe_offset, int stripe_count, int stripe_pattern,
				     const char *pool_name);

/* Such as "raid0,overstriped". Null: it does not fit. */
char *llapi_lov_pattern_string(enum lov_pattern pattern, char *buf, size_t buflen);
int llapi_lov_string_pattern(const char *string, enum lov_pattern *pattern);

/* ---- layouts: -1 or null ---- */

struct llapi_layout;

#define LLAPI_LAYOUT_INVALID 0x1000000000000001ULL
/* Left to the file system. */
#define LLAPI_LAYOUT_DEFAULT (LLAPI_LAYOUT_INVALID + 1)
/* One stripe on every OST. WIDE_MIN + n: n + 1 stripes on every OST. */
#define LLAPI_LAYOUT_WIDE (LLAPI_LAYOUT_INVALID + 2)
#define LLAPI_LAYOUT_WIDE_MIN LLAPI_LAYOUT_WIDE
#define LLAPI_LAYOUT_WIDE_MAX (LLAPI_LAYOUT_WIDE_MIN + 31)
/* Patterns. */
#define LLAPI_LAYOUT_RAID0 0ULL
#define LLAPI_LAYOUT_MDT 2ULL
#define LLAPI_LAYOUT_OVERSTRIPING 4ULL
/* One above the largest index of an OST. */
#define LLAPI_LAYOUT_IDX_MAX 0x00000000FFFFFFFFULL

enum llapi_layout_get_flags {
	LLAPI_LAYOUT_GET_EXPECTED = 0x1, /* set the values that a file there would get */
	LLAPI_LAYOUT_GET_COPY = 0x2, /* no effect: the attribute is never changed */
	LLAPI_LAYOUT_GET_CHECK = 0x4, /* EBADSLT: the objects do not agree with the stripes */
};
#define LAYOUT_GET_EXPECTED LLAPI_LAYOUT_GET_EXPECTED
#define LLAPI_LXF_COPY LLAPI_LAYOUT_GET_COPY
#define LLAPI_LXF_CHECK LLAPI_LAYOUT_GET_CHECK

struct llapi_layout *llapi_layout_alloc(void);
void llapi_layout_free(struct llapi_layout *layout);

struct llapi_layout *llapi_layout_get_by_path(const char *path, enum llapi_layout_get_flags flags);
struct llapi_layout *llapi_layout_get_by_fd(int fd, enum llapi_layout_get_flags flags);
struct llapi_layout *llapi_layout_get_by_fid(const char *path, const struct lu_fid *fid,
					     enum llapi_layout_get_flags flags);
struct llapi_layout *llapi_layout_get_by_xattr(void *lov_xattr, ssize_t lov_xattr_size,
					       enum llapi_layout_get_flags flags);

/* Returns a request for a file with this layout, as a value of lustre.lov, to be freed with free().
 * (Lustre's library does not export this function.) */
struct lov_user_md *llapi_layout_to_lum(const struct llapi_layout *layout, size_t *lum_size);

/* As open(2); a new file gets the layout (null: the directory's default). */
int llapi_layout_file_open(const char *path, int open_flags, mode_t mode, const struct llapi_layout *layout);
int llapi_layout_file_create(const char *path, int open_flags, int mode, const struct llapi_layout *layout);
int llapi_layout_set_by_fd(int fd, struct llapi_layout *layout);
int llapi_layout_set_by_xattr(int fd, struct lov_user_md *lum);

/* Attributes of the current component, which is the first one initially. */
int llapi_layout_stripe_count_get(const struct llapi_layout *layout, uint64_t *count);
int llapi_layout_stripe_count_set(struct llapi_layout *layout, uint64_t count);
bool llapi_layout_stripe_count_is_valid(int64_t stripe_count);
int llapi_layout_stripe_size_get(const struct llapi_layout *layout, uint64_t *size);
int llapi_layout_stripe_size_set(struct llapi_layout *layout, uint64_t size);
int llapi_layout_extension_size_get(const struct llapi_layout *layout, uint64_t *size);
int llapi_layout_extension_size_set(struct llapi_layout *layout, uint64_t size);
int llapi_layout_pattern_get(const struct llapi_layout *layout, uint64_t *pattern);
int llapi_layout_pattern_set(struct llapi_layout *layout, uint64_t pattern);
__u32 llapi_pattern_to_lov(uint64_t pattern);
int llapi_layout_ost_index_get(const struct llapi_layout *layout, uint64_t stripe_number, uint64_t *index);
int llapi_layout_ost_index_set(struct llapi_layout *layout, int stripe_number, uint64_t index);
int llapi_layout_ost_index_reset(struct llapi_layout *layout); /* of all components */
int llapi_layout_pool_name_get(const struct llapi_layout *layout, char *pool_name, size_t pool_name_len);
int llapi_layout_pool_name_set(struct llapi_layout *layout, const char *pool_name);

int llapi_layout_comp_extent_get(const struct llapi_layout *layout, uint64_t *start, uint64_t *end);
int llapi_layout_comp_extent_set(struct llapi_layout *layout, uint64_t start, uint64_t end);
int llapi_layout_comp_flags_get(const struct llapi_layout *layout, uint32_t *flags);
int llapi_layout_comp_flags_set(struct llapi_layout *layout, uint32_t flags);
int llapi_layout_comp_flags_clear(struct llapi_layout *layout, uint32_t flags);
int llapi_layout_comp_id_get(const struct llapi_layout *layout, uint32_t *id);
int llapi_layout_mirror_id_get(const struct llapi_layout *layout, uint32_t *id);

/* Attributes of the whole layout. */
int llapi_layout_flags_get(struct llapi_layout *layout, uint32_t *flags);
int llapi_layout_flags_set(struct llapi_layout *layout, uint32_t flags);
const char *llapi_layout_flags_string(uint32_t flags);
__u16 llapi_layout_string_flags(char *string);
int llapi_layout_mirror_count_get(struct llapi_layout *layout, uint16_t *count);
int llapi_layout_mirror_count_set(struct llapi_layout *layout, uint16_t count);
bool llapi_layout_is_composite(struct llapi_layout *layout);
int llapi_layout_dom_size(struct llapi_layout *layout, uint64_t *size);

enum llapi_layout_comp_use {
	LLAPI_LAYOUT_COMP_USE_FIRST = 1,
	LLAPI_LAYOUT_COMP_USE_LAST = 2,
	LLAPI_LAYOUT_COMP_USE_NEXT = 3,
	LLAPI_LAYOUT_COMP_USE_PREV = 4,
};

/* Add a component at the end; delete the current one, which must be the last; go to another one
 * (returns 1: there is none). */
int llapi_layout_comp_add(struct llapi_layout *layout);
int llapi_layout_add_first_comp(struct llapi_layout *layout);
int llapi_layout_comp_del(struct llapi_layout *layout);
int llapi_layout_comp_use(struct llapi_layout *layout, uint32_t pos);
int llapi_layout_comp_use_id(struct llapi_layout *layout, uint32_t id);
int llapi_layout_get_last_init_comp(struct llapi_layout *layout); /* goes to the last component with objects */
int llapi_layout_merge(struct llapi_layout **dst_layout, const struct llapi_layout *src_layout);

/* Copies stripe size and count of f_layout's current component to that of m_layout; -errno. */
int llapi_layout_mirror_inherit(struct llapi_layout *f_layout, struct llapi_layout *m_layout);

enum {
	LLAPI_LAYOUT_ITER_CONT = 0,
	LLAPI_LAYOUT_ITER_STOP = 1,
};
typedef int (*llapi_layout_iter_cb)(struct llapi_layout *layout, void *cbdata);
int llapi_layout_comp_iterate(struct llapi_layout *layout, llapi_layout_iter_cb cb, void *cbdata);

/* Return 0, or the number of a defect: components that do not fit together. */
int llapi_layout_sanity(struct llapi_layout *layout, bool incomplete, bool flr);
/* Also checks that the file system (null: no check) has the pools and OSTs that are named. */
int llapi_layout_v2_sanity(struct llapi_layout *layout, bool incomplete, bool flr, char *fsname);
void llapi_layout_sanity_perror(int error);

/* Components of an existing file. */
int llapi_layout_file_comp_add(const char *path, const struct llapi_layout *layout);
int llapi_layout_file_comp_del(const char *path, uint32_t id, uint32_t flags);
int llapi_layout_file_comp_set(const char *path, uint32_t *ids, uint32_t *flags, size_t count);

/* ---- single mirrors of a file that was opened with O_DIRECT or for writing: -errno ---- */

/* Makes the open file refer to that mirror from now on, stale or not; 0: to the whole file again. */
int llapi_mirror_set(int fd, unsigned int id);
int llapi_mirror_clear(int fd);
ssize_t llapi_mirror_read(int fd, unsigned int id, void *buf, size_t count, off_t pos);
off_t llapi_mirror_data_seek(int fd, unsigned int id, off_t pos, size_t *size);
bool llapi_mirror_is_sparse(int fd, unsigned int id);

/* A mirror of a layout that is up to date and has the bytes from file_start, and the end of these
 * bytes; the components of the mirrors that are not up to date. */
struct llapi_resync_comp {
	uint64_t lrc_start;
	uint64_t lrc_end;
	uint32_t lrc_mirror_id;
	uint32_t lrc_id; /* of the component */
	bool lrc_synced;
};
int llapi_mirror_find(struct llapi_layout *layout, uint64_t file_start, uint64_t file_end, uint64_t *endp);
int llapi_mirror_find_stale(struct llapi_layout *layout, struct llapi_resync_comp *comp, size_t comp_size,
			    __u16 *mirror_ids, int ids_nr);

/*
 * A mirror is written only under a lease (EBUSY: there is none), which makes it stale.
 * LL_LEASE_WRLCK with LL_LEASE_RESYNC takes a lease on the mirrors with these ids, or on all stale
 * ones (EALREADY: there are none). A write to the file by another process ends the lease.
 * LL_LEASE_UNLCK with LL_LEASE_RESYNC_DONE and the ids of the copied components releases it, and
 * returns LL_LEASE_WRLCK, or 0 if the lease had ended. Other leases: EOPNOTSUPP.
 */
int llapi_lease_set(int fd, const struct ll_ioc_lease *data);
int llapi_lease_check(int fd); /* LL_LEASE_WRLCK or 0 */
int llapi_lease_release(int fd);
int llapi_lease_acquire(int fd, enum ll_lease_mode mode);
int llapi_lease_release_intent(int fd, struct ll_ioc_lease *data); /* -EOPNOTSUPP */
int llapi_lease_get(int fd, int mode); /* older forms of acquire and release */
int llapi_lease_put(int fd);
ssize_t llapi_mirror_write(int fd, unsigned int id, const void *buf, size_t count, off_t pos);
int llapi_mirror_truncate(int fd, unsigned int id, off_t length);
int llapi_mirror_punch(int fd, unsigned int id, off_t start, size_t length);
/* Returns the number of mirrors that were copied, which then come first in dst. */
ssize_t llapi_mirror_copy_many(int fd, __u16 src, __u16 *dst, size_t count);
int llapi_mirror_copy(int fd, unsigned int src, unsigned int dst, off_t pos, size_t count); /* src 0: the file; returns bytes */
int llapi_mirror_resync_many(int fd, struct llapi_layout *layout, struct llapi_resync_comp *comp_array, int comp_size,
			     uint64_t start, uint64_t end);

/* ---- holes of any open file: -errno ---- */

bool llapi_file_is_sparse(int fd);
off_t llapi_data_seek(int src_fd, off_t offset, size_t *length); /* no more data: end of file, and length 0 */
int llapi_hole_punch(int fd, off_t start, size_t length);

/* ---- files by FID: -errno ---- */

int llapi_path2fid(const char *path, struct lu_fid *fid);
int llapi_fd2fid(int fd, struct lu_fid *fid);
int llapi_fid_parse(const char *fidstr, struct lu_fid *fid, char **endptr);
/* For the superuser. Paths start at the root of the file system, without a leading slash. */
int llapi_fid2path(const char *device, const char *fidstr, char *path, int pathlen, long long *recno, int *linkno);
int llapi_fid2path_at(int mnt_fd, const struct lu_fid *fid, char *path, int pathlen, long long *recno, int *linkno);
int llapi_path2parent(const char *path, unsigned int linkno, struct lu_fid *parent_fid, char *name, size_t name_size);
int llapi_fd2parent(int fd, unsigned int linkno, struct lu_fid *parent_fid, char *name, size_t name_size);
int llapi_open_by_fid(const char *dir, const struct lu_fid *fid, int open_flags); /* -1 */
int llapi_open_by_fid_at(int dir_fd, const struct lu_fid *fid, int open_flags); /* -1 */

/* For open_by_handle_at(2), which only the superuser can use. Free the handle with free(). */
int llapi_fid_to_handle(struct file_handle **handle, const struct lu_fid *fid);
int llapi_get_mdt_index_by_fid(int fd, const struct lu_fid *fid, int *mdt_index);

/*
 * Remove files with all their names, for the superuser. path: any path on the mount, or the file
 * system's name. Returns 0 even if some files could not be removed: their f_ver is then the negated
 * errno, and 0 for the others. EISDIR: a directory. EMLINK: the MDT does not store all names. EBUSY:
 * the file got other names meanwhile. E2BIG: more than OBD_MAX_FIDS_IN_ARRAY files.
 */
int llapi_rmfid(const char *path, struct fid_array *fa);
int llapi_rmfid_at(int fd, struct fid_array *fa);

/* ---- group locks: -errno; advice: -1 ---- */

int llapi_group_lock(int fd, int gid);
int llapi_group_unlock(int fd, int gid);
int llapi_group_lock64(int fd, __u64 gid);
int llapi_group_unlock64(int fd, __u64 gid);

/* lla_end: the byte after the last if it is a multiple of 4096, else the last byte. */
int llapi_ladvise(int fd, unsigned long long flags, int num_advise, struct llapi_lu_ladvise *ladvise);

/* ---- data versions: -errno ---- */

/* The number differs after each change of the file's data. It may also differ without a change,
 * after a restart of an OST. flags: LL_DV_RD_FLUSH, LL_DV_WR_FLUSH, or 0: dirty data of mounts does
 * not count yet. */
int llapi_get_data_version(int fd, __u64 *data_version, __u64 flags);
/* Makes all mounts write their dirty data of the file. */
int llapi_file_flush(int fd);
int llapi_fsync(int fd);

/* ---- swap of layouts: -errno ---- */

/* Times never change. A check of data versions is refused (EOPNOTSUPP). */
int llapi_swap_layouts(const char *path1, const char *path2, __u64 dv1, __u64 dv2, __u64 flags);
int llapi_fswap_layouts(int fd1, int fd2, __u64 dv1, __u64 dv2, __u64 flags);
int llapi_fswap_layouts_grouplock(int fd1, int fd2, __u64 dv1, __u64 dv2, int gid, __u64 flags); /* gid: 0 */

/* ---- mounts and targets: -errno ---- */

int llapi_search_fsname(const char *pathname, char *fsname);
int llapi_search_rootpath(char *pathname, const char *fsname);
int llapi_search_rootpath_by_dev(char *pathname, dev_t dev);
int llapi_search_mounts(const char *pathname, int index, char *mntdir, char *fsname);
int llapi_is_lustre_mnttype(const char *type);
#define HAVE_LLAPI_IS_LUSTRE_MNT
int llapi_is_lustre_mnt(struct mntent *mnt);
int llapi_getname(const char *path, char *name, size_t namelen);
int llapi_get_fsname_instance(const char *path, char *fsname, size_t fsname_len, char *instance, size_t instance_len);
int llapi_get_fsname(const char *path, char *fsname, size_t fsname_len);
int llapi_get_instance(const char *path, char *instance, size_t instance_len);
int llapi_get_obd_count(char *mnt, int *count, int is_mdt);
/* *count: room for so many uuids; afterwards the number of targets. */
int llapi_lov_get_uuids(int fd, struct obd_uuid *uuidp, int *ost_count);
int llapi_lmv_get_uuids(int fd, struct obd_uuid *uuidp, int *mdt_count);
/*
 * type: LL_STATFS_LMV or LL_STATFS_LOV. ENODEV: past the last target; EAGAIN: no target has this
 * index. ENODATA: the target is inactive. With ENODATA and other errors of the target, its uuid is
 * stored.
 */
int llapi_obd_statfs(char *path, __u32 type, __u32 index, struct obd_statfs *stat_buf, struct obd_uuid *uuid_buf);
int llapi_obd_fstatfs(int fd, __u32 type, __u32 index, struct obd_statfs *stat_buf, struct obd_uuid *uuid_buf);
/* Common name of the OSTs, or MDTs, of a mount. */
int llapi_file_get_lov_uuid(const char *path, struct obd_uuid *lov_uuid);
int llapi_file_fget_lov_uuid(int fd, struct obd_uuid *lov_uuid);
int llapi_file_get_lmv_uuid(const char *path, struct obd_uuid *lmv_uuid);
int llapi_file_fget_lmv_uuid(int fd, struct obd_uuid *lmv_uuid);
int llapi_uuid_match(char *real_uuid, char *search_uuid); /* 1 or 0 */
/* By the file system's name or a path on it. EOVERFLOW: the result does not fit. */
int llapi_get_poollist(const char *name, char **poollist, int list_size, char *buffer, int buffer_size);
int llapi_get_poolmembers(const char *poolname, char **members, int list_size, char *buffer, int buffer_size);
/* Return 1 if the file system, or its pool, has the target, or if the pool has any; else 0. Either
 * pool or target may be null. */
int llapi_search_tgt(const char *fsname, const char *poolname, const char *tgtname, bool is_mdt);
int llapi_search_mdt(const char *fsname, const char *poolname, const char *mdtname);
int llapi_search_ost(const char *fsname, const char *poolname, const char *ostname);
/* By the file system's name or a path on it. */
int llapi_root_path_open(const char *device, int *outfd);

/* ---- changelogs: -errno ---- */

/* Bits of the flags of llapi_changelog_start. FOLLOW: llapi_changelog_recv waits for further
 * records. JOBID, EXTRA_FLAGS: records have these parts. BLOCK and NID_BE are ignored. */
enum changelog_send_flag {
	CHANGELOG_FLAG_FOLLOW = 0x01,
	CHANGELOG_FLAG_BLOCK = 0x02,
	CHANGELOG_FLAG_JOBID = 0x04,
	CHANGELOG_FLAG_EXTRA_FLAGS = 0x08,
	CHANGELOG_FLAG_NID_BE = 0x10,
};

/* The extra parts, with CHANGELOG_FLAG_EXTRA_FLAGS. */
enum changelog_send_extra_flag {
	CHANGELOG_EXTRA_FLAG_UIDGID = 0x01,
	CHANGELOG_EXTRA_FLAG_NID = 0x02,
	CHANGELOG_EXTRA_FLAG_OMODE = 0x04,
	CHANGELOG_EXTRA_FLAG_XATTR = 0x08,
};

/* For the superuser, of an MDT such as scratch-MDT0000 whose file system is mounted on this host.
 * startrec: the first record. */
int llapi_changelog_start(void **priv, enum changelog_send_flag flags, const char *mdtname, long long startrec);
int llapi_changelog_set_xflags(void *priv, enum changelog_send_extra_flag extra_flags);
/* 0 with the next record, 1 if there is none. */
int llapi_changelog_recv(void *priv, struct changelog_rec **rec);
/* 1 if a record can be returned without a request, else 0. */
int llapi_changelog_in_buf(void *priv);
/*
 * A descriptor for poll(2): it is readable while there may be records, and again a second after
 * llapi_changelog_recv found none. If the program sets O_NONBLOCK on it, llapi_changelog_recv does
 * not wait, but returns -EAGAIN. Neither read nor close it.
 */
int llapi_changelog_get_fd(void *priv);
int llapi_changelog_free(struct changelog_rec **rec);
int llapi_changelog_fini(void **priv);
/* The user idstr, such as cl1, needs no records up to endrec any more; 0: up to the last one. */
int llapi_changelog_clear(const char *mdtname, const char *idstr, long long endrec);

/* ---- quotas: -errno ---- */

/*
 * Gets or sets quotas of the file system of a path; see struct if_quotactl. Users may get their own
 * ones; only the superuser may get others, and set any (EPERM). A command that sets takes the
 * limits of space or files, or the grace times, that the bits QIF_BLIMITS, QIF_ILIMITS, QIF_BTIME
 * and QIF_ITIME of dqb_valid select; EINVAL without any. EINVAL: unknown type, id 0, a soft limit
 * above the hard one, or a limit of files within a pool. ENOENT: no such pool. ENODEV: no such
 * target. EIO: a target does not answer; the use of the others is stored. EOPNOTSUPP: unknown
 * command.
 */
int llapi_quotactl(char *mnt, struct if_quotactl *qctl);

/* ---- parameters: -errno ---- */

/*
 * Stores the names of parameters that match a pattern as that of lctl get_param, of all processes
 * on this host that the user may query. A name is no file: only llapi_param_get_value() reads its
 * value. ENOENT: nothing matches.
 */
int llapi_param_get_paths(const char *pattern, glob_t *paths);
void llapi_param_paths_free(glob_t *paths);
/*
 * Stores a value as text. buf null: stores only the size of a buffer for it. *buf null: stores a
 * new buffer, to be freed with free(), and the length. Else *buf has *buflen bytes; EOVERFLOW: too
 * few, and *buflen is then how many are needed.
 */
int llapi_param_get_value(const char *path, char **buf, size_t *buflen);

/* ---- other: -1 ---- */

/* Parses 64k, 1M and the like. A number alone is in units of *size_units, which then holds the unit
 * that was used. bytes_spec: b means bytes. */
int llapi_parse_size(const char *string, unsigned long long *size, unsigned long long *size_units, int bytes_spec);

/* Sheen's version, as in lctl get_param version. */
int llapi_get_version_string(char *version, unsigned int version_size);

/* Returns 0: no file is encrypted. -errno. */
int llapi_file_is_encrypted(int fd);

/* ---- not implemented: -EOPNOTSUPP ---- */

/* Archives: files. */
int llapi_hsm_state_get(const char *path, struct hsm_user_state *hus);
int llapi_hsm_state_get_fd(int fd, struct hsm_user_state *hus);
int llapi_hsm_state_set(const char *path, __u64 setmask, __u64 clearmask, __u32 archive_id);
int llapi_hsm_state_set_fd(int fd, __u64 setmask, __u64 clearmask, __u32 archive_id);
int llapi_hsm_data_version_set(int fd, __u64 data_version);
int llapi_hsm_current_action(const char *path, struct hsm_current_action *hca);
/* Only this call succeeds. Free the request with free(). */
struct hsm_user_request *llapi_hsm_user_request_alloc(int itemcount, int data_len);
int llapi_hsm_request(const char *path, const struct hsm_user_request *request);
int llapi_hsm_import(const char *dst, int archive, const struct stat *st, unsigned long long stripe_size,
		     int stripe_offset, int stripe_count, enum lov_pattern stripe_pattern, char *pool_name,
		     struct lu_fid *newfid);

/* Archives: copytools. */
struct hsm_copytool_private;
struct hsm_copyaction_private;
int llapi_hsm_copytool_register(struct hsm_copytool_private **priv, const char *mnt, int archive_count, int *archives,
				int rfd_flags);
int llapi_hsm_copytool_unregister(struct hsm_copytool_private **priv);
int llapi_hsm_copytool_get_fd(struct hsm_copytool_private *ct);
int llapi_hsm_copytool_recv(struct hsm_copytool_private *priv, struct hsm_action_list **hal, int *msgsize);
int llapi_hsm_action_begin(struct hsm_copyaction_private **phcp, const struct hsm_copytool_private *ct,
			   const struct hsm_action_item *hai, int restore_mdt_index, int restore_open_flags,
			   bool is_error);
int llapi_hsm_action_end(struct hsm_copyaction_private **phcp, const struct hsm_extent *he, int hp_flags, int errval);
int llapi_hsm_action_progress(struct hsm_copyaction_private *hcp, const struct hsm_extent *he, __u64 total,
			      int hp_flags);
int llapi_hsm_action_get_dfid(const struct hsm_copyaction_private *hcp, struct lu_fid *fid);
int llapi_hsm_action_get_fd(const struct hsm_copyaction_private *hcp);
int llapi_hsm_register_event_fifo(const char *path);
int llapi_hsm_unregister_event_fifo(const char *path);
int llapi_get_agent_uuid(char *path, char *buf, size_t bufsize);
void llapi_hsm_log_error(enum llapi_message_level level, int error, const char *format, va_list args); /* does nothing */

/* Caches on clients. */
int llapi_pcc_attach(const char *path, __u32 id, enum lu_pcc_type type);
int llapi_pcc_attach_fid(const char *mntpath, const struct lu_fid *fid, __u32 id, enum lu_pcc_type type);
int llapi_pcc_attach_fid_str(const char *mntpath, const char *fidstr, __u32 id, enum lu_pcc_type type);
int llapi_pcc_detach_fd(int fd, __u32 flags);
int llapi_pcc_detach_fid(const char *mntpath, const struct lu_fid *fid, __u32 flags);
int llapi_pcc_detach_fid_str(const char *mntpath, const char *fidstr, __u32 flags);
int llapi_pcc_detach_file(const char *path, __u32 flags);
int llapi_pcc_detach_at(int dirfd, const struct lu_fid *fid, enum lu_pcc_detach_flags flags);
int llapi_pcc_pin_file(const char *path, __u32 id);
int llapi_pcc_unpin_file(const char *path, __u32 id);
int llapi_pcc_backend_id_get(const char *path, enum lu_pcc_type type, __u32 *id);
int llapi_pcc_state_get(const char *path, struct lu_pcc_state *state);
int llapi_pcc_state_get_fd(int fd, struct lu_pcc_state *state);
int llapi_pccdev_set(const char *mntpath, const char *cmd);
int llapi_pccdev_get(const char *mntpath);
int llapi_pcc_del(const char *mntpath, const char *pccpath, enum lu_pcc_cleanup_flags flags);
int llapi_pcc_clear(const char *mntpath, enum lu_pcc_cleanup_flags flags);

/* Heat, foreign layouts. */
int llapi_heat_get(int fd, struct lu_heat *heat);
int llapi_heat_set(int fd, __u64 flags);
int llapi_file_create_foreign(const char *name, mode_t mode, __u32 type, __u32 flags, char *foreign_lov);
int llapi_dir_create_foreign(const char *name, mode_t mode, __u32 type, __u32 flags, const char *value);
int llapi_unlink_foreign(char *dname);

#if defined(__cplusplus)
}
#endif

#endif
