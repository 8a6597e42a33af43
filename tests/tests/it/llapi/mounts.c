/*
 * Queries about a mount. Arguments: MOUNT FSNAME. The file system has the pools "bare" (empty)
 * and "some" (OSTs 2, 0 and 1).
 */
#include "check.h"
#include <mntent.h>

/*
 * Looks for a mount point in the table of mounts, as programs do. Returns what the library says
 * of its entry.
 */
static int is_listed(const char *dir)
{
	FILE *table = setmntent("/proc/mounts", "r");
	struct mntent *entry;
	int found = 0;

	CHECK(table != NULL);
	while ((entry = getmntent(table)) != NULL) {
		if (strcmp(entry->mnt_dir, dir) == 0)
			found = llapi_is_lustre_mnt(entry);
		else if (strcmp(entry->mnt_dir, "/proc") == 0)
			CHECK(llapi_is_lustre_mnt(entry) == 0);
	}
	endmntent(table);
	return found;
}

int main(int argc, char **argv)
{
	char name[PATH_MAX], fsname[PATH_MAX], instance[LUSTRE_MAXINSTANCE + 1], both[PATH_MAX], point[PATH_MAX];
	struct obd_uuid uuids[16];
	int count = -1, fd, found = 0;

	CHECK(argc == 3 && chdir(argv[1]) == 0);
	CHECK(llapi_search_fsname(".", fsname) == 0 && strcmp(fsname, argv[2]) == 0);
	CHECK(llapi_search_fsname("not-there-yet", fsname) == 0 && strcmp(fsname, argv[2]) == 0);
	CHECK(llapi_get_fsname(argv[1], fsname, sizeof(fsname)) == 0 && strcmp(fsname, argv[2]) == 0);
	CHECK(llapi_get_fsname_instance(argv[1], fsname, sizeof(fsname), instance, sizeof(instance)) == 0);
	CHECK(llapi_getname(argv[1], name, sizeof(name)) == 0);
	snprintf(both, sizeof(both), "%.9s-%s", fsname, instance);
	CHECK(strcmp(name, both) == 0);
	CHECK(llapi_get_instance(argv[1], instance, sizeof(instance)) == 0 && strstr(name, instance) != NULL);
	REFUSES(llapi_get_instance(argv[1], instance, 4), ENAMETOOLONG);
	printf("%s\n", name);

	CHECK(llapi_search_mounts(".", 0, point, fsname) == 0);
	CHECK(strcmp(point, argv[1]) == 0 && strcmp(fsname, argv[2]) == 0);
	/* Other mounts come and go meanwhile, so that a pass may miss this one. */
	for (int turn = 0; turn < 100 && found == 0; turn++)
		for (int i = 0; llapi_search_mounts(NULL, i, point, NULL) == 0; i++)
			found += strcmp(point, argv[1]) == 0;
	CHECK(found > 0);
	CHECK(llapi_search_rootpath(point, argv[2]) == 0 && strcmp(point, argv[1]) == 0);
	CHECK(llapi_is_lustre_mnttype("fuse.sheen") == 1);
	found = 0;
	for (int turn = 0; turn < 100 && found == 0; turn++)
		found = is_listed(argv[1]);
	CHECK(found == 1 && llapi_is_lustre_mnt(NULL) == 0);

	CHECK(llapi_get_obd_count(argv[1], &count, 0) == 0 && count == 4);
	CHECK(llapi_get_obd_count(argv[1], &count, 1) == 0 && count == 1);
	fd = open(".", O_RDONLY | O_DIRECTORY);
	count = 16;
	CHECK(llapi_lov_get_uuids(fd, uuids, &count) == 0 && count == 4);
	for (int i = 0; i < count; i++)
		printf("%s\n", obd_uuid2str(&uuids[i]));
	count = 1;
	uuids[1].uuid[0] = 'x';
	CHECK(llapi_lov_get_uuids(fd, uuids, &count) == 0 && count == 4 && uuids[1].uuid[0] == 'x');
	CHECK(llapi_lmv_get_uuids(fd, uuids, &count) == 0 && count == 1);
	printf("%s\n", obd_uuid2str(&uuids[0]));

	char *list[4], buffer[64];
	CHECK(llapi_get_poollist(argv[1], list, 4, buffer, sizeof(buffer)) == 2);
	CHECK(llapi_get_poollist(argv[2], list, 2, buffer, 22) == 2);
	snprintf(both, sizeof(both), "%.9s.bare %.9s.some", fsname, fsname);
	snprintf(name, sizeof(name), "%s %s", list[0], list[1]);
	CHECK(strcmp(name, both) == 0);
	REFUSES(llapi_get_poollist(argv[2], list, 1, buffer, sizeof(buffer)), EOVERFLOW);
	REFUSES(llapi_get_poollist(argv[2], list, 2, buffer, 21), EOVERFLOW);
	REFUSES(llapi_get_poollist(argv[2], NULL, 2, NULL, 64), EINVAL);
	REFUSES(llapi_get_poollist("nosuchfs", list, 4, buffer, sizeof(buffer)), ENODEV);
	CHECK(llapi_get_poolmembers(list[0], list, 4, buffer, sizeof(buffer)) == 0);
	snprintf(both, sizeof(both), "%.9s.some", fsname);
	CHECK(llapi_get_poolmembers(both, list, 4, buffer, sizeof(buffer)) == 3);
	for (int i = 0; i < 3; i++)
		printf("%s\n", list[i]);
	REFUSES(llapi_get_poolmembers(both, list, 2, buffer, sizeof(buffer)), EOVERFLOW);
	snprintf(both, sizeof(both), "%.9s.other", fsname);
	REFUSES(llapi_get_poolmembers(both, list, 4, buffer, sizeof(buffer)), ENOENT);
	REFUSES(llapi_get_poolmembers("nodot", list, 4, buffer, sizeof(buffer)), EINVAL);

	snprintf(both, sizeof(both), "%.9s-OST0003_UUID", fsname);
	CHECK(llapi_search_ost(argv[2], NULL, both) == 1 && llapi_search_ost(argv[1], "some", both) == 0);
	snprintf(both, sizeof(both), "%.9s-OST0002", fsname);
	CHECK(llapi_search_ost(argv[2], "some", both) == 1 && llapi_search_ost(argv[2], NULL, "OST0002") == 0);
	CHECK(llapi_search_ost(argv[2], "some", NULL) == 1 && llapi_search_ost(argv[2], "bare", NULL) == 0);
	REFUSES(llapi_search_ost(argv[2], "nosuch", NULL), ENOENT);
	REFUSES(llapi_search_ost("nosuchfs", NULL, both), ENODEV);

	REFUSES(llapi_search_ost(argv[2], NULL, NULL), EINVAL);
	snprintf(both, sizeof(both), "%.9s-MDT0000", fsname);
	CHECK(llapi_search_mdt(argv[2], NULL, both) == 1 && llapi_search_tgt(argv[2], NULL, both, false) == 0);
	REFUSES(llapi_search_mdt(argv[2], "some", both), ENOENT);

	/* Layouts with OSTs and pools that exist, and that do not. */
	struct llapi_layout *layout = llapi_layout_alloc();
	CHECK(llapi_layout_ost_index_set(layout, 0, 3) == 0 && llapi_layout_v2_sanity(layout, false, false, argv[2]) == 0);
	CHECK(llapi_layout_pool_name_set(layout, "some") == 0);
	CHECK(llapi_layout_v2_sanity(layout, false, false, NULL) == 0);
	CHECK(llapi_layout_v2_sanity(layout, false, false, argv[2]) > 0);
	CHECK(llapi_layout_ost_index_set(layout, 0, 2) == 0 && llapi_layout_v2_sanity(layout, false, false, argv[2]) == 0);
	CHECK(llapi_layout_pool_name_set(layout, "nosuch") == 0);
	CHECK(llapi_layout_v2_sanity(layout, false, false, argv[1]) > 0);
	FAILS(llapi_layout_v2_sanity(layout, false, false, (char *)"nosuchfs"), ENODEV);
	FAILS(llapi_layout_v2_sanity(NULL, false, false, NULL), EINVAL);
	llapi_layout_free(layout);

	struct stat root, mount;
	CHECK(llapi_root_path_open(argv[2], &fd) == 0 && fstat(fd, &root) == 0 && stat(argv[1], &mount) == 0);
	CHECK(root.st_dev == mount.st_dev && root.st_ino == mount.st_ino && close(fd) == 0);
	CHECK(llapi_search_rootpath_by_dev(point, root.st_dev) == 0 && strcmp(point, argv[1]) == 0);
	CHECK(stat("/proc", &root) == 0);
	REFUSES(llapi_search_rootpath_by_dev(point, root.st_dev), ENODEV);
	REFUSES(llapi_root_path_open("nosuchfs", &fd), ENODEV);
	REFUSES(llapi_root_path_open("/tmp", &fd), ENOTTY);
	return 0;
}
