/*
 * ioctl(2) on files and directories, without the library: as mpiFileUtils takes group locks, IOR
 * works without locks, and ROMIO gives advice. Argument: MOUNT, a file system of 4 OSTs.
 */
#include "check.h"
#include <sys/ioctl.h>

/* The number of Lustre's header, for which FUSE copies the right bytes. */
#define LUSTRE_SETSTRIPE_NEW _IOWR('f', 154, struct lov_user_md)

static int made(const char *name, int count)
{
	int fd;

	CHECK(llapi_file_create(name, 131072, -1, count, 0) == 0);
	fd = open(name, O_RDWR);
	CHECK(fd >= 0 && write(fd, "bytes", 5) == 5);
	return fd;
}

static void group_locks(void)
{
	int fd = made("grouped", 2), other = open("grouped", O_RDWR | O_NONBLOCK);
	int flags[2] = {-1, 77};
	/* As a program passes it: an int, and no pointer. */
	int group = 7;

	CHECK(other >= 0);
	FAILS(ioctl(fd, LL_IOC_GROUP_LOCK, 0), EINVAL);
	FAILS(ioctl(fd, LL_IOC_GROUP_UNLOCK, group), EINVAL);
	CHECK(ioctl(fd, LL_IOC_GROUP_LOCK, group) == 0);
	FAILS(ioctl(fd, LL_IOC_GROUP_LOCK, group), EINVAL);
	CHECK(ioctl(fd, LL_IOC_GETFLAGS, flags) == 0 && flags[0] == LL_FILE_GROUP_LOCKED && flags[1] == 77);
	FAILS(ioctl(other, LL_IOC_GROUP_LOCK, 8), EAGAIN);
	CHECK(ioctl(other, LL_IOC_GROUP_LOCK, group) == 0 && ioctl(other, LL_IOC_GROUP_UNLOCK, group) == 0);
	FAILS(ioctl(fd, LL_IOC_GROUP_UNLOCK, 8), EINVAL);
	CHECK(pwrite(fd, "group", 5, 0) == 5 && ioctl(fd, LL_IOC_GROUP_UNLOCK, group) == 0);
	CHECK(ioctl(fd, LL_IOC_GETFLAGS, flags) == 0 && flags[0] == 0);
	CHECK(ioctl(fd, LL_IOC_GROUP_LOCK, 1UL << 40) == 0);
	REFUSES(llapi_group_unlock64(fd, 1), EINVAL);
	CHECK(llapi_group_unlock64(fd, 1UL << 40) == 0);
	CHECK(close(fd) == 0 && close(other) == 0);
}

/* As IOR with ignorelocks: only files that are open with O_DIRECT may be without locks. */
static void flags(void)
{
	int fd = open("grouped", O_RDWR), direct = open("grouped", O_RDWR | O_DIRECT);
	int flags = LL_FILE_IGNORE_LOCK;

	CHECK(fd >= 0 && direct >= 0);
	FAILS(ioctl(fd, LL_IOC_SETFLAGS, &flags), EINVAL);
	CHECK(ioctl(direct, LL_IOC_SETFLAGS, &flags) == 0);
	flags = 0;
	CHECK(ioctl(direct, LL_IOC_GETFLAGS, &flags) == 0 && flags == LL_FILE_IGNORE_LOCK);
	CHECK(ioctl(direct, LL_IOC_CLRFLAGS, &flags) == 0);
	CHECK(ioctl(direct, LL_IOC_GETFLAGS, &flags) == 0 && flags == 0);
	/* No program can make a file look as if it had a group lock. */
	flags = LL_FILE_READAHEA | LL_FILE_GROUP_LOCKED;
	CHECK(ioctl(fd, LL_IOC_SETFLAGS, &flags) == 0);
	CHECK(ioctl(fd, LL_IOC_GETFLAGS, &flags) == 0 && flags == LL_FILE_READAHEA);
	CHECK(close(fd) == 0 && close(direct) == 0);
}

static void identity(const char *name, int open_flags)
{
	struct lu_fid found, wanted;
	int fd = open(name, open_flags), index = -1, osts = 0, mdts = 1;

	CHECK(fd >= 0 && ioctl(fd, LL_IOC_PATH2FID, &found) == 0 && llapi_path2fid(name, &wanted) == 0);
	CHECK(memcmp(&found, &wanted, sizeof(found)) == 0);
	CHECK(ioctl(fd, LL_IOC_GET_MDTIDX, &index) == 0 && index == 0);
	CHECK(ioctl(fd, LL_IOC_FID2MDTIDX, &found) == 0 && memcmp(&found, &wanted, sizeof(found)) == 0);
	found.f_oid = 0;
	FAILS(ioctl(fd, LL_IOC_FID2MDTIDX, &found), EINVAL);
	CHECK(ioctl(fd, LL_IOC_GETOBDCOUNT, &osts) == 0 && osts == 4);
	CHECK(ioctl(fd, LL_IOC_GETOBDCOUNT, &mdts) == 0 && mdts == 1);
	CHECK(ioctl(fd, LL_IOC_FLUSHCTX) == 0);
	CHECK(llapi_file_is_encrypted(fd) == 0);
	CHECK(close(fd) == 0);
}

static void data_versions(void)
{
	struct ioc_data_version found = {.idv_flags = LL_DV_RD_FLUSH};
	int fd = open("grouped", O_RDWR);
	__u64 wanted;

	CHECK(ioctl(fd, LL_IOC_DATA_VERSION, &found) == 0 && llapi_get_data_version(fd, &wanted, LL_DV_RD_FLUSH) == 0);
	CHECK(found.idv_version == wanted && wanted != 0);
	found.idv_flags = LL_DV_SZ_UPDATE;
	FAILS(ioctl(fd, LL_IOC_DATA_VERSION, &found), EINVAL);
	/* There is no mirror 5. 0 is the whole file. */
	FAILS(ioctl(fd, LL_IOC_FLR_SET_MIRROR, 5), EINVAL);
	CHECK(ioctl(fd, LL_IOC_FLR_SET_MIRROR, 0) == 0 && close(fd) == 0);
}

/* As ROMIO with its hints for lockahead. */
static void advice(void)
{
	struct llapi_ladvise_hdr *list = calloc(1, sizeof(*list) + 3 * sizeof(list->lah_advise[0]));
	struct llapi_lu_ladvise *first = list->lah_advise;
	int fd = made("advised", 1), i;

	list->lah_magic = LADVISE_MAGIC;
	list->lah_count = 3;
	for (i = 0; i < 3; i++) {
		list->lah_advise[i].lla_advice = LU_LADVISE_LOCKAHEAD;
		list->lah_advise[i].lla_lockahead_mode = MODE_WRITE_USER;
		list->lah_advise[i].lla_start = (1 + i) << 20;
		list->lah_advise[i].lla_end = ((2 + i) << 20) - 1;
		list->lah_advise[i].lla_lockahead_result = 77;
	}
	CHECK(ioctl(fd, LL_IOC_LADVISE, list) == 0 && first->lla_lockahead_result == LLA_RESULT_SENT);
	CHECK(ioctl(fd, LL_IOC_LADVISE, list) == 0 && first->lla_lockahead_result == LLA_RESULT_SAME);
	CHECK(first->lla_end == (2 << 20) - 1 && list->lah_advise[1].lla_lockahead_result == 77);
	list->lah_flags = LF_UNSET;
	FAILS(ioctl(fd, LL_IOC_LADVISE, list), EOPNOTSUPP);
	list->lah_flags = 0;
	first->lla_advice = LU_LADVISE_LOCKNOEXPAND;
	FAILS(ioctl(fd, LL_IOC_LADVISE, list), EOPNOTSUPP);
	first->lla_advice = LU_LADVISE_WILLREAD;
	CHECK(ioctl(fd, LL_IOC_LADVISE, list) == 0);
	list->lah_count = 0;
	FAILS(ioctl(fd, LL_IOC_LADVISE, list), EINVAL);
	list->lah_count = LAH_COUNT_MAX;
	list->lah_magic = 0;
	FAILS(ioctl(fd, LL_IOC_LADVISE, list), EINVAL);
	CHECK(close(fd) == 0);
	free(list);
}

static void layouts_of_directories(void)
{
	static char room[65536];
	struct lov_user_md *found = (void *)room;
	struct lov_user_md lum = {.lmm_magic = LOV_USER_MAGIC, .lmm_stripe_size = 131072};
	int dir, fd;

	CHECK(mkdir("dir", 0755) == 0);
	dir = open("dir", O_RDONLY | O_DIRECTORY);
	lum.lmm_stripe_count = 2;
	lum.lmm_stripe_offset = LOV_OFFSET_DEFAULT;
	FAILS(ioctl(dir, LL_IOC_LOV_GETSTRIPE, found), ENODATA);
	CHECK(ioctl(dir, LL_IOC_LOV_SETSTRIPE, &lum) == 0 && ioctl(dir, LL_IOC_LOV_GETSTRIPE, found) == 0);
	CHECK(found->lmm_magic == LOV_USER_MAGIC_V1 && found->lmm_stripe_count == 2 && found->lmm_stripe_size == 131072);
	lum.lmm_stripe_count = 3;
	CHECK(ioctl(dir, LUSTRE_SETSTRIPE_NEW, &lum) == 0);
	fd = openat(dir, "file", O_CREAT | O_RDWR, 0644);
	CHECK(fd >= 0 && write(fd, "x", 1) == 1 && ioctl(fd, LL_IOC_LOV_GETSTRIPE_NEW, found) == 0);
	CHECK(found->lmm_stripe_count == 3 && close(fd) == 0);
	fd = openat(dir, "other", O_CREAT | O_RDWR | O_LOV_DELAY_CREATE, 0644);
	lum.lmm_stripe_count = 1;
	CHECK(fd >= 0 && ioctl(fd, LUSTRE_SETSTRIPE_NEW, &lum) == 0 && ioctl(fd, LL_IOC_LOV_GETSTRIPE, found) == 0);
	CHECK(found->lmm_stripe_count == 1 && close(fd) == 0);
	lum.lmm_magic = 0;
	FAILS(ioctl(dir, LL_IOC_LOV_SETSTRIPE, &lum), EINVAL);
	FAILS(ioctl(dir, LL_IOC_GROUP_LOCK, 7), ENOTTY);
	CHECK(close(dir) == 0);
}

static void directories_over_mdts(void)
{
	struct llapi_stripe_param *param = calloc(1, sizeof(*param) + 2 * sizeof(__u32));
	struct lmv_user_md lum = {.lum_magic = LMV_MAGIC_V1};
	int dir = open("dir", O_RDONLY | O_DIRECTORY);

	CHECK(param != NULL && ioctl(dir, LL_IOC_LMV_GETSTRIPE, &lum) == 0);
	CHECK(lum.lum_magic == LMV_MAGIC_V1 && lum.lum_stripe_count == 0 && lum.lum_stripe_offset == 0);
	lum = (struct lmv_user_md){.lum_magic = LMV_USER_MAGIC, .lum_stripe_count = 1, .lum_max_inherit = 3};
	lum.lum_hash_type = LMV_HASH_TYPE_DEFAULT;
	CHECK(ioctl(dir, LL_IOC_LMV_SET_DEFAULT_STRIPE, &lum) == 0);
	lum = (struct lmv_user_md){.lum_magic = LMV_USER_MAGIC};
	CHECK(ioctl(dir, LL_IOC_LMV_GETSTRIPE, &lum) == 0);
	CHECK(lum.lum_magic == LMV_USER_MAGIC && lum.lum_stripe_count == 1 && lum.lum_max_inherit == 3);
	lum.lum_stripe_offset = 9;
	FAILS(ioctl(dir, LL_IOC_LMV_SET_DEFAULT_STRIPE, &lum), ENODEV);
	lum.lum_magic = 0;
	FAILS(ioctl(dir, LL_IOC_LMV_GETSTRIPE, &lum), EINVAL);
	CHECK(close(dir) == 0);
	/* Two stripes, which the ioctl has no room for. */
	param->lsp_is_specific = true;
	param->lsp_stripe_count = 2;
	param->lsp_stripe_offset = -1;
	param->lsp_stripe_pattern = LMV_HASH_TYPE_CRUSH | LMV_HASH_FLAG_OVERSTRIPED;
	CHECK(llapi_dir_create("spread", 0777, param) == 0);
	dir = open("spread", O_RDONLY | O_DIRECTORY);
	lum.lum_magic = LMV_MAGIC_V1;
	FAILS(ioctl(dir, LL_IOC_LMV_GETSTRIPE, &lum), E2BIG);
	CHECK(close(dir) == 0);
	free(param);
}

static void missing_features(void)
{
	static char room[65536];
	int fd = open("grouped", O_RDWR), dir = open("dir", O_RDONLY | O_DIRECTORY), elsewhere = open("/tmp", O_RDONLY);

	CHECK(fd >= 0 && dir >= 0 && elsewhere >= 0);
	FAILS(ioctl(fd, LL_IOC_HSM_STATE_GET, room), EOPNOTSUPP);
	FAILS(ioctl(fd, LL_IOC_HSM_STATE_SET, room), EOPNOTSUPP);
	FAILS(ioctl(fd, LL_IOC_PCC_STATE, room), EOPNOTSUPP);
	FAILS(ioctl(fd, LL_IOC_HEAT_GET, room), EOPNOTSUPP);
	FAILS(ioctl(fd, LL_IOC_GET_LEASE), EOPNOTSUPP);
	FAILS(ioctl(fd, LL_IOC_LOV_SWAP_LAYOUTS, room), EOPNOTSUPP);
	FAILS(ioctl(dir, LL_IOC_LMV_SETSTRIPE, room), EOPNOTSUPP);
	FAILS(ioctl(dir, IOC_MDC_GETFILESTRIPE, room), EOPNOTSUPP);
	FAILS(ioctl(dir, IOC_MDC_GETFILEINFO, room), EOPNOTSUPP);
	FAILS(ioctl(fd, _IO('f', 200)), ENOTTY);
	FAILS(ioctl(elsewhere, LL_IOC_PATH2FID, room), ENOTTY);
	FAILS(ioctl(elsewhere, LL_IOC_GROUP_LOCK, 7), ENOTTY);
	REFUSES(llapi_file_is_encrypted(elsewhere), ENOTTY);
	CHECK(close(fd) == 0 && close(dir) == 0 && close(elsewhere) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && chdir(argv[1]) == 0);
	group_locks();
	flags();
	identity("grouped", O_RDONLY);
	identity(".", O_RDONLY | O_DIRECTORY);
	data_versions();
	advice();
	layouts_of_directories();
	directories_over_mdts();
	missing_features();
	return 0;
}
