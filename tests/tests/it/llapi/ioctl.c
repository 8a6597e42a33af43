/*
 * Layouts by ioctl(2), as IOR and MPI libraries set and read them. Arguments: MOUNT SECOND, two
 * mounts of a file system of 4 OSTs with the pool "some".
 */
#include "check.h"
#include <lustre/lustre_user.h>
#include <lustre/liblustreapi.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

static int later(const char *name)
{
	int fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_LOV_DELAY_CREATE, 0664);

	CHECK(fd >= 0);
	return fd;
}

int main(int argc, char **argv)
{
	static char bytes[500000], room[65536];
	struct lov_user_md *found = (void *)room;
	struct lov_user_md lum = {.lmm_magic = LOV_USER_MAGIC};
	struct lov_user_md_v3 pooled = {.lmm_magic = LOV_USER_MAGIC_V3, .lmm_pool_name = "some"};
	char path[PATH_MAX];
	int fd, other;

	CHECK(argc == 3 && chdir(argv[1]) == 0);
	lum.lmm_stripe_size = 131072;
	lum.lmm_stripe_offset = 2;
	lum.lmm_stripe_count = 3;
	fd = later("striped");
	FAILS(ioctl(fd, LL_IOC_LOV_GETSTRIPE, found), ENODATA);
	CHECK(read(fd, bytes, sizeof(bytes)) == 0);
	CHECK(ioctl(fd, LL_IOC_LOV_SETSTRIPE, &lum) == 0);
	FAILS(ioctl(fd, LL_IOC_LOV_SETSTRIPE, &lum), EEXIST);
	CHECK(ioctl(fd, LL_IOC_LOV_GETSTRIPE, found) == 0);
	CHECK(found->lmm_magic == LOV_USER_MAGIC_V1 && found->lmm_stripe_count == 3 && found->lmm_stripe_size == 131072);
	CHECK(found->lmm_objects[0].l_ost_idx == 2);
	/* All other processes open the file afterwards, and all write with the same layout. */
	snprintf(path, sizeof(path), "%s/striped", argv[2]);
	CHECK((other = open(path, O_RDWR)) >= 0);
	memset(bytes, 3, sizeof(bytes));
	CHECK(pwrite(fd, bytes, 250000, 0) == 250000 && pwrite(other, bytes, 250000, 250000) == 250000);
	CHECK(close(fd) == 0 && close(other) == 0);

	fd = later("pooled");
	pooled.lmm_stripe_offset = -1;
	CHECK(ioctl(fd, LL_IOC_LOV_SETSTRIPE, &pooled) == 0 && write(fd, "x", 1) == 1 && close(fd) == 0);

	/*
	 * The first write sets a layout: here a program on the other mount, which has nothing of
	 * the file cached.
	 */
	fd = later("raced");
	snprintf(path, sizeof(path), "%s/raced", argv[2]);
	CHECK((other = open(path, O_WRONLY)) >= 0 && write(other, "first", 5) == 5 && close(other) == 0);
	FAILS(ioctl(fd, LL_IOC_LOV_SETSTRIPE, &lum), EEXIST);
	CHECK(pread(fd, bytes, sizeof(bytes), 0) == 5 && memcmp(bytes, "first", 5) == 0);
	CHECK(pwrite(fd, "again", 5, 5) == 5 && pread(fd, bytes, sizeof(bytes), 0) == 10 && close(fd) == 0);

	/* No layout is chosen. */
	fd = later("written");
	CHECK(write(fd, "written", 7) == 7 && close(fd) == 0);
	fd = open("appended", O_CREAT | O_WRONLY | O_APPEND | O_LOV_DELAY_CREATE, 0600);
	CHECK(fd >= 0 && write(fd, "appended", 8) == 8 && close(fd) == 0);
	fd = later("cut");
	CHECK(ftruncate(fd, 1000) == 0 && close(fd) == 0);
	fd = later("reserved");
	CHECK(fallocate(fd, 0, 0, 4096) == 0 && close(fd) == 0);
	fd = later("mapped");
	CHECK(ftruncate(fd, 4096) == 0);
	memcpy(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), "mapped", 6);
	CHECK(close(fd) == 0);
	fd = later("untouched");
	CHECK(fsync(fd) == 0 && lseek(fd, 0, SEEK_DATA) == -1 && errno == ENXIO && close(fd) == 0);

	/* Invalid and impossible layouts. */
	fd = later("refused");
	lum.lmm_magic = LOV_USER_MAGIC_COMP_V1;
	FAILS(ioctl(fd, LL_IOC_LOV_SETSTRIPE, &lum), EINVAL);
	lum.lmm_magic = LOV_USER_MAGIC;
	lum.lmm_stripe_offset = 9;
	FAILS(ioctl(fd, LL_IOC_LOV_SETSTRIPE, &lum), EINVAL);
	FAILS(ioctl(fd, LL_IOC_LOV_SETSTRIPE, NULL), EFAULT);
	/* As in Lustre, only a file that is open with O_DIRECT may be without locks. */
	FAILS(ioctl(fd, LL_IOC_SETFLAGS, &(int[2]){LL_FILE_IGNORE_LOCK}), EINVAL);
	CHECK(close(fd) == 0 && unlink("refused") == 0);
	fd = open("/tmp", O_RDONLY | O_DIRECTORY);
	FAILS(ioctl(fd, LL_IOC_LOV_GETSTRIPE, found), ENOTTY);
	return 0;
}
