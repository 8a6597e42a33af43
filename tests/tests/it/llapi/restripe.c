/*
 * Gives a file other stripes, as programs for Lustre do it themselves: they copy the data to a
 * volatile file, and then swap the two layouts. Arguments: DIRECTORY FILE.
 */
#include "check.h"

static void copy(int from, int to)
{
	char bytes[65536];
	ssize_t n;

	while ((n = read(from, bytes, sizeof(bytes))) > 0)
		CHECK(write(to, bytes, n) == n);
	CHECK(n == 0 && fsync(to) == 0);
}

int main(int argc, char **argv)
{
	struct llapi_stripe_param *param = calloc(1, sizeof(*param) + 2 * sizeof(__u32));
	char path[PATH_MAX];
	struct stat stat;
	int fd, volatile_fd;

	CHECK(argc == 3 && param != NULL);
	snprintf(path, sizeof(path), "%s/%s", argv[1], argv[2]);
	CHECK((fd = open(path, O_RDWR)) >= 0);
	param->lsp_stripe_size = 131072;
	param->lsp_stripe_offset = -1;
	param->lsp_stripe_count = 2;
	param->lsp_is_specific = true;
	param->lsp_osts[0] = 3;
	param->lsp_osts[1] = 1;
	CHECK((volatile_fd = llapi_create_volatile_param(argv[1], -1, O_RDWR | O_CREAT, 0600, param)) >= 0);
	copy(fd, volatile_fd);
	CHECK(llapi_fswap_layouts(fd, volatile_fd, 0, 0, SWAP_LAYOUTS_KEEP_MTIME) == 0);
	CHECK(close(volatile_fd) == 0 && close(fd) == 0);

	/* A volatile file with the default layout of the directory. */
	CHECK((volatile_fd = llapi_create_volatile(argv[1], 0)) >= 0);
	CHECK(write(volatile_fd, "x", 1) == 1 && fstat(volatile_fd, &stat) == 0);
	CHECK(stat.st_nlink == 0 && (stat.st_mode & 07777) == 0600);
	CHECK(close(volatile_fd) == 0);

	llapi_msg_set_level(LLAPI_MSG_OFF);
	param->lsp_osts[0] = 9;
	REFUSES(llapi_create_volatile_param(argv[1], -1, O_RDWR, 0600, param), EINVAL);
	REFUSES(llapi_create_volatile_idx(argv[1], 7, O_RDWR), ENODEV);
	REFUSES(llapi_create_volatile_idx("/tmp", -1, O_RDWR), ENOTTY);
	REFUSES(llapi_create_volatile_idx("/nosuch", -1, O_RDWR), ENOENT);
	REFUSES(llapi_create_volatile(path, O_RDWR), ENOTDIR);
	free(param);
	return 0;
}
