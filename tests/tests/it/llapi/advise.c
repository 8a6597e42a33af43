/*
 * Gives advice on a file with objects, lockahead included: the second request for the same lock
 * finds it granted. Argument: FILE.
 */
#include "check.h"

#define MIB (1 << 20)

int main(int argc, char **argv)
{
	struct llapi_lu_ladvise advice[3] = {
		{.lla_advice = LU_LADVISE_LOCKAHEAD, .lla_start = MIB, .lla_end = 2 * MIB},
		{.lla_advice = LU_LADVISE_WILLREAD, .lla_start = 0, .lla_end = LUSTRE_EOF},
		{.lla_advice = LU_LADVISE_DONTNEED, .lla_start = 0, .lla_end = 1000},
	};
	int fd;

	CHECK(argc == 2);
	fd = open(argv[1], O_RDWR);
	CHECK(fd >= 0);
	advice[0].lla_lockahead_mode = MODE_WRITE_USER;
	advice[0].lla_lockahead_result = 77;
	CHECK(llapi_ladvise(fd, 0, 3, advice) == 0);
	CHECK(advice[0].lla_lockahead_result == LLA_RESULT_SENT);
	/* The end may be the last byte of the range or the one after it. */
	CHECK(llapi_ladvise(fd, LF_ASYNC, 1, advice) == 0);
	CHECK(advice[0].lla_lockahead_result == LLA_RESULT_SAME);
	advice[0].lla_end = 2 * MIB - 1;
	CHECK(llapi_ladvise(fd, 0, 1, advice) == 0);
	CHECK(advice[0].lla_lockahead_result == LLA_RESULT_SAME);
	advice[0].lla_end = advice[0].lla_start;
	FAILS(llapi_ladvise(fd, 0, 1, advice), EINVAL);
	advice[1].lla_advice = LU_LADVISE_LOCKNOEXPAND;
	FAILS(llapi_ladvise(fd, 0, 1, &advice[1]), EOPNOTSUPP);
	advice[1].lla_advice = 99;
	FAILS(llapi_ladvise(fd, 0, 1, &advice[1]), EINVAL);
	return 0;
}
