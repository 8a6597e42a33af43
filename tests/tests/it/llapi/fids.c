/*
 * Converts a path to its FID and back. Arguments: MOUNT FSNAME FILE LINK; FILE and LINK are two
 * names of one file, relative to the mount.
 */
#include "check.h"

int main(int argc, char **argv)
{
	struct lu_fid fid, same, parent, root;
	char text[FID_LEN + 8], path[PATH_MAX], name[NAME_MAX + 1], *end;
	struct llapi_layout *layout;
	long long recno = -1;
	int fd, mount, link = 0, index = -1;
	uint64_t count;

	CHECK(argc == 5 && chdir(argv[1]) == 0);
	CHECK(llapi_path2fid(argv[3], &fid) == 0 && !fid_is_zero(&fid));
	snprintf(text, sizeof(text), DFID, PFID(&fid));
	printf("%s\n", text);
	fd = open(argv[4], O_RDONLY);
	CHECK(fd >= 0 && llapi_fd2fid(fd, &same) == 0 && memcmp(&fid, &same, sizeof(fid)) == 0);
	CHECK(llapi_file_fget_mdtidx(fd, &index) == 0 && index == 0);
	CHECK(close(fd) == 0);
	memset(&same, 0, sizeof(same));
	strcat(text, " tail");
	CHECK(llapi_fid_parse(text, &same, &end) == 0 && memcmp(&fid, &same, sizeof(fid)) == 0 && strcmp(end, " tail") == 0);
	*end = 0;
	REFUSES(llapi_fid_parse("[0x1:0x100000000:0x0]", &same, NULL), ERANGE);
	if (geteuid() != 0) {
		REFUSES(llapi_fid2path(argv[1], text, path, sizeof(path), &recno, &link), EPERM);
		return 0;
	}
	/*
	 * Both names, by the mount point and by the file system's name, with and without a link
	 * number.
	 */
	CHECK(llapi_fid2path(argv[1], text, path, sizeof(path), &recno, &link) == 0);
	printf("%s\n", path);
	CHECK(llapi_path2fid(path, &same) == 0 && memcmp(&fid, &same, sizeof(fid)) == 0);
	CHECK(link == 1);
	CHECK(llapi_fid2path(argv[2], text, path, sizeof(path), &recno, &link) == 0);
	printf("%s\n", path);
	CHECK(llapi_fid2path(argv[1], text, path, sizeof(path), NULL, NULL) == 0);
	REFUSES(llapi_fid2path(argv[1], text, path, 3, NULL, NULL), EOVERFLOW);
	mount = open(".", O_RDONLY | O_DIRECTORY);
	CHECK(llapi_fid2path_at(mount, &fid, name, sizeof(name), NULL, NULL) == 0 && strcmp(name, path) == 0);
	CHECK(llapi_fd2fid(mount, &root) == 0);
	CHECK(llapi_fid2path_at(mount, &root, name, sizeof(name), NULL, NULL) == 0 && strcmp(name, "/") == 0);
	/* The parent directories. */
	for (unsigned int i = 0; i < 2; i++) {
		CHECK(llapi_path2parent(argv[3], i, &parent, name, sizeof(name)) == 0);
		printf("%s in " DFID "\n", name, PFID(&parent));
	}
	REFUSES(llapi_path2parent(argv[3], 2, &parent, name, sizeof(name)), ENODATA);
	REFUSES(llapi_path2parent(argv[3], 0, &parent, name, 1), EOVERFLOW);
	/* Opens the file, and reads its layout, by the FID alone. */
	fd = llapi_open_by_fid(argv[1], &fid, O_RDONLY);
	CHECK(fd >= 0 && read(fd, name, 5) == 5 && memcmp(name, "bytes", 5) == 0);
	CHECK(close(fd) == 0);
	fd = llapi_open_by_fid_at(mount, &fid, O_RDONLY);
	CHECK(fd >= 0 && close(fd) == 0);
	layout = llapi_layout_get_by_fid(argv[3], &fid, 0);
	CHECK(layout != NULL && llapi_layout_stripe_count_get(layout, &count) == 0);
	printf("%" PRIu64 " stripes\n", count);
	llapi_layout_free(layout);
	return 0;
}
