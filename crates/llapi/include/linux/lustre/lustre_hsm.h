/*
 * Archives (HSM), caches on clients (PCC) and heat of files: types and numbers, so that programs can
 * be compiled. Sheen has none of them. The functions of lustreapi.h for them return -EOPNOTSUPP.
 * lustre_user.h includes this file.
 */
#ifndef SHEEN_LUSTRE_HSM_H
#define SHEEN_LUSTRE_HSM_H

#include <linux/limits.h>
#include <linux/types.h>
#include <linux/lustre/lustre_user.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* ---- archives: files ---- */

enum hsm_states {
	HS_NONE = 0x000,
	HS_EXISTS = 0x001,
	HS_DIRTY = 0x002,
	HS_RELEASED = 0x004,
	HS_ARCHIVED = 0x008,
	HS_NORELEASE = 0x010,
	HS_NOARCHIVE = 0x020,
	HS_LOST = 0x040,
	HS_PCCRW = 0x080,
	HS_PCCRO = 0x100,
};
#define HSM_USER_MASK (HS_NORELEASE | HS_NOARCHIVE | HS_DIRTY)
#define HSM_STATUS_MASK (HS_EXISTS | HS_LOST | HS_RELEASED | HS_ARCHIVED | HS_PCCRW | HS_PCCRO)
#define HSM_FLAGS_MASK (HSM_USER_MASK | HSM_STATUS_MASK)

enum hsm_progress_states {
	HPS_NONE = 0,
	HPS_WAITING = 1,
	HPS_RUNNING = 2,
	HPS_DONE = 3,
};

static inline const char *hsm_progress_state2name(enum hsm_progress_states state)
{
	static const char *const names[] = {"unknown", "waiting", "running", "done"};

	return names[(unsigned int)state <= HPS_DONE ? state : HPS_NONE];
}

struct hsm_extent {
	__u64 offset;
	__u64 length;
} __attribute__((packed));

struct hsm_user_state {
	__u32 hus_states; /* enum hsm_states */
	__u32 hus_archive_id;
	__u32 hus_in_progress_state; /* enum hsm_progress_states */
	__u32 hus_in_progress_action; /* enum hsm_user_action */
	struct hsm_extent hus_in_progress_location;
	char hus_extended_info[];
};

struct hsm_state_set {
	__u32 hss_valid;
	__u32 hss_archive_id;
	__u64 hss_setmask;
	__u64 hss_clearmask;
};

struct hsm_current_action {
	__u32 hca_state; /* enum hsm_progress_states */
	__u32 hca_action; /* enum hsm_user_action */
	struct hsm_extent hca_location;
};

/* ---- archives: requests of users ---- */

enum hsm_user_action {
	HUA_NONE = 1,
	HUA_ARCHIVE = 10,
	HUA_RESTORE = 11,
	HUA_RELEASE = 12,
	HUA_REMOVE = 13,
	HUA_CANCEL = 14,
};

static inline const char *hsm_user_action2name(enum hsm_user_action action)
{
	static const char *const names[] = {"ARCHIVE", "RESTORE", "RELEASE", "REMOVE", "CANCEL"};

	if (action == HUA_NONE)
		return "NOOP";
	return action >= HUA_ARCHIVE && action <= HUA_CANCEL ? names[action - HUA_ARCHIVE] : "UNKNOWN";
}

#define HSM_FORCE_ACTION 0x0001
#define HSM_GHOST_COPY 0x0002
#define HSM_REQ_BLOCKING 0x0004

struct hsm_request {
	__u32 hr_action; /* enum hsm_user_action */
	__u32 hr_archive_id;
	__u64 hr_flags;
	__u32 hr_itemcount;
	__u32 hr_data_len;
};

struct hsm_user_item {
	struct lu_fid hui_fid;
	struct hsm_extent hui_extent;
} __attribute__((packed));

/* The data of hr_data_len bytes follow the items. */
struct hsm_user_request {
	struct hsm_request hur_request;
	struct hsm_user_item hur_user_item[];
} __attribute__((packed));

static inline void *hur_data(struct hsm_user_request *request)
{
	return &request->hur_user_item[request->hur_request.hr_itemcount];
}

static inline size_t hur_len(struct hsm_user_request *request)
{
	size_t items = request->hur_request.hr_itemcount;

	return sizeof(*request) + items * sizeof(struct hsm_user_item) + request->hur_request.hr_data_len;
}

struct hsm_user_import {
	__u64 hui_size;
	__u64 hui_atime;
	__u64 hui_mtime;
	__u32 hui_atime_ns;
	__u32 hui_mtime_ns;
	__u32 hui_uid;
	__u32 hui_gid;
	__u32 hui_mode;
	__u32 hui_archive_id;
};

/* ---- archives: copytools ---- */

enum hsm_message_type {
	HMT_ACTION_LIST = 100,
};

enum hsm_copytool_action {
	HSMA_NONE = 10,
	HSMA_ARCHIVE = 20,
	HSMA_RESTORE = 21,
	HSMA_REMOVE = 22,
	HSMA_CANCEL = 23,
};

static inline const char *hsm_copytool_action2name(enum hsm_copytool_action action)
{
	static const char *const names[] = {"ARCHIVE", "RESTORE", "REMOVE", "CANCEL"};

	if (action == HSMA_NONE)
		return "NOOP";
	return action >= HSMA_ARCHIVE && action <= HSMA_CANCEL ? names[action - HSMA_ARCHIVE] : "UNKNOWN";
}

struct hsm_action_item {
	__u32 hai_len; /* bytes, with the data */
	__u32 hai_action; /* enum hsm_copytool_action */
	struct lu_fid hai_fid;
	struct lu_fid hai_dfid;
	struct hsm_extent hai_extent;
	__u64 hai_cookie;
	__u64 hai_gid;
	char hai_data[];
} __attribute__((packed));

#define HAL_VERSION 1

/* hal_count items follow the name. Each begins at a multiple of 8 bytes from the name. */
struct hsm_action_list {
	__u32 hal_version;
	__u32 hal_count;
	__u64 hal_compound_id;
	__u64 hal_flags;
	__u32 hal_archive_id;
	__u32 padding1;
	char hal_fsname[];
} __attribute__((packed));

static inline struct hsm_action_item *hai_first(struct hsm_action_list *list)
{
	return (struct hsm_action_item *)(list->hal_fsname + ((strlen(list->hal_fsname) + 8) & ~(size_t)7));
}

static inline struct hsm_action_item *hai_next(struct hsm_action_item *item)
{
	return (struct hsm_action_item *)((char *)item + (((size_t)item->hai_len + 7) & ~(size_t)7));
}

static inline size_t hal_size(struct hsm_action_list *list)
{
	struct hsm_action_item *item = hai_first(list);
	__u32 i;

	for (i = 0; i < list->hal_count; i++)
		item = hai_next(item);
	return (size_t)((char *)item - (char *)list);
}

#define HP_FLAG_COMPLETED 0x01
#define HP_FLAG_RETRY 0x02

struct hsm_progress {
	struct lu_fid hp_fid;
	__u64 hp_cookie;
	struct hsm_extent hp_extent;
	__u16 hp_flags;
	__u16 hp_errval;
	__u32 padding;
};

struct hsm_copy {
	__u64 hc_data_version;
	__u16 hc_flags;
	__u16 hc_errval;
	__u32 padding;
	struct hsm_action_item hc_hai;
};

/* ---- archives: flags of changelog records ---- */

#define CLF_UNLINK_HSM_EXISTS 0x0002
#define CLF_RENAME_LAST_EXISTS 0x0002
#define CLF_HSM_SUCCESS 0x00
#define CLF_HSM_MAXERROR 0x7E
#define CLF_HSM_ERROVERFLOW 0x7F
#define CLF_HSM_DIRTY 1

enum hsm_event {
	HE_ARCHIVE = 0,
	HE_RESTORE = 1,
	HE_CANCEL = 2,
	HE_RELEASE = 3,
	HE_REMOVE = 4,
	HE_STATE = 5,
	HE_SPARE1 = 6,
	HE_SPARE2 = 7,
};

/* An error has 7 bits, an event the next 3, flags the next 2. */
static inline int hsm_get_cl_error(__u16 flags)
{
	return flags & CLF_HSM_ERROVERFLOW;
}

static inline enum hsm_event hsm_get_cl_event(__u16 flags)
{
	return (enum hsm_event)(flags >> 7 & 7);
}

static inline __u16 hsm_get_cl_flags(__u16 flags)
{
	return flags >> 10 & 3;
}

/* ---- caches on clients ---- */

enum lu_pcc_type {
	LU_PCC_NONE = 0x0,
	LU_PCC_READWRITE = 0x01,
	LU_PCC_READONLY = 0x02,
	LU_PCC_TYPE_MASK = LU_PCC_READWRITE | LU_PCC_READONLY,
	LU_PCC_FL_ASYNC = 0x10,
	LU_PCC_MAX
};

enum lu_pcc_detach_flags {
	PCC_DETACH_FL_NONE = 0x0,
	PCC_DETACH_FL_UNCACHE = 0x01,
	PCC_DETACH_FL_KNOWN_READWRITE = 0x02,
	PCC_DETACH_FL_KNOWN_READONLY = 0x04,
	PCC_DETACH_FL_CACHE_REMOVED = 0x08,
	PCC_DETACH_FL_ATTACHING = 0x10,
};

enum lu_pcc_state_flags {
	PCC_STATE_FL_NONE = 0x0,
	PCC_STATE_FL_ATTR_VALID = 0x01,
	PCC_STATE_FL_ATTACHING = 0x02,
	PCC_STATE_FL_UNLINKED = 0x04,
};

enum lu_pcc_cleanup_flags {
	PCC_CLEANUP_FL_NONE = 0x0,
	PCC_CLEANUP_FL_KEEP_DATA = 0x1,
};

struct lu_pcc_attach {
	__u32 pcca_type; /* enum lu_pcc_type */
	__u32 pcca_id;
};

struct lu_pcc_detach_fid {
	struct lu_fid pccd_fid;
	__u32 pccd_flags; /* enum lu_pcc_detach_flags */
};

struct lu_pcc_detach {
	__u32 pccd_flags;
};

struct lu_pcc_state {
	__u32 pccs_type; /* enum lu_pcc_type */
	__u32 pccs_open_count;
	__u32 pccs_flags; /* enum lu_pcc_state_flags */
	__u32 pccs_namelen;
	char pccs_path[PATH_MAX];
};

/* ---- heat ---- */

enum lu_heat_flag {
	LU_HEAT_FLAG_OFF = 1 << 1,
	LU_HEAT_FLAG_CLEAR = 1 << 2,
};

enum obd_heat_type {
	OBD_HEAT_READSAMPLE = 0,
	OBD_HEAT_WRITESAMPLE = 1,
	OBD_HEAT_READBYTE = 2,
	OBD_HEAT_WRITEBYTE = 3,
	OBD_HEAT_COUNT
};

struct lu_heat {
	__u32 lh_count;
	__u32 lh_flags; /* enum lu_heat_flag */
	__u64 lh_heat[];
};

#if defined(__cplusplus)
}
#endif

#endif
