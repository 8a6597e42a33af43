/*
 * Reads the changelog of an MDT, and clears its records. Arguments: MNT MDT USER; the user was
 * registered before any change.
 */
#include "check.h"
#include <poll.h>

#define EXTRA                                                                                              \
	(CHANGELOG_EXTRA_FLAG_UIDGID | CHANGELOG_EXTRA_FLAG_NID | CHANGELOG_EXTRA_FLAG_OMODE |              \
	 CHANGELOG_EXTRA_FLAG_XATTR)

static __u64 last;

/* Returns the next record of a type. Skips others, such as those of closes. */
static struct changelog_rec *next(void *reader, enum changelog_rec_type type)
{
	struct changelog_rec *rec;

	for (;;) {
		CHECK(llapi_changelog_recv(reader, &rec) == 0);
		CHECK(last == 0 || rec->cr_index == last + 1);
		last = rec->cr_index;
		if (rec->cr_type == (__u32)type)
			return rec;
		CHECK(llapi_changelog_free(&rec) == 0);
	}
}

/* Checks the parts that all records here have, and frees the record. */
static void end(struct changelog_rec *rec)
{
	unsigned int parts = CLF_RENAME | CLF_JOBID | CLF_EXTRA_FLAGS;

	CHECK((rec->cr_flags & parts) == parts);
	CHECK(changelog_rec_extra_flags(rec)->cr_extra_flags == EXTRA);
	CHECK(changelog_rec_uidgid(rec)->cr_uid == geteuid());
	CHECK(changelog_rec_uidgid(rec)->cr_gid == getegid());
	CHECK(strlen(changelog_rec_jobid(rec)->cr_jobid) < LUSTRE_JOBID_SIZE);
	CHECK(changelog_rec_openmode(rec)->cr_openflags == 0);
	CHECK(changelog_rec_xattr(rec)->cr_xattr[0] == 0);
	CHECK(llapi_changelog_free(&rec) == 0);
	CHECK(rec == NULL);
}

static int is(const char *name, size_t length, const char *wanted)
{
	return length == strlen(wanted) && memcmp(name, wanted, length) == 0;
}

/* Follows the changelog as a program that waits for several descriptors does. */
static void follow(const char *mdt)
{
	struct changelog_rec *rec = NULL;
	struct pollfd waits = {.events = POLLIN};
	void *reader = NULL;
	int result, type;

	CHECK(llapi_changelog_start(&reader, CHANGELOG_FLAG_FOLLOW, mdt, (long long)last + 1) == 0);
	waits.fd = llapi_changelog_get_fd(reader);
	CHECK(waits.fd >= 0 && llapi_changelog_get_fd(reader) == waits.fd);
	CHECK(fcntl(waits.fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(poll(&waits, 1, -1) == 1 && (waits.revents & POLLIN));
	/* All records so far, and then a new one. */
	while ((result = llapi_changelog_recv(reader, &rec)) == 0)
		CHECK(llapi_changelog_free(&rec) == 0);
	CHECK(result == -EAGAIN && rec == NULL);
	CHECK(mkdir("followed", 0700) == 0);
	for (type = CL_NONE; type != CL_MKDIR;) {
		CHECK(poll(&waits, 1, -1) == 1);
		result = llapi_changelog_recv(reader, &rec);
		CHECK(result == 0 || result == -EAGAIN);
		if (result != 0)
			continue;
		type = rec->cr_type;
		CHECK(type != CL_MKDIR || is(changelog_rec_name(rec), rec->cr_namelen, "followed"));
		CHECK(llapi_changelog_free(&rec) == 0);
	}
	CHECK(llapi_changelog_fini(&reader) == 0);
	CHECK(fcntl(waits.fd, F_GETFL) == -1 && errno == EBADF);
	REFUSES(llapi_changelog_get_fd(NULL), EINVAL);
}

static int same(const struct lu_fid *one, const struct lu_fid *other)
{
	return memcmp(one, other, sizeof(*one)) == 0;
}

int main(int argc, char **argv)
{
	struct lu_fid root, file, none;
	struct changelog_rec *rec;
	void *reader = NULL;
	size_t former;
	int fd, result;

	CHECK(argc == 4);
	memset(&none, 0, sizeof(none));
	CHECK(chdir(argv[1]) == 0);
	CHECK(mkdir("dir", 0700) == 0);
	fd = open("old", O_CREAT | O_WRONLY, 0600);
	CHECK(fd >= 0 && close(fd) == 0);
	CHECK(llapi_path2fid(".", &root) == 0);
	CHECK(llapi_path2fid("old", &file) == 0);
	CHECK(rename("old", "renamed") == 0);
	CHECK(unlink("renamed") == 0);
	fd = open(".", O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && fsync(fd) == 0 && close(fd) == 0);

	CHECK(llapi_changelog_start(&reader, CHANGELOG_FLAG_JOBID | CHANGELOG_FLAG_EXTRA_FLAGS, argv[2], 0) == 0);
	CHECK(reader != NULL);
	CHECK(llapi_changelog_set_xflags(reader, EXTRA) == 0);
	CHECK(llapi_changelog_in_buf(reader) == 1);

	rec = next(reader, CL_MKDIR);
	CHECK(is(changelog_rec_name(rec), rec->cr_namelen, "dir") && same(&rec->cr_pfid, &root));
	CHECK(changelog_rec_snamelen(rec) == 0);
	end(rec);

	rec = next(reader, CL_CREATE);
	CHECK(is(changelog_rec_name(rec), rec->cr_namelen, "old") && same(&rec->cr_tfid, &file));
	end(rec);

	rec = next(reader, CL_RENAME);
	former = changelog_rec_snamelen(rec);
	CHECK(is(changelog_rec_sname(rec), former, "old"));
	CHECK(is(changelog_rec_name(rec), rec->cr_namelen - former - 1, "renamed"));
	CHECK(same(&changelog_rec_rename(rec)->cr_sfid, &file) && same(&changelog_rec_rename(rec)->cr_spfid, &root));
	CHECK(same(&rec->cr_tfid, &none) && same(&rec->cr_pfid, &root));
	end(rec);

	rec = next(reader, CL_UNLINK);
	CHECK(is(changelog_rec_name(rec), rec->cr_namelen, "renamed") && same(&rec->cr_tfid, &file));
	CHECK((rec->cr_flags & CLF_FLAGMASK) == CLF_UNLINK_LAST);
	end(rec);

	CHECK(llapi_changelog_fini(&reader) == 0);
	CHECK(reader == NULL);

	/* From a number on, and without the parts that are not selected. */
	CHECK(llapi_changelog_start(&reader, 0, argv[2], (long long)last) == 0);
	CHECK(llapi_changelog_recv(reader, &rec) == 0);
	CHECK(rec->cr_index == last && rec->cr_type == CL_UNLINK);
	CHECK((rec->cr_flags & (CLF_JOBID | CLF_EXTRA_FLAGS)) == 0);
	CHECK(is(changelog_rec_name(rec), rec->cr_namelen, "renamed"));
	CHECK(llapi_changelog_free(&rec) == 0);
	CHECK(llapi_changelog_fini(&reader) == 0);

	/* Only later records are left, such as those of closes. */
	CHECK(llapi_changelog_clear(argv[2], argv[3], (long long)last) == 0);
	CHECK(llapi_changelog_start(&reader, 0, argv[2], 0) == 0);
	while ((result = llapi_changelog_recv(reader, &rec)) == 0) {
		CHECK(rec->cr_index > last);
		CHECK(llapi_changelog_free(&rec) == 0);
	}
	CHECK(result == 1 && rec == NULL);
	CHECK(llapi_changelog_in_buf(reader) == 0);
	CHECK(llapi_changelog_fini(&reader) == 0);
	follow(argv[2]);

	llapi_msg_set_level(LLAPI_MSG_OFF);
	REFUSES(llapi_changelog_start(&reader, 0, "nosuch", 0), EINVAL);
	REFUSES(llapi_changelog_start(&reader, 0, "nosuch-MDT0000", 0), ENODEV);
	REFUSES(llapi_changelog_start(&reader, 0, argv[2], -1), EINVAL);
	REFUSES(llapi_changelog_recv(NULL, &rec), EINVAL);
	REFUSES(llapi_changelog_fini(&reader), EINVAL);
	REFUSES(llapi_changelog_clear(argv[2], "nosuch", 0), EINVAL);
	REFUSES(llapi_changelog_clear(argv[2], "cl7", 0), ENOENT);
	return 0;
}
