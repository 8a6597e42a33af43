/*
 * Opens a file by a handle that is made of its FID. Arguments: MOUNT FID [PATH]. PATH names the
 * same file, relative to the mount: the kernel's handle for it must be the same. The file holds
 * "bytes".
 */
#include "check.h"

int main(int argc, char **argv)
{
	struct file_handle *handle = NULL, *same = calloc(1, sizeof(*same) + MAX_HANDLE_SZ);
	struct lu_fid fid, root, none = {.f_seq = 0x200000401, .f_oid = 0xfffff};
	int mount = open(argv[1], O_RDONLY | O_DIRECTORY), fd, id, index = -1;
	char text[8];

	CHECK(argc >= 3 && mount >= 0 && llapi_fid_parse(argv[2], &fid, NULL) == 0);
	CHECK(llapi_get_mdt_index_by_fid(mount, &fid, &index) == 0 && index == 0);
	CHECK(llapi_fid_to_handle(&handle, &fid) == 0 && handle != NULL);
	if (argc == 4) {
		same->handle_bytes = MAX_HANDLE_SZ;
		CHECK(name_to_handle_at(mount, argv[3], same, &id, 0) == 0);
		CHECK(same->handle_type == handle->handle_type && same->handle_bytes == handle->handle_bytes);
		CHECK(memcmp(same->f_handle, handle->f_handle, handle->handle_bytes) == 0);
	}
	if (geteuid() != 0)
		return 0;
	fd = open_by_handle_at(mount, handle, O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof(text)) == 5 && memcmp(text, "bytes", 5) == 0);
	CHECK(close(fd) == 0);
	free(handle);
	/*
	 * The root, for which the kernel has another inode number; and a file that does not
	 * exist.
	 */
	CHECK(llapi_fd2fid(mount, &root) == 0 && llapi_fid_to_handle(&handle, &root) == 0);
	fd = open_by_handle_at(mount, handle, O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && llapi_fd2fid(fd, &fid) == 0 && memcmp(&fid, &root, sizeof(fid)) == 0);
	free(handle);
	CHECK(llapi_fid_to_handle(&handle, &none) == 0);
	CHECK(open_by_handle_at(mount, handle, O_RDONLY) == -1 && errno == ESTALE);
	memset(&none, 0, sizeof(none));
	REFUSES(llapi_fid_to_handle(&handle, &none), EINVAL);
	REFUSES(llapi_fid_to_handle(NULL, &fid), EINVAL);
	REFUSES(llapi_get_mdt_index_by_fid(mount, &none, &index), EINVAL);
	return 0;
}
