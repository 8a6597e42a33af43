/*
 * Invalid calls: each returns its errno, and none crashes. Arguments: a directory that is on no
 * mount and, optionally, a directory on a mount.
 */
#include "check.h"

static void nothing_given(void)
{
	uint64_t number = 0;
	uint32_t word = 0;
	uint16_t half = 0;
	char text[16];
	struct lu_fid fid;
	struct llapi_layout *layout = llapi_layout_alloc(), *none = NULL;

	CHECK(layout != NULL);
	llapi_layout_free(NULL);
	FAILS(llapi_layout_stripe_count_get(NULL, &number), EINVAL);
	FAILS(llapi_layout_stripe_count_get(layout, NULL), EINVAL);
	FAILS(llapi_layout_stripe_count_set(NULL, 1), EINVAL);
	FAILS(llapi_layout_stripe_size_get(NULL, &number), EINVAL);
	FAILS(llapi_layout_stripe_size_get(layout, NULL), EINVAL);
	FAILS(llapi_layout_stripe_size_set(NULL, 65536), EINVAL);
	FAILS(llapi_layout_extension_size_get(NULL, &number), EINVAL);
	FAILS(llapi_layout_extension_size_set(NULL, 65536), EINVAL);
	FAILS(llapi_layout_pattern_get(NULL, &number), EINVAL);
	FAILS(llapi_layout_pattern_get(layout, NULL), EINVAL);
	FAILS(llapi_layout_pattern_set(NULL, 0), EINVAL);
	FAILS(llapi_layout_ost_index_get(NULL, 0, &number), EINVAL);
	FAILS(llapi_layout_ost_index_set(NULL, 0, 0), EINVAL);
	FAILS(llapi_layout_ost_index_reset(NULL), EINVAL);
	FAILS(llapi_layout_pool_name_get(NULL, text, sizeof(text)), EINVAL);
	FAILS(llapi_layout_pool_name_get(layout, NULL, sizeof(text)), EINVAL);
	FAILS(llapi_layout_pool_name_get(layout, text, 0), EINVAL);
	FAILS(llapi_layout_pool_name_set(NULL, "p"), EINVAL);
	FAILS(llapi_layout_pool_name_set(layout, NULL), EINVAL);
	FAILS(llapi_layout_comp_extent_get(NULL, &number, &number), EINVAL);
	FAILS(llapi_layout_comp_extent_get(layout, NULL, &number), EINVAL);
	FAILS(llapi_layout_comp_extent_get(layout, &number, NULL), EINVAL);
	FAILS(llapi_layout_comp_extent_set(NULL, 0, 1), EINVAL);
	FAILS(llapi_layout_comp_flags_get(NULL, &word), EINVAL);
	FAILS(llapi_layout_comp_flags_set(NULL, 0), EINVAL);
	FAILS(llapi_layout_comp_flags_clear(NULL, 0), EINVAL);
	FAILS(llapi_layout_comp_id_get(NULL, &word), EINVAL);
	FAILS(llapi_layout_mirror_id_get(NULL, &word), EINVAL);
	FAILS(llapi_layout_mirror_count_get(NULL, &half), EINVAL);
	FAILS(llapi_layout_mirror_count_set(NULL, 1), EINVAL);
	FAILS(llapi_layout_flags_get(NULL, &word), EINVAL);
	FAILS(llapi_layout_flags_set(NULL, 0), EINVAL);
	FAILS(llapi_layout_comp_add(NULL), EINVAL);
	FAILS(llapi_layout_add_first_comp(NULL), EINVAL);
	FAILS(llapi_layout_comp_del(NULL), EINVAL);
	FAILS(llapi_layout_comp_use(NULL, 1), EINVAL);
	FAILS(llapi_layout_comp_use_id(NULL, 1), EINVAL);
	FAILS(llapi_layout_comp_iterate(NULL, NULL, NULL), EINVAL);
	FAILS(llapi_layout_comp_iterate(layout, NULL, NULL), EINVAL);
	FAILS(llapi_layout_merge(NULL, layout), EINVAL);
	FAILS(llapi_layout_merge(&none, NULL), EINVAL);
	FAILS(llapi_layout_sanity(NULL, false, false), EINVAL);
	FAILS(llapi_layout_dom_size(NULL, &number), EINVAL);
	CHECK(!llapi_layout_is_composite(NULL));
	CHECK(llapi_layout_string_flags(NULL) == 0);
	IS_NULL(llapi_layout_to_lum(NULL, NULL), EINVAL);
	IS_NULL(llapi_layout_to_lum(layout, NULL), EINVAL);
	IS_NULL(llapi_layout_get_by_path(NULL, 0), EINVAL);
	IS_NULL(llapi_layout_get_by_fid(NULL, &fid, 0), EINVAL);
	IS_NULL(llapi_layout_get_by_fid("/", NULL, 0), EINVAL);
	IS_NULL(llapi_layout_get_by_xattr(NULL, 32, 0), EINVAL);
	IS_NULL(llapi_layout_get_by_fd(-1, 0), EBADF);
	FAILS(llapi_layout_file_open(NULL, O_RDONLY, 0, NULL), EINVAL);
	FAILS(llapi_layout_file_create(NULL, O_RDWR, 0600, layout), EINVAL);
	FAILS(llapi_layout_set_by_fd(-1, layout), EBADF);
	FAILS(llapi_layout_set_by_fd(0, NULL), EINVAL);
	FAILS(llapi_layout_set_by_xattr(0, NULL), EINVAL);
	FAILS(llapi_layout_file_comp_add(NULL, layout), EINVAL);
	FAILS(llapi_layout_file_comp_del(NULL, 1, 0), EINVAL);
	FAILS(llapi_layout_file_comp_set(NULL, &word, &word, 1), EINVAL);
	FAILS(llapi_layout_file_comp_set("f", NULL, &word, 1), EINVAL);
	REFUSES(llapi_file_create(NULL, 0, 0, 0, 0), EINVAL);
	REFUSES(llapi_file_open_param("f", O_RDONLY, 0, NULL), EINVAL);
	REFUSES(llapi_file_get_stripe(NULL, NULL), EINVAL);
	REFUSES(llapi_file_get_stripe("f", NULL), EINVAL);
	REFUSES(llapi_path2fid(NULL, &fid), EINVAL);
	REFUSES(llapi_fd2fid(-1, &fid), EBADF);
	REFUSES(llapi_fid_parse(NULL, &fid, NULL), EINVAL);
	REFUSES(llapi_fid_parse("0x1:0x2:0x3", NULL, NULL), EINVAL);
	REFUSES(llapi_fid2path(NULL, "0x1:0x1:0x0", text, sizeof(text), NULL, NULL), EINVAL);
	REFUSES(llapi_fid2path("/", NULL, text, sizeof(text), NULL, NULL), EINVAL);
	REFUSES(llapi_path2parent(NULL, 0, &fid, text, sizeof(text)), EINVAL);
	FAILS(llapi_open_by_fid(NULL, &fid, O_RDONLY), EINVAL);
	FAILS(llapi_open_by_fid("/", NULL, O_RDONLY), EINVAL);
	FAILS(llapi_ladvise(0, 0, 1, NULL), EINVAL);
	REFUSES(llapi_search_fsname(NULL, text), EINVAL);
	REFUSES(llapi_search_rootpath(NULL, "nosuch"), ENODEV);
	REFUSES(llapi_getname(NULL, text, sizeof(text)), EINVAL);
	REFUSES(llapi_get_obd_count(NULL, NULL, 0), EINVAL);
	REFUSES(llapi_lov_get_uuids(-1, NULL, NULL), EBADF);
	CHECK(llapi_is_lustre_mnttype(NULL) == 0 && llapi_is_lustre_mnttype("ext4") == 0);
	IS_NULL(llapi_lov_pattern_string(LOV_PATTERN_RAID0, NULL, 8), EINVAL);
	llapi_layout_free(layout);
}

static void bad_numbers(void)
{
	struct llapi_layout *layout = llapi_layout_alloc();
	uint64_t number;
	char small[4];

	FAILS(llapi_layout_stripe_size_set(layout, 100 << 10), EINVAL);
	FAILS(llapi_layout_stripe_size_set(layout, 0), EINVAL);
	FAILS(llapi_layout_stripe_size_set(layout, 1ULL << 33), EINVAL);
	FAILS(llapi_layout_stripe_size_set(layout, LLAPI_LAYOUT_INVALID), EINVAL);
	FAILS(llapi_layout_stripe_count_set(layout, LOV_MAX_STRIPE_COUNT + 1), EINVAL);
	FAILS(llapi_layout_stripe_count_set(layout, -1), EINVAL);
	FAILS(llapi_layout_stripe_count_set(layout, LLAPI_LAYOUT_INVALID), EINVAL);
	CHECK(llapi_layout_stripe_count_is_valid(LLAPI_LAYOUT_WIDE) && !llapi_layout_stripe_count_is_valid(-1));
	FAILS(llapi_layout_pattern_set(layout, 1), EOPNOTSUPP);
	FAILS(llapi_layout_ost_index_set(layout, -1, 0), EINVAL);
	FAILS(llapi_layout_ost_index_set(layout, LOV_MAX_STRIPE_COUNT, 0), EINVAL);
	FAILS(llapi_layout_ost_index_set(layout, 0, LLAPI_LAYOUT_IDX_MAX), EINVAL);
	FAILS(llapi_layout_ost_index_get(layout, 0, &number), EINVAL);
	FAILS(llapi_layout_pool_name_set(layout, "sixteen-chars-p1"), EINVAL);
	FAILS(llapi_layout_extension_size_set(layout, 1 << 20), EINVAL);
	FAILS(llapi_layout_comp_extent_set(layout, 2, 1), EINVAL);
	FAILS(llapi_layout_comp_use_id(layout, 0), EINVAL);
	CHECK(llapi_layout_pool_name_set(layout, "fs.pool") == 0);
	FAILS(llapi_layout_pool_name_get(layout, small, sizeof(small)), EINVAL);
	llapi_layout_free(layout);
}

static void bad_bytes(void)
{
	static char bytes[65536];
	struct lov_user_md *lum = (void *)bytes;
	struct lov_comp_md_v1 *comp = (void *)bytes;
	struct llapi_layout *layout;

	IS_NULL(llapi_layout_get_by_xattr(bytes, 0, 0), EINVAL);
	IS_NULL(llapi_layout_get_by_xattr(bytes, -1, 0), EINVAL);
	IS_NULL(llapi_layout_get_by_xattr(bytes, 3, 0), ERANGE);
	IS_NULL(llapi_layout_get_by_xattr(bytes, 32, 0), ERANGE);
	lum->lmm_magic = LOV_USER_MAGIC_V1;
	lum->lmm_stripe_count = 2;
	IS_NULL(llapi_layout_get_by_xattr(bytes, 31, 0), ERANGE);
	IS_NULL(llapi_layout_get_by_xattr(bytes, 32, LLAPI_LAYOUT_GET_CHECK), EBADSLT);
	layout = llapi_layout_get_by_xattr(bytes, 32, 0);
	CHECK(layout != NULL);
	llapi_layout_free(layout);
	IS_NULL(llapi_layout_get_by_xattr(bytes, sizeof(bytes), 0), EINVAL);
	comp->lcm_magic = LOV_USER_MAGIC_COMP_V1;
	comp->lcm_entry_count = 0;
	IS_NULL(llapi_layout_get_by_xattr(bytes, sizeof(bytes), 0), EINVAL);
	comp->lcm_entry_count = 0xffff;
	IS_NULL(llapi_layout_get_by_xattr(bytes, sizeof(bytes), 0), ERANGE);
	comp->lcm_entry_count = 1;
	comp->lcm_entries[0].lcme_offset = 0xfffffff0;
	comp->lcm_entries[0].lcme_size = 0x20;
	IS_NULL(llapi_layout_get_by_xattr(bytes, sizeof(bytes), 0), EINVAL);
	FAILS(llapi_layout_set_by_xattr(0, (void *)"this is not a layout, but long enough"), ERANGE);
}

static void numbers(void)
{
	unsigned long long size, units = 1 << 10;

	CHECK(llapi_parse_size("64", &size, &units, 0) == 0 && size == 64 << 10 && units == 1 << 10);
	CHECK(llapi_parse_size("3M", &size, &units, 0) == 0 && size == 3 << 20 && units == 1 << 20);
	FAILS(llapi_parse_size("3X", &size, &units, 0), EINVAL);
	FAILS(llapi_parse_size(NULL, &size, &units, 0), EINVAL);
	FAILS(llapi_parse_size("3", &size, NULL, 0), EINVAL);
	FAILS(llapi_layout_get_last_init_comp(NULL), EINVAL);
	llapi_msg_set_level(LLAPI_MSG_OFF);
	CHECK(llapi_stripe_limit_check(1 << 20, -1, 4, LOV_PATTERN_RAID0) == 0);
	CHECK(llapi_stripe_limit_check(0, 0, 0, 0) == 0);
	REFUSES(llapi_stripe_limit_check(100 << 10, -1, 4, LOV_PATTERN_RAID0), EINVAL);
	REFUSES(llapi_stripe_limit_check(0, -2, 4, LOV_PATTERN_RAID0), EINVAL);
	REFUSES(llapi_stripe_limit_check(0, -1, 2001, LOV_PATTERN_RAID0), EINVAL);
	llapi_msg_set_level(LLAPI_MSG_MAX);
}

static void elsewhere(const char *dir)
{
	struct llapi_layout *layout = llapi_layout_alloc();
	struct lu_fid fid;
	struct stat st;
	char text[PATH_MAX];
	int fd, count = 8;
	struct llapi_lu_ladvise advice = {.lla_advice = LU_LADVISE_WILLREAD, .lla_end = 4096};

	CHECK(chdir(dir) == 0);
	llapi_msg_set_level(LLAPI_MSG_OFF);
	CHECK(llapi_msg_get_level() == LLAPI_MSG_OFF);
	CHECK(strcmp(llapi_msg_level2str(LLAPI_MSG_WARN), "WARNING") == 0 && llapi_msg_level2str(LLAPI_MSG_MAX) == NULL);
	CHECK(llapi_get_version_string(text, sizeof(text)) == 0 && strchr(text, '.') != NULL);
	FAILS(llapi_get_version_string(text, 2), EOVERFLOW);
	FAILS(llapi_get_version_string(NULL, 2), EINVAL);
	FAILS(llapi_layout_file_create("f", O_RDWR, 0600, layout), ENOTTY);
	REFUSES(llapi_file_create("f", 0, -1, 1, 0), ENOTTY);
	CHECK(stat("f", &st) == -1 && errno == ENOENT);
	fd = llapi_layout_file_create("f", O_RDWR, 0600, NULL);
	CHECK(fd >= 0);
	IS_NULL(llapi_layout_get_by_path("f", 0), ENOTTY);
	IS_NULL(llapi_layout_get_by_path("f", LLAPI_LAYOUT_GET_EXPECTED), ENOTTY);
	IS_NULL(llapi_layout_get_by_path("absent", 0), ENOENT);
	IS_NULL(llapi_layout_get_by_fd(fd, 0), ENOTTY);
	FAILS(llapi_layout_set_by_fd(fd, layout), ENOTTY);
	REFUSES(llapi_file_get_stripe("f", (void *)text), ENOTTY);
	REFUSES(llapi_path2fid("f", &fid), ENOTTY);
	REFUSES(llapi_path2fid("absent", &fid), ENOENT);
	REFUSES(llapi_fd2fid(fd, &fid), ENOTTY);
	REFUSES(llapi_fid2path(dir, "0x1:0x1:0x0", text, sizeof(text), NULL, NULL), ENOTTY);
	REFUSES(llapi_fid2path("nosuchfs", "0x1:0x1:0x0", text, sizeof(text), NULL, NULL), ENODEV);
	REFUSES(llapi_fid2path(dir, "0x1:0x1", text, sizeof(text), NULL, NULL), EINVAL);
	REFUSES(llapi_group_lock(fd, 7), ENOTTY);
	REFUSES(llapi_group_unlock(fd, 7), ENOTTY);
	REFUSES(llapi_group_lock(-1, 7), EBADF);
	FAILS(llapi_ladvise(fd, 0, 1, &advice), ENOTTY);
	FAILS(llapi_ladvise(fd, 0, 0, &advice), EINVAL);
	FAILS(llapi_ladvise(fd, 0, LAH_COUNT_MAX + 1, &advice), EINVAL);
	REFUSES(llapi_search_fsname("f", text), ENOTTY);
	REFUSES(llapi_getname("f", text, sizeof(text)), ENOTTY);
	REFUSES(llapi_get_obd_count(".", &count, 0), ENOTTY);
	REFUSES(llapi_get_obd_count("f", &count, 0), ENOTDIR);
	REFUSES(llapi_lov_get_uuids(fd, NULL, &count), ENOTTY);
	REFUSES(llapi_search_mounts(dir, 0, text, NULL), ENODEV);
	CHECK(close(fd) == 0);
	llapi_layout_free(layout);
	llapi_msg_set_level(LLAPI_MSG_MAX);
}

static void on_a_mount(const char *dir)
{
	struct llapi_layout *layout = llapi_layout_alloc();
	struct lov_user_md lum;
	struct lu_fid fid = {.f_seq = 0x200000401, .f_oid = 0xffff};
	char tiny[2];
	struct stat st;

	CHECK(chdir(dir) == 0);
	IS_NULL(llapi_layout_get_by_path("absent", 0), ENOENT);
	FAILS(llapi_layout_file_open("absent", O_RDWR, 0, layout), ENOENT);
	FAILS(llapi_layout_file_create("no/such/dir", O_RDWR, 0600, layout), ENOENT);
	REFUSES(llapi_file_get_stripe("absent", &lum), ENOENT);
	/* A symbolic link to a path outside the mount: no file is created there. */
	CHECK(symlink("/tmp/sheen-llapi-not-made", "off") == 0);
	FAILS(llapi_layout_file_open("off", O_CREAT | O_RDWR, 0600, layout), ENOTTY);
	CHECK(stat("/tmp/sheen-llapi-not-made", &st) == -1 && errno == ENOENT);
	/* A symbolic link to itself. */
	CHECK(symlink("round", "round") == 0);
	FAILS(llapi_layout_file_open("round", O_CREAT | O_RDWR, 0600, layout), ELOOP);
	/* A pool and an OST that do not exist: the file is left without a layout, as in Lustre. */
	CHECK(llapi_layout_pool_name_set(layout, "nosuchpool") == 0);
	FAILS(llapi_layout_file_create("pooled", O_RDWR, 0600, layout), EINVAL);
	REFUSES(llapi_file_get_stripe("pooled", &lum), ENODATA);
	CHECK(llapi_layout_pool_name_set(layout, "") == 0);
	CHECK(llapi_layout_ost_index_set(layout, 0, 1) == 0 && llapi_layout_ost_index_set(layout, 1, 99) == 0);
	FAILS(llapi_layout_file_create("far", O_RDWR, 0600, layout), EINVAL);
	/* A list of OSTs with a gap is refused before the file is created. */
	CHECK(llapi_layout_ost_index_reset(layout) == 0);
	CHECK(llapi_layout_ost_index_set(layout, 1, 1) == 0);
	FAILS(llapi_layout_file_create("gap", O_RDWR, 0600, layout), EINVAL);
	CHECK(stat("gap", &st) == -1 && errno == ENOENT);
	llapi_msg_set_level(LLAPI_MSG_OFF);
	REFUSES(llapi_file_create("size", 100 << 10, -1, 1, 0), EINVAL);
	REFUSES(llapi_file_create("count", 0, -1, 2001, 0), EINVAL);
	REFUSES(llapi_file_create("offset", 0, -2, 1, 0), EINVAL);
	REFUSES(llapi_file_create("pattern", 0, -1, 1, 77), EINVAL);
	CHECK(stat("size", &st) == -1 && stat("pattern", &st) == -1);
	llapi_msg_set_level(LLAPI_MSG_MAX);
	REFUSES(llapi_getname(".", tiny, sizeof(tiny)), ENAMETOOLONG);
	IS_NULL(llapi_layout_get_by_fid(".", &fid, 0), geteuid() == 0 ? ENOENT : EACCES);
	REFUSES(llapi_fid2path(dir, "[0x200000401:0xffff:0x0]", tiny, sizeof(tiny), NULL, NULL),
		geteuid() == 0 ? ENOENT : EPERM);
	llapi_layout_free(layout);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 || argc == 3);
	nothing_given();
	bad_numbers();
	bad_bytes();
	numbers();
	elsewhere(argv[1]);
	if (argc == 3)
		on_a_mount(argv[2]);
	/* Messages that the message level lets pass, and messages that it suppresses. */
	llapi_error(LLAPI_MSG_ERROR, -ENOSPC, "no room for %d", 3);
	llapi_err_noerrno(LLAPI_MSG_WARN, "only %s\n", "this");
	llapi_printf(LLAPI_MSG_NORMAL, "normal %s", "text\n");
	llapi_msg_set_level(LLAPI_MSG_ERROR);
	llapi_error(LLAPI_MSG_WARN, 0, "not said");
	llapi_printf(LLAPI_MSG_NORMAL, "not said");
	return 0;
}
