/*
 * Swaps the layouts of two files, by name and by descriptor. Arguments: FILE FILE; they hold the
 * bytes "one" and "other".
 */
#include "check.h"

static int holds(const char *path, const char *bytes)
{
	char found[64] = "";
	int fd = open(path, O_RDONLY);

	CHECK(fd >= 0);
	CHECK(read(fd, found, sizeof(found) - 1) >= 0);
	CHECK(close(fd) == 0);
	return strcmp(found, bytes) == 0;
}

int main(int argc, char **argv)
{
	__u64 keep = SWAP_LAYOUTS_KEEP_MTIME | SWAP_LAYOUTS_KEEP_ATIME;
	int one, other;

	CHECK(argc == 3);
	CHECK(holds(argv[1], "one") && holds(argv[2], "other"));
	CHECK(llapi_swap_layouts(argv[1], argv[2], 0, 0, 0) == 0);
	CHECK(holds(argv[1], "other") && holds(argv[2], "one"));
	one = open(argv[1], O_RDWR);
	other = open(argv[2], O_RDWR);
	CHECK(one >= 0 && other >= 0);
	CHECK(llapi_fswap_layouts(one, other, 0, 0, keep) == 0);
	CHECK(holds(argv[1], "one") && holds(argv[2], "other"));
	CHECK(llapi_fswap_layouts(one, one, 0, 0, 0) == 0);
	CHECK(llapi_fswap_layouts_grouplock(one, other, 0, 0, 0, 0) == 0);
	CHECK(llapi_fswap_layouts_grouplock(one, other, 0, 0, 0, keep) == 0);
	llapi_msg_set_level(LLAPI_MSG_OFF);
	REFUSES(llapi_fswap_layouts(one, other, 1, 1, SWAP_LAYOUTS_CHECK_DV1), EOPNOTSUPP);
	REFUSES(llapi_fswap_layouts_grouplock(one, other, 0, 0, 7, 0), EOPNOTSUPP);
	REFUSES(llapi_fswap_layouts(one, -1, 0, 0, 0), EBADF);
	REFUSES(llapi_swap_layouts(argv[1], "/dev/null", 0, 0, 0), ENOTTY);
	REFUSES(llapi_swap_layouts(argv[1], "/nosuch", 0, 0, 0), ENOENT);
	REFUSES(llapi_swap_layouts(argv[1], NULL, 0, 0, 0), EINVAL);
	CHECK(holds(argv[1], "one") && holds(argv[2], "other"));
	return 0;
}
