/*
 * Numbers of ioctl(2) on open files and directories of a mount. lustre_user.h includes this file.
 *
 * The names are Lustre's. For a file system in user space the kernel copies as many bytes of the
 * argument as the number encodes, and in the directions that it encodes. Where Lustre's number does
 * not say this correctly, the number here differs. A program must therefore be compiled with this
 * header. Numbers that equal Lustre's also work in programs that were compiled with Lustre's.
 *
 * docs/api.md lists what is implemented. The others fail with EOPNOTSUPP. A file that is not on a
 * mount gives ENOTTY.
 */
#ifndef SHEEN_LUSTRE_IOCTL_H
#define SHEEN_LUSTRE_IOCTL_H

#include <sys/ioctl.h>
#include <linux/lustre/lustre_user.h>

/* ---- any file ---- */

#define LL_IOC_FLUSHCTX _IO('f', 166) /* no argument; does nothing */
#define LL_IOC_GETOBDCOUNT _IOWR('f', 168, int) /* int *: 0 for OSTs, 1 for MDTs; then their number */
#define LL_IOC_PATH2FID _IOR('f', 173, struct lu_fid)
#define LL_IOC_GET_MDTIDX _IOR('f', 175, int) /* as Lustre's */
#define LL_IOC_FID2MDTIDX _IOWR('f', 248, struct lu_fid) /* as Lustre's; returns the index */

/* ---- layouts of files, and default layouts of directories ---- */

/*
 * SETSTRIPE takes a struct lov_user_md_v1 or _v3 (EEXIST: the file has a layout). GETSTRIPE stores
 * one of a file, with all objects: of a composite layout the last component with objects, of an
 * empty file the last component. Of a directory it stores the default, which may be composite.
 * Lustre's LL_IOC_LOV_SETSTRIPE_NEW works, too.
 */
#define LL_IOC_LOV_SETSTRIPE _IOW('f', 154, struct lov_user_md_v3)
#define LL_IOC_LOV_GETSTRIPE _IOC(_IOC_READ, 'f', 155, 16383)
#define LL_IOC_LOV_SETSTRIPE_NEW LL_IOC_LOV_SETSTRIPE
#define LL_IOC_LOV_GETSTRIPE_NEW LL_IOC_LOV_GETSTRIPE

/* ---- layouts of directories over MDTs ---- */

/*
 * GETSTRIPE takes lum_magic: LMV_USER_MAGIC for the default of subdirectories, LMV_MAGIC_V1 for the
 * directory itself. It stores no lum_objects (E2BIG: there are some; the attribute lustre.lmv has
 * them).
 */
#define LL_IOC_LMV_GETSTRIPE _IOWR('f', 241, struct lmv_user_md) /* as Lustre's */
#define LL_IOC_LMV_SET_DEFAULT_STRIPE _IOWR('f', 246, struct lmv_user_md) /* as Lustre's */

/* ---- open regular files ---- */

/*
 * int *, enum ll_file_flags. As Lustre's, but flags have no effect. SETFLAGS refuses
 * LL_FILE_IGNORE_LOCK for a file without O_DIRECT (EINVAL).
 */
#define LL_IOC_GETFLAGS _IOR('f', 151, long)
#define LL_IOC_SETFLAGS _IOW('f', 152, long)
#define LL_IOC_CLRFLAGS _IOW('f', 153, long)
/* The argument is the group id or mirror id itself, no pointer. */
#define LL_IOC_GROUP_LOCK _IO('f', 158)
#define LL_IOC_GROUP_UNLOCK _IO('f', 159)
#define LL_IOC_FLR_SET_MIRROR _IO('f', 177)
#define LL_IOC_DATA_VERSION _IOWR('f', 218, struct ioc_data_version)
/* A struct llapi_ladvise_hdr. Of several pieces of advice the first one is executed, and the result
 * of the others is not changed. */
#define LL_IOC_LADVISE _IOC(_IOC_READ | _IOC_WRITE, 'f', 250, 64)

/* ---- not implemented: EOPNOTSUPP. A comment names the function to use instead. ---- */

#define LL_IOC_LOV_SETEA _IOW('f', 156, long)
#define IOC_OBD_STATFS _IOWR('f', 164, struct obd_statfs *) /* llapi_obd_statfs() */
#define LL_IOC_LLOOP_ATTACH _IOWR('f', 169, long)
#define LL_IOC_LLOOP_DETACH _IOWR('f', 170, long)
#define LL_IOC_LLOOP_INFO _IOWR('f', 171, struct lu_fid)
#define LL_IOC_LLOOP_DETACH_BYDEV _IOWR('f', 172, long)
#define LL_IOC_GET_CONNECT_FLAGS _IOWR('f', 174, __u64 *)
#define LL_IOC_FUTIMES_3 _IOWR('f', 176, struct ll_futimes_3)
#define LL_IOC_HSM_STATE_GET _IOR('f', 211, struct hsm_user_state)
#define LL_IOC_HSM_STATE_SET _IOW('f', 212, struct hsm_state_set)
#define LL_IOC_HSM_COPY_START _IOW('f', 214, struct hsm_copy *)
#define LL_IOC_HSM_COPY_END _IOW('f', 215, struct hsm_copy *)
#define LL_IOC_HSM_PROGRESS _IOW('f', 216, struct hsm_user_request)
#define LL_IOC_HSM_REQUEST _IOW('f', 217, struct hsm_user_request)
#define LL_IOC_LOV_SWAP_LAYOUTS _IOW('f', 219, struct lustre_swap_layouts) /* llapi_fswap_layouts() */
#define LL_IOC_HSM_ACTION _IOR('f', 220, struct hsm_current_action)
#define LL_IOC_LMV_SETSTRIPE _IOWR('f', 240, struct lmv_user_md) /* llapi_dir_create() */
#define LL_IOC_REMOVE_ENTRY _IOWR('f', 242, __u64)
#define LL_IOC_RMFID _IOR('f', 242, struct fid_array) /* llapi_rmfid() */
#define LL_IOC_UNLOCK_FOREIGN _IO('f', 242)
#define LL_IOC_SET_LEASE _IOWR('f', 243, struct ll_ioc_lease) /* llapi_lease_set() */
#define LL_IOC_SET_LEASE_OLD _IOWR('f', 243, long)
#define LL_IOC_GET_LEASE _IO('f', 244) /* llapi_lease_check() */
#define LL_IOC_HSM_IMPORT _IOWR('f', 245, struct hsm_user_import)
#define LL_IOC_MIGRATE _IOR('f', 247, int)
#define LL_IOC_GETPARENT _IOWR('f', 249, struct getparent) /* llapi_fd2parent() */
#define LL_IOC_HEAT_GET _IOWR('f', 251, struct lu_heat)
#define LL_IOC_HEAT_SET _IOW('f', 251, __u64)
#define LL_IOC_PCC_ATTACH _IOW('f', 252, struct lu_pcc_attach)
#define LL_IOC_PCC_DETACH _IOWR('f', 252, struct lu_pcc_detach)
#define LL_IOC_PCC_DETACH_BY_FID _IOWR('f', 252, struct lu_pcc_detach_fid)
#define LL_IOC_PCC_STATE _IOR('f', 252, struct lu_pcc_state)
#define LL_IOC_PROJECT _IOW('f', 253, struct lu_project) /* FS_IOC_FSSETXATTR */
#define LL_IOC_HSM_DATA_VERSION _IOW('f', 254, struct ioc_data_version)

/* On a directory, for a name in it: llapi_get_lum_file(). */
#define IOC_MDC_TYPE 'i'
#define IOC_MDC_LOOKUP _IOWR(IOC_MDC_TYPE, 20, struct obd_device *)
#define IOC_MDC_GETFILESTRIPE _IOWR(IOC_MDC_TYPE, 21, struct lov_user_md *)
#define IOC_MDC_GETFILEINFO_V1 _IOWR(IOC_MDC_TYPE, 22, struct lov_user_mds_data_v1 *)
#define IOC_MDC_GETFILEINFO_V2 _IOWR(IOC_MDC_TYPE, 22, struct lov_user_mds_data)
#define LL_IOC_MDC_GETINFO_V1 _IOWR(IOC_MDC_TYPE, 23, struct lov_user_mds_data_v1 *)
#define LL_IOC_MDC_GETINFO_V2 _IOWR(IOC_MDC_TYPE, 23, struct lov_user_mds_data)
#define IOC_MDC_GETFILEINFO IOC_MDC_GETFILEINFO_V1
#define LL_IOC_MDC_GETINFO LL_IOC_MDC_GETINFO_V1

/* Names of targets, and paths by FID. */
#define OBD_IOC_GETDTNAME _IOR('f', 127, char[MAX_OBD_NAME]) /* llapi_file_fget_lov_uuid() */
#define OBD_IOC_GETMDNAME _IOR('f', 131, char[MAX_OBD_NAME]) /* llapi_file_get_lmv_uuid() */
#define OBD_IOC_FID2PATH _IOWR('f', 150, long) /* llapi_fid2path_at() */

#endif
