/*
 * Numbers, structs and inline functions of the headers, for which no mount is needed; and the
 * functions that return EOPNOTSUPP. No arguments.
 */
#include "check.h"
#include <linux/lustre/lustre_changelog.h>
#include <linux/lustre/lustre_hsm.h>
#include <linux/lustre/lustre_ioctl.h>
#include <linux/lustre/lustre_lmv.h>
#include <stddef.h>

#define IS(what, value) _Static_assert((what) == (value), #what)

/* Numbers of ioctls that are Lustre's, and that work as they are. */
IS(LL_IOC_GETFLAGS, 0x80086697);
IS(LL_IOC_SETFLAGS, 0x40086698);
IS(LL_IOC_CLRFLAGS, 0x40086699);
IS(LL_IOC_GET_MDTIDX, 0x800466af);
IS(LL_IOC_FID2MDTIDX, 0xc01066f8);
IS(LL_IOC_LMV_GETSTRIPE, 0xc03066f1);
IS(LL_IOC_LMV_SET_DEFAULT_STRIPE, 0xc03066f6);
/* Those with Sheen's sizes. */
IS(LL_IOC_LOV_SETSTRIPE, 0x4030669a);
IS(LL_IOC_LOV_GETSTRIPE, 0xbfff669b);
IS(LL_IOC_GROUP_LOCK, 0x669e);
IS(LL_IOC_GROUP_UNLOCK, 0x669f);
IS(LL_IOC_FLUSHCTX, 0x66a6);
IS(LL_IOC_GETOBDCOUNT, 0xc00466a8);
IS(LL_IOC_PATH2FID, 0x801066ad);
IS(LL_IOC_FLR_SET_MIRROR, 0x66b1);
IS(LL_IOC_DATA_VERSION, 0xc01066da);
IS(LL_IOC_LADVISE, 0xc04066fa);
/* Those that are not implemented, as in Lustre. */
IS(LL_IOC_LOV_SETEA, 0x4008669c);
IS(IOC_OBD_STATFS, 0xc00866a4);
IS(LL_IOC_LLOOP_ATTACH, 0xc00866a9);
IS(LL_IOC_LLOOP_DETACH, 0xc00866aa);
IS(LL_IOC_LLOOP_INFO, 0xc01066ab);
IS(LL_IOC_LLOOP_DETACH_BYDEV, 0xc00866ac);
IS(LL_IOC_GET_CONNECT_FLAGS, 0xc00866ae);
IS(LL_IOC_FUTIMES_3, 0xc03066b0);
IS(LL_IOC_HSM_STATE_GET, 0x802066d3);
IS(LL_IOC_HSM_STATE_SET, 0x401866d4);
IS(LL_IOC_HSM_COPY_START, 0x400866d6);
IS(LL_IOC_HSM_COPY_END, 0x400866d7);
IS(LL_IOC_HSM_PROGRESS, 0x401866d8);
IS(LL_IOC_HSM_REQUEST, 0x401866d9);
IS(LL_IOC_LOV_SWAP_LAYOUTS, 0x402066db);
IS(LL_IOC_HSM_ACTION, 0x801866dc);
IS(LL_IOC_LMV_SETSTRIPE, 0xc03066f0);
IS(LL_IOC_REMOVE_ENTRY, 0xc00866f2);
IS(LL_IOC_RMFID, 0x801066f2);
IS(LL_IOC_UNLOCK_FOREIGN, 0x66f2);
IS(LL_IOC_SET_LEASE, 0xc00c66f3);
IS(LL_IOC_SET_LEASE_OLD, 0xc00866f3);
IS(LL_IOC_GET_LEASE, 0x66f4);
IS(LL_IOC_HSM_IMPORT, 0xc03066f5);
IS(LL_IOC_MIGRATE, 0x800466f7);
IS(LL_IOC_GETPARENT, 0xc01866f9);
IS(LL_IOC_HEAT_GET, 0xc00866fb);
IS(LL_IOC_HEAT_SET, 0x400866fb);
IS(LL_IOC_PCC_ATTACH, 0x400866fc);
IS(LL_IOC_PCC_DETACH, 0xc00466fc);
IS(LL_IOC_PCC_STATE, 0x901066fc);
IS(LL_IOC_PROJECT, 0x411066fd);
IS(LL_IOC_HSM_DATA_VERSION, 0x401066fe);
IS(IOC_MDC_GETFILESTRIPE, 0xc0086915);
IS(IOC_MDC_GETFILEINFO, 0xc0086916);
IS(LL_IOC_MDC_GETINFO, 0xc0086917);
IS(IOC_MDC_GETFILEINFO_V2, 0xc1406916);
IS(OBD_IOC_GETDTNAME, 0x8080667f);
IS(OBD_IOC_GETMDNAME, 0x80806683);

IS(LL_SUPER_MAGIC, 0x0BD00BD0);
IS(LUSTRE_SUPER_MAGIC, LL_SUPER_MAGIC);
IS(O_LOV_DELAY_CREATE, 020400);
IS(LMV_USER_MAGIC, 0x0CD30CD0);
IS(LMV_USER_MAGIC_V0, 0x0CD20CD0);
IS(LMV_USER_MAGIC_SPECIFIC, 0x0CD40CD0);
IS(LMV_HASH_TYPE_MAX, 5);
IS(LADVISE_MAGIC, 0x1ADF1CE0);
IS(LF_MASK, 3);
IS(LU_LADVISE_MAX, 5);
IS(MODE_MAX_USER, 3);
IS(HSM_USER_MASK, 0x32);
IS(HSM_FLAGS_MASK, 0x1ff);
IS(HUA_CANCEL, 14);
IS(HSMA_CANCEL, 23);

IS(sizeof(struct lmv_user_mds_data), 24);
IS(offsetof(struct lmv_user_mds_data, lum_mds), 20);
IS(sizeof(struct lmv_user_md), 48);
IS(offsetof(struct lmv_user_md, lum_max_inherit), 20);
IS(offsetof(struct lmv_user_md, lum_pool_name), 32);
IS(offsetof(struct lov_user_mds_data, lmd_lmm), 288);
IS(offsetof(struct lov_user_mds_data_v1, lmd_lmm), sizeof(struct stat));
IS(sizeof(struct lov_foreign_md), 16);
IS(sizeof(struct ioc_data_version), 16);
IS(sizeof(struct llapi_ladvise_hdr), 32);
IS(offsetof(struct llapi_ladvise_hdr, lah_advise), 32);
IS(sizeof(struct lustre_swap_layouts), 32);
IS(sizeof(struct ll_futimes_3), 48);
IS(sizeof(struct ll_fid), 16);
IS(sizeof(struct fid_array), 16);
IS(sizeof(struct getparent), 24);
IS(sizeof(struct lu_project), 272);
IS(sizeof(struct hsm_extent), 16);
IS(sizeof(struct hsm_user_state), 32);
IS(sizeof(struct hsm_state_set), 24);
IS(sizeof(struct hsm_current_action), 24);
IS(sizeof(struct hsm_request), 24);
IS(sizeof(struct hsm_user_item), 32);
IS(sizeof(struct hsm_user_request), 24);
IS(sizeof(struct hsm_user_import), 48);
IS(sizeof(struct hsm_action_item), 72);
IS(sizeof(struct hsm_action_list), 32);
IS(sizeof(struct hsm_progress), 48);
IS(sizeof(struct hsm_copy), 88);
IS(sizeof(struct lu_pcc_attach), 8);
IS(sizeof(struct lu_pcc_detach_fid), 24);
IS(sizeof(struct lu_pcc_state), 16 + PATH_MAX);
IS(sizeof(struct lu_heat), 8);

static const char *const advices[] = LU_LADVISE_NAMES;
static const char *const modes[] = LOCK_MODE_NAMES;

static void inline_functions(void)
{
	struct lu_extent first = {0, 10}, second = {10, 20}, whole = {0, LUSTRE_EOF};
	struct obd_uuid uuid, same;
	char name[16];

	CHECK(strcmp(advices[LU_LADVISE_LOCKAHEAD], "lockahead") == 0 && strcmp(modes[MODE_WRITE_USER], "WRITE") == 0);
	obd_str2uuid(&uuid, "scratch-OST0007_UUID");
	obd_str2uuid(&same, obd_uuid2str(&uuid));
	CHECK(obd_uuid_equals(&uuid, &same) && !obd_uuid_empty(&uuid));
	obd_uuid2fsname(name, uuid.uuid, sizeof(name));
	CHECK(strcmp(name, "scratch") == 0);
	obd_uuid2fsname(name, uuid.uuid, 4);
	CHECK(strcmp(name, "scr") == 0);
	obd_str2uuid(&uuid, "a name that is longer than the forty bytes of a uuid");
	CHECK(strlen(uuid.uuid) == UUID_MAX - 1);
	CHECK(!lu_extent_is_overlapped(&first, &second) && lu_extent_is_overlapped(&first, &whole));
	CHECK(lu_extent_is_equal(&first, &first) && lu_extent_is_whole(&whole) && !lu_extent_is_whole(&first));
	CHECK(pflr_id(3, 7) == 0x30007 && mirror_id_of(pflr_id(3, 7)) == 3);
	CHECK(lov_pattern_supported(LOV_PATTERN_RAID0 | LOV_PATTERN_OVERSTRIPING) && !lov_pattern_supported(LOV_PATTERN_FOREIGN));
	CHECK(lmv_is_known_hash_type(LMV_HASH_TYPE_CRUSH | LMV_HASH_FLAG_OVERSTRIPED) && !lmv_is_known_hash_type(9));
	CHECK(lmv_user_md_size(2, LMV_USER_MAGIC) == 48 && lmv_user_md_size(2, LMV_USER_MAGIC_SPECIFIC) == 96);
	CHECK(lov_user_md_size(2, LOV_USER_MAGIC_V3) == 96);
}

static void names_of_actions(void)
{
	CHECK(strcmp(hsm_progress_state2name(HPS_RUNNING), "running") == 0);
	CHECK(strcmp(hsm_user_action2name(HUA_RESTORE), "RESTORE") == 0);
	CHECK(strcmp(hsm_user_action2name(HUA_NONE), "NOOP") == 0);
	CHECK(strcmp(hsm_copytool_action2name(HSMA_REMOVE), "REMOVE") == 0);
	CHECK(strcmp(hsm_copytool_action2name((enum hsm_copytool_action)99), "UNKNOWN") == 0);
	CHECK(hsm_get_cl_event(HE_RELEASE << 7) == HE_RELEASE && hsm_get_cl_flags(CLF_HSM_DIRTY << 10) == CLF_HSM_DIRTY);
	CHECK(hsm_get_cl_error(CLF_HSM_MAXERROR | HE_STATE << 7) == CLF_HSM_MAXERROR);
}

static void lists_of_actions(void)
{
	union {
		struct hsm_action_list list;
		char room[512];
	} u = {.list = {.hal_version = HAL_VERSION, .hal_count = 2}};
	struct hsm_action_item *item;

	strcpy(u.room + sizeof(u.list), "scratch");
	item = hai_first(&u.list);
	CHECK((char *)item == u.room + 40);
	item->hai_len = sizeof(*item) + 3;
	CHECK((char *)hai_next(item) == u.room + 120);
	hai_next(item)->hai_len = sizeof(*item);
	CHECK(hal_size(&u.list) == 192);
}

static void archives(void)
{
	struct hsm_user_request *request = llapi_hsm_user_request_alloc(2, 10);
	struct hsm_copytool_private *tool = NULL;
	struct hsm_copyaction_private *action = NULL;
	struct hsm_action_list *list = NULL;
	struct hsm_current_action current;
	struct hsm_user_state state;
	struct lu_fid fid;
	int archive = 1, size;

	CHECK(request != NULL && request->hur_request.hr_itemcount == 0);
	request->hur_request.hr_itemcount = 2;
	request->hur_request.hr_data_len = 10;
	CHECK(hur_len(request) == 98 && (char *)hur_data(request) == (char *)request + 88);
	memset(hur_data(request), 1, 10);
	REFUSES(llapi_hsm_request("/", request), EOPNOTSUPP);
	free(request);
	IS_NULL(llapi_hsm_user_request_alloc(-1, 0), EINVAL);
	REFUSES(llapi_hsm_state_get("/", &state), EOPNOTSUPP);
	REFUSES(llapi_hsm_state_get_fd(0, &state), EOPNOTSUPP);
	REFUSES(llapi_hsm_state_set("/", HS_ARCHIVED, 0, 1), EOPNOTSUPP);
	REFUSES(llapi_hsm_state_set_fd(0, HS_ARCHIVED, 0, 1), EOPNOTSUPP);
	REFUSES(llapi_hsm_data_version_set(0, 1), EOPNOTSUPP);
	REFUSES(llapi_hsm_current_action("/", &current), EOPNOTSUPP);
	REFUSES(llapi_hsm_import("/", 1, NULL, 0, -1, 0, LOV_PATTERN_RAID0, NULL, &fid), EOPNOTSUPP);
	REFUSES(llapi_hsm_copytool_register(&tool, "/", 1, &archive, 0), EOPNOTSUPP);
	REFUSES(llapi_hsm_copytool_get_fd(tool), EOPNOTSUPP);
	REFUSES(llapi_hsm_copytool_recv(tool, &list, &size), EOPNOTSUPP);
	REFUSES(llapi_hsm_copytool_unregister(&tool), EOPNOTSUPP);
	REFUSES(llapi_hsm_action_begin(&action, tool, NULL, -1, 0, false), EOPNOTSUPP);
	REFUSES(llapi_hsm_action_progress(action, NULL, 0, HP_FLAG_RETRY), EOPNOTSUPP);
	REFUSES(llapi_hsm_action_get_dfid(action, &fid), EOPNOTSUPP);
	REFUSES(llapi_hsm_action_get_fd(action), EOPNOTSUPP);
	REFUSES(llapi_hsm_action_end(&action, NULL, HP_FLAG_COMPLETED, 0), EOPNOTSUPP);
	REFUSES(llapi_hsm_register_event_fifo("/"), EOPNOTSUPP);
	REFUSES(llapi_hsm_unregister_event_fifo("/"), EOPNOTSUPP);
}

/* The callback of a copytool for messages: it prints nothing. */
static void log_event(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	llapi_hsm_log_error(LLAPI_MSG_ERROR, -ENOSPC, format, values);
	va_end(values);
}

static void caches_and_others(void)
{
	struct lu_fid fid = {0};
	struct lu_pcc_state state;
	struct lu_heat heat = {.lh_count = 0};
	char path[] = "/", text[64];
	__u32 id;

	REFUSES(llapi_pcc_attach("/", 1, LU_PCC_READONLY), EOPNOTSUPP);
	REFUSES(llapi_pcc_attach_fid("/", &fid, 1, LU_PCC_READWRITE), EOPNOTSUPP);
	REFUSES(llapi_pcc_attach_fid_str("/", "0x1:0x1:0x0", 1, LU_PCC_NONE), EOPNOTSUPP);
	REFUSES(llapi_pcc_detach_fd(0, PCC_DETACH_FL_NONE), EOPNOTSUPP);
	REFUSES(llapi_pcc_detach_fid("/", &fid, PCC_DETACH_FL_UNCACHE), EOPNOTSUPP);
	REFUSES(llapi_pcc_detach_fid_str("/", "0x1:0x1:0x0", 0), EOPNOTSUPP);
	REFUSES(llapi_pcc_detach_file("/", 0), EOPNOTSUPP);
	REFUSES(llapi_pcc_detach_at(0, &fid, PCC_DETACH_FL_NONE), EOPNOTSUPP);
	REFUSES(llapi_pcc_pin_file("/", 1), EOPNOTSUPP);
	REFUSES(llapi_pcc_unpin_file("/", 1), EOPNOTSUPP);
	REFUSES(llapi_pcc_backend_id_get("/", LU_PCC_READWRITE, &id), EOPNOTSUPP);
	REFUSES(llapi_pcc_state_get("/", &state), EOPNOTSUPP);
	REFUSES(llapi_pcc_state_get_fd(0, &state), EOPNOTSUPP);
	REFUSES(llapi_pccdev_set("/", "clear"), EOPNOTSUPP);
	REFUSES(llapi_pccdev_get("/"), EOPNOTSUPP);
	REFUSES(llapi_pcc_del("/", "/", PCC_CLEANUP_FL_NONE), EOPNOTSUPP);
	REFUSES(llapi_pcc_clear("/", PCC_CLEANUP_FL_KEEP_DATA), EOPNOTSUPP);
	REFUSES(llapi_heat_get(0, &heat), EOPNOTSUPP);
	REFUSES(llapi_heat_set(0, LU_HEAT_FLAG_OFF), EOPNOTSUPP);
	REFUSES(llapi_file_create_foreign("/", 0644, LU_FOREIGN_TYPE_NONE, 0, path), EOPNOTSUPP);
	REFUSES(llapi_dir_create_foreign("/", 0755, LU_FOREIGN_TYPE_SYMLINK, 0, path), EOPNOTSUPP);
	REFUSES(llapi_unlink_foreign(path), EOPNOTSUPP);
	REFUSES(llapi_lease_get(0, LL_LEASE_RDLCK), EOPNOTSUPP);
	REFUSES(llapi_lease_release_intent(0, NULL), EOPNOTSUPP);
	REFUSES(llapi_get_agent_uuid(path, text, sizeof(text)), EOPNOTSUPP);
}

int main(void)
{
	inline_functions();
	names_of_actions();
	lists_of_actions();
	archives();
	log_event("%d files", 3);
	caches_and_others();
	return 0;
}
