/*
 * Attributes and layouts in one call. Argument: MOUNT, with a file "f" (3 stripes of 128 KiB,
 * 70,000 bytes), a directory "d" (default: 2 stripes) with a file "composite" (1 MiB, the rest;
 * no bytes), and a "link" to nowhere.
 */
#include "check.h"

int main(int argc, char **argv)
{
	static union {
		char bytes[65536];
		struct lov_user_md_v1 v1;
		struct lov_comp_md_v1 comp;
	} lum;
	struct statx stx;
	struct stat st;
	__u64 valid;
	int dir, file;

	CHECK(argc == 2 && chdir(argv[1]) == 0);
	CHECK(llapi_get_lum_file("f", &valid, &stx, &lum.v1, sizeof(lum)) == 0 && stat("f", &st) == 0);
	CHECK((valid & OBD_MD_FLSIZE) && (valid & OBD_MD_FLBLOCKS) && (valid & OBD_MD_FLMODE) && (valid & OBD_MD_FLNLINK));
	CHECK(!(valid & (OBD_MD_FLLAZYSIZE | OBD_MD_FLLAZYBLOCKS)));
	CHECK(stx.stx_size == 70000 && stx.stx_mode == st.st_mode && stx.stx_ino == st.st_ino && stx.stx_uid == st.st_uid);
	CHECK(lum.v1.lmm_magic == LOV_USER_MAGIC_V1 && lum.v1.lmm_stripe_count == 3);
	CHECK(lum.v1.lmm_stripe_size == 131072 && lum.v1.lmm_objects[2].l_ost_idx < 4);
	/* The call writes no more than the size that is passed. */
	CHECK(llapi_get_lum_file("f", NULL, NULL, NULL, 0) == 0);
	CHECK(llapi_get_lum_file("f", &valid, NULL, &lum.v1, lov_user_md_size(3, LOV_USER_MAGIC_V1)) == 0);
	memset(&lum, 7, sizeof(lum));
	REFUSES(llapi_get_lum_file("f", NULL, NULL, &lum.v1, lov_user_md_size(2, LOV_USER_MAGIC_V1)), EOVERFLOW);
	REFUSES(llapi_get_lum_file("f", NULL, NULL, &lum.v1, sizeof(lum.v1) - 1), EINVAL);
	CHECK(lum.bytes[0] == 7);

	CHECK(llapi_get_lum_dir("d", &valid, &stx, &lum.v1, sizeof(lum)) == 0);
	CHECK(S_ISDIR(stx.stx_mode) && lum.v1.lmm_magic == LOV_USER_MAGIC_V1 && lum.v1.lmm_stripe_count == 2);
	dir = open("d", O_RDONLY | O_DIRECTORY);
	CHECK(llapi_get_lum_file_fd(dir, "composite", &valid, &stx, &lum.v1, sizeof(lum)) == 0);
	CHECK(S_ISREG(stx.stx_mode) && stx.stx_size == 0);
	CHECK(lum.comp.lcm_magic == LOV_USER_MAGIC_COMP_V1 && lum.comp.lcm_entry_count == 2);
	CHECK(llapi_get_lum_dir_fd(dir, &valid, &stx, &lum.v1, sizeof(lum)) == 0);
	CHECK(S_ISDIR(stx.stx_mode) && lum.v1.lmm_stripe_count == 2);
	CHECK(llapi_get_lum_file_fd(dir, "../f", &valid, &stx, &lum.v1, sizeof(lum)) == 0 && stx.stx_size == 70000);
	file = open("f", O_RDONLY);
	CHECK(llapi_get_lum_file_fd(file, NULL, &valid, &stx, &lum.v1, sizeof(lum)) == 0 && stx.stx_size == 70000);

	/* An inode without a layout has the magic 0. */
	CHECK(llapi_get_lum_file("link", &valid, &stx, &lum.v1, sizeof(lum)) == 0);
	CHECK(S_ISLNK(stx.stx_mode) && lum.v1.lmm_magic == 0);
	REFUSES(llapi_get_lum_file("absent", &valid, &stx, &lum.v1, sizeof(lum)), ENOENT);
	REFUSES(llapi_get_lum_file("/tmp", &valid, &stx, &lum.v1, sizeof(lum)), ENOTTY);
	REFUSES(llapi_get_lum_file(NULL, &valid, &stx, &lum.v1, sizeof(lum)), EINVAL);
	REFUSES(llapi_get_lum_file_fd(dir, "absent", &valid, &stx, &lum.v1, sizeof(lum)), ENOENT);
	REFUSES(llapi_get_lum_dir_fd(-1, &valid, &stx, &lum.v1, sizeof(lum)), EBADF);
	return 0;
}
