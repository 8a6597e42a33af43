/*
 * Parameters, as monitoring programs read them. Argument: FSNAME, of a mount of this user.
 */
#include "check.h"

/* Finds one parameter and stores its name. */
static void find(const char *pattern, char *name, size_t room)
{
	glob_t paths;

	CHECK(llapi_param_get_paths(pattern, &paths) == 0);
	CHECK(paths.gl_pathc == 1 && paths.gl_pathv[1] == NULL);
	CHECK(strlen(paths.gl_pathv[0]) < room);
	strcpy(name, paths.gl_pathv[0]);
	llapi_param_paths_free(&paths);
	CHECK(paths.gl_pathc == 0);
}

/* Reads a value in all three ways. */
static void read_value(const char *name)
{
	char *all = NULL, given[256], *fixed = given;
	size_t length, size, needed = sizeof(given);

	CHECK(llapi_param_get_value(name, &all, &length) == 0);
	CHECK(length == strlen(all) && length > 0 && all[length - 1] == '\n');
	CHECK(llapi_param_get_value(name, NULL, &size) == 0 && size == length + 1);
	CHECK(llapi_param_get_value(name, &fixed, &needed) == 0 && needed == size && strcmp(given, all) == 0);
	needed = length;
	REFUSES(llapi_param_get_value(name, &fixed, &needed), EOVERFLOW);
	CHECK(needed == size);
	fputs(all, stdout);
	free(all);
}

int main(int argc, char **argv)
{
	char pattern[64], name[256], *none = NULL;
	glob_t paths;
	size_t size;

	CHECK(argc == 2);
	snprintf(pattern, sizeof(pattern), "llite/%s-*/max_dirty*", argv[1]);
	REFUSES(llapi_param_get_paths(pattern, &paths), ENOENT);
	snprintf(pattern, sizeof(pattern), "llite/%s-*/fstype", argv[1]);
	find(pattern, name, sizeof(name));
	read_value(name);
	snprintf(pattern, sizeof(pattern), "osc.%s-OST0001-osc-[!M]*.max_rpcs_in_flight", argv[1]);
	find(pattern, name, sizeof(name));
	read_value(name);
	/* A directory has no value. */
	snprintf(pattern, sizeof(pattern), "lov.%s-clilov-*", argv[1]);
	find(pattern, name, sizeof(name));
	REFUSES(llapi_param_get_value(name, &none, &size), ENOENT);
	CHECK(none == NULL);
	snprintf(pattern, sizeof(pattern), "osc.%s-OST000[0-3]-osc-[!M]*", argv[1]);
	CHECK(llapi_param_get_paths(pattern, &paths) == 0);
	CHECK(paths.gl_pathc == 4);
	for (size_t i = 1; i < paths.gl_pathc; i++)
		CHECK(strcmp(paths.gl_pathv[i - 1], paths.gl_pathv[i]) < 0);
	/* globfree() frees the names as well. */
	globfree(&paths);
	REFUSES(llapi_param_get_paths(NULL, &paths), EINVAL);
	REFUSES(llapi_param_get_paths("\xff", &paths), EINVAL);
	REFUSES(llapi_param_get_value("version", NULL, NULL), EINVAL);
	return 0;
}
