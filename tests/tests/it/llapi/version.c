/* Data versions and flushes: each change of the data gives a new version. Argument: FILE, which is
 * written. */
#include <sys/mman.h>

#include "check.h"

int main(int argc, char **argv)
{
	__u64 first, second, third, flags;
	char *map;
	int fd;

	CHECK(argc == 2);
	fd = open(argv[1], O_RDWR);
	CHECK(fd >= 0);
	CHECK(llapi_get_data_version(fd, &first, LL_DV_RD_FLUSH) == 0);
	CHECK(first != 0);
	CHECK(pwrite(fd, "x", 1, 0) == 1);
	CHECK(llapi_get_data_version(fd, &second, LL_DV_RD_FLUSH) == 0);
	CHECK(first != second);
	for (flags = 0; flags <= (LL_DV_RD_FLUSH | LL_DV_WR_FLUSH); flags++) {
		CHECK(llapi_get_data_version(fd, &third, flags) == 0);
		CHECK(second == third);
	}
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED);
	map[1] = 'y';
	CHECK(llapi_get_data_version(fd, &third, LL_DV_WR_FLUSH) == 0);
	CHECK(second != third);
	REFUSES(llapi_get_data_version(fd, &third, 4), EINVAL);
	REFUSES(llapi_get_data_version(fd, &third, 1ULL << 32), EINVAL);
	REFUSES(llapi_get_data_version(fd, NULL, 0), EINVAL);
	REFUSES(llapi_get_data_version(-1, &third, 0), EBADF);
	map[2] = 'z';
	CHECK(llapi_file_flush(fd) == 0);
	CHECK(llapi_get_data_version(fd, &second, 0) == 0);
	CHECK(second != third);
	CHECK(llapi_fsync(fd) == 0);
	REFUSES(llapi_fsync(-1), EBADF);
	fd = open("/proc/version", O_RDONLY);
	CHECK(fd >= 0);
	REFUSES(llapi_get_data_version(fd, &third, LL_DV_RD_FLUSH), ENOTTY);
	REFUSES(llapi_file_flush(fd), ENOTTY);
	return 0;
}
