/*
 * Takes a group lock on a file and prints "locked". Then it reads a line, writes the line to the
 * file at an offset, releases the lock and prints "unlocked". Arguments: FILE GROUP OFFSET. With
 * OFFSET -1 it does not wait for the lock, and only prints whether it got it.
 */
#include "check.h"

int main(int argc, char **argv)
{
	char line[256];
	int group, fd, rc;
	off_t offset;

	CHECK(argc == 4);
	group = atoi(argv[2]);
	offset = atoll(argv[3]);
	fd = open(argv[1], O_RDWR | (offset < 0 ? O_NONBLOCK : 0));
	CHECK(fd >= 0);
	llapi_msg_set_level(LLAPI_MSG_OFF);
	REFUSES(llapi_group_lock(fd, 0), EINVAL);
	REFUSES(llapi_group_unlock(fd, group), EINVAL);
	rc = llapi_group_lock(fd, group);
	if (offset < 0) {
		printf("%s\n", rc == 0 ? "locked" : strerror(-rc));
		return 0;
	}
	CHECK(rc == 0);
	REFUSES(llapi_group_lock64(fd, group), EINVAL);
	REFUSES(llapi_group_unlock(fd, group + 1), EINVAL);
	printf("locked\n");
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin) != NULL);
	CHECK(pwrite(fd, line, strlen(line), offset) == (ssize_t)strlen(line));
	CHECK(llapi_group_unlock64(fd, group) == 0);
	printf("unlocked\n");
	fflush(stdout);
	return 0;
}
