/*
 * Calls on single mirrors of a file with three, of which the last two are stale. Arguments: FILE
 * WHAT. "resync" brings all up to date. "lost" loses its lease by a write ("another"). "copy"
 * copies a file with holes (3,000,000 bytes, "data" at 2,000,000) to the second mirror as a
 * whole and to the third in pieces.
 */
#include "check.h"

static struct ll_ioc_lease *lease(__u32 mode, __u32 flags, __u32 count, const __u32 *ids)
{
	struct ll_ioc_lease *lease = calloc(1, sizeof(*lease) + count * sizeof(__u32));

	CHECK(lease != NULL);
	lease->lil_mode = mode;
	lease->lil_flags = flags;
	lease->lil_count = count;
	if (count > 0)
		memcpy(lease->lil_ids, ids, count * sizeof(__u32));
	return lease;
}

static int begin(int fd, __u32 count, const __u32 *mirrors)
{
	return llapi_lease_set(fd, lease(LL_LEASE_WRLCK, LL_LEASE_RESYNC, count, mirrors));
}

static int end(int fd, const struct llapi_resync_comp *components, int count)
{
	__u32 ids[16], synced = 0;

	for (int i = 0; i < count; i++)
		if (components[i].lrc_synced)
			ids[synced++] = components[i].lrc_id;
	return llapi_lease_set(fd, lease(LL_LEASE_UNLCK, LL_LEASE_RESYNC_DONE, synced, ids));
}

static struct llapi_resync_comp components[16];

static int stale(int fd, __u16 *ids, int count)
{
	struct llapi_layout *layout = llapi_layout_get_by_fd(fd, 0);
	int found;

	CHECK(layout != NULL);
	found = llapi_mirror_find_stale(layout, components, 16, ids, count);
	llapi_layout_free(layout);
	return found;
}

static void resync(int fd)
{
	struct llapi_layout *layout;
	uint64_t to = 0;
	char bytes[64];
	__u16 third = 3;

	/* A stale mirror cannot be written without a lease. */
	CHECK(llapi_mirror_read(fd, 2, bytes, sizeof(bytes), 0) == 0);
	REFUSES(llapi_mirror_write(fd, 2, bytes, sizeof(bytes), 0), EBUSY);
	REFUSES(llapi_mirror_truncate(fd, 2, 0), EBUSY);
	REFUSES(llapi_lease_release(fd), ENOLCK);
	CHECK(llapi_lease_check(fd) == 0);
	CHECK(stale(fd, NULL, 0) == 3 && stale(fd, &third, 1) == 1);
	CHECK(components[0].lrc_mirror_id == 3 && components[0].lrc_end == LUSTRE_EOF);
	CHECK(begin(fd, 0, NULL) == 0 && llapi_lease_check(fd) == LL_LEASE_WRLCK);
	layout = llapi_layout_get_by_fd(fd, 0);
	CHECK(layout != NULL && llapi_mirror_find(layout, 0, LUSTRE_EOF, &to) == 1 && to == LUSTRE_EOF);
	REFUSES(llapi_mirror_find_stale(layout, components, 2, NULL, 0), EINVAL);
	/* A mirror that is up to date is never written. */
	REFUSES(llapi_mirror_write(fd, 1, bytes, sizeof(bytes), 0), EBUSY);
	CHECK(stale(fd, NULL, 0) == 3);
	CHECK(llapi_mirror_resync_many(fd, layout, components, 3, 0, LUSTRE_EOF) == 0);
	CHECK(components[0].lrc_synced && components[1].lrc_synced && components[2].lrc_synced);
	llapi_layout_free(layout);
	CHECK(end(fd, components, 3) == LL_LEASE_WRLCK);
	CHECK(llapi_lease_check(fd) == 0 && stale(fd, NULL, 0) == 0);
	REFUSES(begin(fd, 0, NULL), EALREADY);
	REFUSES(llapi_mirror_write(fd, 2, bytes, sizeof(bytes), 0), EBUSY);
}

static void lost(int fd, const char *path)
{
	static char bytes[100000], same[100000];
	__u32 mirror = 2;
	int other;

	CHECK(begin(fd, 1, &mirror) == 0 && llapi_lease_check(fd) == LL_LEASE_WRLCK);
	memset(bytes, 7, sizeof(bytes));
	CHECK(llapi_mirror_write(fd, 2, bytes, sizeof(bytes), 8192) == sizeof(bytes));
	CHECK(llapi_mirror_read(fd, 2, same, sizeof(same), 8192) == sizeof(same));
	CHECK(memcmp(bytes, same, sizeof(bytes)) == 0);
	REFUSES(llapi_mirror_write(fd, 3, bytes, sizeof(bytes), 0), EBUSY);
	other = open(path, O_WRONLY);
	CHECK(other >= 0 && write(other, "another", 7) == 7 && close(other) == 0);
	CHECK(llapi_lease_check(fd) == 0);
	REFUSES(llapi_mirror_write(fd, 2, bytes, sizeof(bytes), 0), EBUSY);
	CHECK(stale(fd, NULL, 0) == 3);
	for (int i = 0; i < 3; i++)
		components[i].lrc_synced = true;
	CHECK(end(fd, components, 3) == 0);
	REFUSES(end(fd, components, 3), ENOLCK);
	/* Leases that are refused. */
	mirror = 9;
	REFUSES(begin(fd, 1, &mirror), EINVAL);
	REFUSES(llapi_lease_set(fd, lease(LL_LEASE_WRLCK, LL_LEASE_LAYOUT_MERGE, 0, NULL)), EOPNOTSUPP);
	REFUSES(llapi_lease_acquire(fd, LL_LEASE_WRLCK), EOPNOTSUPP);
	REFUSES(llapi_lease_set(fd, NULL), EINVAL);
	REFUSES(llapi_lease_check(-1), EBADF);
}

static void copy(int fd)
{
	__u16 targets[2] = {9, 2};
	size_t length = 1;
	off_t at;
	int n, total = 0;

	CHECK(llapi_mirror_is_sparse(fd, 1) && llapi_file_is_sparse(fd));
	at = llapi_mirror_data_seek(fd, 1, 0, &length);
	CHECK(at > 0 && at <= 2000000 && at + (off_t)length >= 2000004);
	CHECK(llapi_mirror_data_seek(fd, 1, 2900000, &length) == 3000000 && length == 0);
	CHECK(begin(fd, 0, NULL) == 0);
	/* A mirror that does not exist is left out. */
	CHECK(llapi_mirror_copy_many(fd, 1, targets, 2) == 1 && targets[0] == 2);
	CHECK(llapi_mirror_is_sparse(fd, 2));
	REFUSES(llapi_mirror_copy_many(fd, 1, (__u16[]){1}, 1), EINVAL);
	REFUSES(llapi_mirror_copy_many(fd, 1, (__u16[]){9}, 1), EBUSY);
	CHECK(llapi_mirror_copy_many(fd, 1, NULL, 0) == 0);
	for (n = 1; n > 0; total += n) {
		n = llapi_mirror_copy(fd, total % 2 ? 0 : 1, 3, total, 1000001);
		CHECK(n == 1000001 || n == 3000000 - total);
		if (n < 1000001)
			break;
	}
	/* The copy by pieces wrote zeros where the other mirrors have a hole: punches a hole. */
	CHECK(!llapi_mirror_is_sparse(fd, 3));
	CHECK(llapi_mirror_punch(fd, 3, 0, 1 << 20) == 0 && llapi_mirror_is_sparse(fd, 3));
	CHECK(stale(fd, NULL, 0) == 3);
	for (int i = 0; i < 3; i++)
		components[i].lrc_synced = true;
	CHECK(end(fd, components, 3) == LL_LEASE_WRLCK);
}

int main(int argc, char **argv)
{
	int fd;

	CHECK(argc == 3);
	CHECK((fd = open(argv[1], O_RDWR | O_DIRECT)) >= 0);
	REFUSES(llapi_mirror_set(fd, 9), EINVAL);
	CHECK(llapi_mirror_set(fd, 2) == 0 && llapi_mirror_clear(fd) == 0);
	if (strcmp(argv[2], "resync") == 0)
		resync(fd);
	else if (strcmp(argv[2], "lost") == 0)
		lost(fd, argv[1]);
	else
		copy(fd);
	CHECK(close(fd) == 0);
	CHECK((fd = open(argv[1], O_RDONLY)) >= 0);
	REFUSES(llapi_mirror_set(fd, 1), EINVAL);
	REFUSES(llapi_mirror_read(fd, 0, argv, 1, 0), EINVAL);
	return 0;
}
