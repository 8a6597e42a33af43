/*
 * Converts a path to its FID and back, and removes files by FID. Arguments: MOUNT FSNAME FILE LINK; FILE and LINK are two
 * names of one file, relative to the mount.
 */
#include "check.h"

/* Removes files by FID: one with two names, one twice, and a directory, which is refused. */
static void remove_by_fid(const char *fsname)
{
	union {
		struct fid_array array;
		char room[sizeof(struct fid_array) + 3 * sizeof(struct lu_fid)];
	} fids = {.array = {.fa_nr = 3}};
	struct lu_fid *fid = fids.array.fa_fids;
	struct stat st;
	int fd;

	CHECK(mkdir("removed", 0700) == 0);
	fd = open("removed/first", O_CREAT | O_WRONLY, 0600);
	CHECK(fd >= 0 && close(fd) == 0);
	CHECK(link("removed/first", "removed/second") == 0);
	CHECK(llapi_path2fid("removed/first", &fid[0]) == 0);
	CHECK(llapi_path2fid("removed", &fid[1]) == 0);
	fid[2] = fid[0];
	CHECK(llapi_rmfid(".", &fids.array) == 0);
	CHECK((int)fid[0].f_ver == 0 && (int)fid[1].f_ver == -EISDIR && (int)fid[2].f_ver == -ENOENT);
	CHECK(stat("removed/first", &st) == -1 && stat("removed/second", &st) == -1);
	CHECK(rmdir("removed") == 0);
	/* By the file system's name, and by an open file. */
	for (int i = 0; i < 2; i++) {
		fd = open("third", O_CREAT | O_WRONLY, 0600);
		CHECK(fd >= 0 && llapi_fd2fid(fd, &fid[0]) == 0);
		fids.array.fa_nr = 1;
		CHECK((i == 0 ? llapi_rmfid(fsname, &fids.array) : llapi_rmfid_at(fd, &fids.array)) == 0);
		CHECK(fid[0].f_ver == 0 && stat("third", &st) == -1 && errno == ENOENT);
		CHECK(close(fd) == 0);
	}
	fids.array.fa_nr = OBD_MAX_FIDS_IN_ARRAY + 1;
	REFUSES(llapi_rmfid(".", &fids.array), E2BIG);
	fids.array.fa_nr = 1;
	REFUSES(llapi_rmfid("/", &fids.array), ENOTTY);
	REFUSES(llapi_rmfid("nosuchfs", &fids.array), ENODEV);
	REFUSES(llapi_rmfid(".", NULL), EINVAL);
	REFUSES(llapi_rmfid_at(-1, &fids.array), EBADF);
}

int main(int argc, char **argv)
{
	struct lu_fid fid, same, parent, root;
	char text[FID_LEN + 8], path[PATH_MAX], name[NAME_MAX + 1], *end;
	struct fid_array none = {.fa_nr = 0};
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
		REFUSES(llapi_rmfid(argv[1], &none), EPERM);
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
	CHECK(llapi_rmfid(argv[1], &none) == 0);
	remove_by_fid(argv[2]);
	return 0;
}
