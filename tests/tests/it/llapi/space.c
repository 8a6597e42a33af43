/* Space of all targets of a mount, and the uuids of its lov and lmv. Argument: MOUNT. */
#include "check.h"

static void show(const struct obd_uuid *uuid, const struct obd_statfs *space)
{
	CHECK(space->os_bsize > 0 && space->os_bavail <= space->os_bfree && space->os_ffree <= space->os_files);
	printf("%s %" PRIu64 "\n", uuid->uuid, (uint64_t)(space->os_blocks * space->os_bsize / 1024));
}

int main(int argc, char **argv)
{
	struct obd_statfs space;
	struct obd_uuid uuid, same;
	int fd, rc, inactive = 0;
	__u32 index;

	CHECK(argc == 2);
	fd = open(argv[1], O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && llapi_obd_fstatfs(fd, LL_STATFS_LMV, 0, &space, &uuid) == 0);
	show(&uuid, &space);
	REFUSES(llapi_obd_fstatfs(fd, LL_STATFS_LMV, 1, &space, &uuid), ENODEV);
	for (index = 0;; index++) {
		memset(&uuid, 0, sizeof(uuid));
		rc = llapi_obd_statfs(argv[1], LL_STATFS_LOV | LL_STATFS_NODELAY, index, &space, &uuid);
		if (rc == -ENODEV)
			break;
		if (rc == -ENODATA) {
			inactive++;
			printf("%s inactive\n", uuid.uuid);
			continue;
		}
		CHECK(rc == 0);
		show(&uuid, &space);
	}
	CHECK(index == 4 && inactive == 1);
	REFUSES(llapi_obd_fstatfs(fd, 0, 0, &space, &uuid), EINVAL);
	REFUSES(llapi_obd_fstatfs(fd, LL_STATFS_LOV, 0, NULL, &uuid), EINVAL);
	REFUSES(llapi_obd_statfs("/tmp", LL_STATFS_LOV, 0, &space, &uuid), ENOTTY);
	CHECK(llapi_file_fget_lov_uuid(fd, &uuid) == 0 && llapi_file_get_lov_uuid(argv[1], &same) == 0);
	CHECK(llapi_uuid_match(uuid.uuid, same.uuid) == 1);
	printf("%s\n", uuid.uuid);
	CHECK(llapi_file_get_lmv_uuid(argv[1], &uuid) == 0 && llapi_uuid_match(uuid.uuid, same.uuid) == 0);
	printf("%s\n", uuid.uuid);
	REFUSES(llapi_file_get_lov_uuid("/tmp", &uuid), ENOTTY);
	REFUSES(llapi_file_fget_lov_uuid(-1, &uuid), EBADF);
	return 0;
}
