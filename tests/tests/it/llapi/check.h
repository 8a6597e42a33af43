/*
 * Checks for the programs here: a condition that does not hold prints its place and ends the
 * program with exit code 1.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <lustre/lustreapi.h>

#define CHECK(condition)                                                                                   \
	do {                                                                                               \
		if (!(condition)) {                                                                        \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);  \
			exit(1);                                                                           \
		}                                                                                          \
	} while (0)

/*
 * The call returns: -1 and sets errno (FAILS), NULL and sets errno (IS_NULL), the errno negated
 * (REFUSES).
 */
#define FAILS(call, e) CHECK((errno = 0, (call) == -1) && errno == (e))
#define IS_NULL(call, e) CHECK((errno = 0, (call) == NULL) && errno == (e))
#define REFUSES(call, e) CHECK((errno = 0, (call) == -(e)) && errno == (e))

#endif
