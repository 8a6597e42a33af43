/*
 * The calls by which ROMIO's driver for Lustre opens a file (ad_lustre_open.c), with and without
 * the hints striping_factor and striping_unit. Arguments: MOUNT SECOND, two mounts of a file
 * system of 4 OSTs whose files get composite layouts by default.
 */
#include "check.h"
#include <lustre/lustre_user.h>
#include <sys/ioctl.h>

/* ROMIO's buffer has room for 1000 objects. */
#define LUM_BYTES (sizeof(struct lov_user_md) + 1000 * sizeof(struct lov_user_ost_data))

/*
 * Opens a file and reads its stripes. For a new file it sets them first. A hint of -1 or 0 means
 * no hint.
 */
static int opens(const char *path, int amode, int factor, int unit, struct lov_user_md *lum)
{
	int hinted = factor > 0 || unit > 0;
	int fd = open(path, amode | (hinted ? O_LOV_DELAY_CREATE : 0), 0644);

	CHECK(fd >= 0);
	memset(lum, 0, LUM_BYTES);
	if (hinted && (amode & O_CREAT)) {
		lum->lmm_magic = LOV_USER_MAGIC;
		lum->lmm_stripe_size = unit;
		lum->lmm_stripe_count = factor;
		lum->lmm_stripe_offset = -1;
		CHECK(ioctl(fd, LL_IOC_LOV_SETSTRIPE, lum) == 0);
	}
	memset(lum, 0, LUM_BYTES);
	lum->lmm_magic = LOV_USER_MAGIC;
	CHECK(ioctl(fd, LL_IOC_LOV_GETSTRIPE, lum) == 0);
	return fd;
}

int main(int argc, char **argv)
{
	static char bytes[200000];
	struct lov_user_md *lum = calloc(1, LUM_BYTES);
	char path[PATH_MAX];
	int fd, other;

	CHECK(lum != NULL && argc == 3 && chdir(argv[1]) == 0);
	/* One process creates the file and closes it; then all processes open it. */
	fd = opens("hinted", O_CREAT | O_RDWR, 3, 131072, lum);
	CHECK(lum->lmm_stripe_count == 3 && lum->lmm_stripe_size == 131072 && close(fd) == 0);
	fd = opens("hinted", O_RDWR, 3, 131072, lum);
	CHECK(lum->lmm_stripe_count == 3 && lum->lmm_stripe_size == 131072);
	snprintf(path, sizeof(path), "%s/hinted", argv[2]);
	other = opens(path, O_RDWR, -1, 0, lum);
	CHECK(lum->lmm_stripe_count == 3 && lum->lmm_stripe_size == 131072);
	memset(bytes, 5, sizeof(bytes));
	CHECK(pwrite(fd, bytes, 200000, 0) == 200000 && pwrite(other, bytes, 200000, 200000) == 200000);
	CHECK(close(fd) == 0 && close(other) == 0);

	/* One hint alone. Without a count the stripes are on all OSTs: ROMIO passes -1. */
	fd = opens("size", O_CREAT | O_RDWR, -1, 131072, lum);
	CHECK(lum->lmm_stripe_count == 4 && lum->lmm_stripe_size == 131072 && close(fd) == 0);
	fd = opens("count", O_CREAT | O_RDWR, 2, 0, lum);
	CHECK(lum->lmm_stripe_count == 2 && lum->lmm_stripe_size > 0 && close(fd) == 0);

	/*
	 * No hints. From a composite layout the ioctl returns one component: the last one while
	 * the file is empty, later the last with objects.
	 */
	fd = opens("usual", O_CREAT | O_RDWR, -1, 0, lum);
	CHECK(lum->lmm_magic == LOV_USER_MAGIC_V1 && lum->lmm_stripe_count == 4 && lum->lmm_stripe_size > 0);
	CHECK(pwrite(fd, bytes, sizeof(bytes), 0) == sizeof(bytes) && close(fd) == 0);
	fd = opens("usual", O_RDWR, -1, 0, lum);
	CHECK(lum->lmm_magic == LOV_USER_MAGIC_V1 && lum->lmm_stripe_count == 1 && lum->lmm_stripe_size > 0);
	CHECK(close(fd) == 0);
	free(lum);
	return 0;
}
