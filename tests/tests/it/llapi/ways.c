/*
 * Creates files with each call of the library, and prints the layout of each as the library
 * reads it:
 * NAME COUNT SIZE PATTERN OST,OST,...
 */
#include "check.h"
#include <sys/xattr.h>

static void show(const char *name, struct llapi_layout *layout)
{
	uint64_t count, size, pattern, ost;

	CHECK(layout != NULL);
	CHECK(llapi_layout_stripe_count_get(layout, &count) == 0);
	CHECK(llapi_layout_stripe_size_get(layout, &size) == 0);
	CHECK(llapi_layout_pattern_get(layout, &pattern) == 0);
	printf("%s %" PRIu64 " %" PRIu64 " %s ", name, count, size,
	       pattern == LLAPI_LAYOUT_OVERSTRIPING ? "over" : pattern == LLAPI_LAYOUT_RAID0 ? "raid0" : "?");
	for (uint64_t i = 0; i < count; i++) {
		CHECK(llapi_layout_ost_index_get(layout, i, &ost) == 0);
		printf("%s%" PRIu64, i ? "," : "", ost);
	}
	FAILS(llapi_layout_ost_index_get(layout, count, &ost), EINVAL);
	printf("\n");
	llapi_layout_free(layout);
}

static void finish(const char *name, int fd)
{
	CHECK(fd >= 0);
	CHECK(write(fd, name, strlen(name)) == (ssize_t)strlen(name));
	show(name, llapi_layout_get_by_fd(fd, 0));
	CHECK(close(fd) == 0);
}

static void older(void)
{
	struct llapi_stripe_param *param = calloc(1, sizeof(*param) + 3 * sizeof(param->lsp_osts[0]));
	struct lov_user_md *lum = malloc(lov_user_md_size(LOV_MAX_STRIPE_COUNT, LOV_USER_MAGIC_V3));
	struct stat st;

	CHECK(llapi_file_create("create", 1048576, 1, 2, LOV_PATTERN_RAID0) == 0);
	CHECK(stat("create", &st) == 0 && (st.st_mode & 0777) == 0644);
	show("create", llapi_layout_get_by_path("create", 0));
	CHECK(llapi_file_get_stripe("create", lum) == 0);
	CHECK(lum->lmm_magic == LOV_USER_MAGIC_V1 && lum->lmm_pattern == LOV_PATTERN_RAID0);
	CHECK(lum->lmm_stripe_size == 1048576 && lum->lmm_stripe_count == 2 && lum->lmm_stripe_offset == 1);
	CHECK(lum->lmm_objects[0].l_ost_idx == 1 && lum->lmm_objects[1].l_ost_idx == 2);
	/* A second call is refused. */
	llapi_msg_set_level(LLAPI_MSG_OFF);
	REFUSES(llapi_file_create("create", 1048576, 1, 3, 0), EEXIST);
	llapi_msg_set_level(LLAPI_MSG_MAX);

	finish("open", llapi_file_open("open", O_CREAT | O_RDWR | O_EXCL, 0600, 0, -1, -1, 0));
	finish("over", llapi_file_open("over", O_CREAT | O_RDWR, 0600, 65536, 0, 6,
				       LOV_PATTERN_RAID0 | LOV_PATTERN_OVERSTRIPING));
	param->lsp_stripe_size = 131072;
	param->lsp_stripe_offset = -1;
	param->lsp_stripe_count = 3;
	param->lsp_is_specific = true;
	param->lsp_osts[0] = 3;
	param->lsp_osts[1] = 0;
	param->lsp_osts[2] = 2;
	finish("list", llapi_file_open_param("list", O_CREAT | O_RDWR, 0600, param));
	/* A file without stripes gets them. */
	CHECK(mknod("late", S_IFREG | 0600, 0) == 0);
	CHECK(llapi_file_create("late", 262144, 2, 1, 0) == 0);
	show("late", llapi_layout_get_by_path("late", 0));
	free(lum);
	free(param);
}

static void newer(void)
{
	struct llapi_layout *layout = llapi_layout_alloc();
	struct stat st;
	size_t size;
	int fd;

	CHECK(llapi_layout_stripe_count_set(layout, 3) == 0);
	CHECK(llapi_layout_stripe_size_set(layout, 2097152) == 0);
	CHECK(llapi_layout_ost_index_set(layout, 0, 2) == 0);
	finish("layout", llapi_layout_file_create("layout", O_RDWR, 0640, layout));
	CHECK(stat("layout", &st) == 0 && (st.st_mode & 0777) == 0640);
	FAILS(llapi_layout_file_create("layout", O_RDWR, 0640, layout), EEXIST);
	/*
	 * A file may be created with a mode that denies its owner access. An existing file keeps
	 * its layout.
	 */
	finish("opened", llapi_layout_file_open("opened", O_CREAT | O_RDWR, 0400, layout));
	CHECK(stat("opened", &st) == 0 && (st.st_mode & 0777) == 0400);
	CHECK(llapi_layout_stripe_count_set(layout, 1) == 0);
	fd = llapi_layout_file_open("layout", O_CREAT | O_RDONLY, 0777, layout);
	CHECK(fd >= 0 && close(fd) == 0);
	show("layout", llapi_layout_get_by_path("layout", 0));
	/* Through a symbolic link to a name that does not exist yet. */
	CHECK(symlink("linked", "link") == 0);
	fd = llapi_layout_file_open("link", O_CREAT | O_RDWR, 0600, layout);
	finish("linked", fd);

	/* Chosen OSTs, one of them twice. */
	CHECK(llapi_layout_ost_index_set(layout, 0, LLAPI_LAYOUT_DEFAULT) == 0);
	CHECK(llapi_layout_stripe_count_set(layout, LLAPI_LAYOUT_DEFAULT) == 0);
	CHECK(llapi_layout_ost_index_set(layout, 0, 1) == 0);
	CHECK(llapi_layout_ost_index_set(layout, 1, 1) == 0);
	CHECK(llapi_layout_ost_index_set(layout, 2, 0) == 0);
	CHECK(llapi_layout_pattern_set(layout, LLAPI_LAYOUT_OVERSTRIPING) == 0);
	CHECK(mknod("byfd", S_IFREG | 0600, 0) == 0);
	fd = open("byfd", O_RDONLY);
	CHECK(llapi_layout_set_by_fd(fd, layout) == 0);
	FAILS(llapi_layout_set_by_fd(fd, layout), EEXIST);
	CHECK(close(fd) == 0);
	show("byfd", llapi_layout_get_by_path("byfd", 0));

	struct lov_user_md *lum = llapi_layout_to_lum(layout, &size);
	CHECK(lum != NULL && size == lov_user_md_size(3, LOV_USER_MAGIC_V3) && lum->lmm_magic == LOV_USER_MAGIC_SPECIFIC);
	CHECK(mknod("bylum", S_IFREG | 0600, 0) == 0);
	fd = open("bylum", O_RDONLY);
	CHECK(llapi_layout_set_by_xattr(fd, lum) == 0);
	CHECK(close(fd) == 0);
	show("bylum", llapi_layout_get_by_path("bylum", 0));
	free(lum);
	llapi_layout_free(layout);

	/* A file with the layout of another one, on any OSTs. */
	layout = llapi_layout_get_by_path("layout", 0);
	CHECK(llapi_layout_ost_index_reset(layout) == 0);
	finish("like", llapi_layout_file_create("like", O_RDWR, 0600, layout));
	llapi_layout_free(layout);
}

/* A directory's default layout, and the layout that a file there would get. */
static void directories(void)
{
	struct llapi_layout *layout = llapi_layout_alloc();
	uint64_t number;
	int fd;

	CHECK(mkdir("dir", 0700) == 0);
	CHECK(llapi_layout_stripe_count_set(layout, 2) == 0);
	fd = open("dir", O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && llapi_layout_set_by_fd(fd, layout) == 0 && close(fd) == 0);
	llapi_layout_free(layout);
	layout = llapi_layout_get_by_path("dir", 0);
	CHECK(llapi_layout_stripe_count_get(layout, &number) == 0 && number == 2);
	CHECK(llapi_layout_stripe_size_get(layout, &number) == 0 && number == LLAPI_LAYOUT_DEFAULT);
	llapi_layout_free(layout);
	const char *const paths[] = {"dir", "dir/not-there-yet"};
	for (int i = 0; i < 2; i++) {
		layout = llapi_layout_get_by_path(paths[i], LLAPI_LAYOUT_GET_EXPECTED);
		CHECK(layout != NULL);
		CHECK(llapi_layout_stripe_count_get(layout, &number) == 0 && number == 2);
		CHECK(llapi_layout_stripe_size_get(layout, &number) == 0 && number == 4 << 20);
		llapi_layout_free(layout);
	}
	IS_NULL(llapi_layout_get_by_path("dir/not-there-yet", 0), ENOENT);
	/* The older call sets a default, too. */
	CHECK(llapi_file_open("dir", O_RDONLY, 0, 1 << 20, -1, 3, 0) >= 0);
	layout = llapi_layout_get_by_path("dir", 0);
	CHECK(llapi_layout_stripe_count_get(layout, &number) == 0 && number == 3);
	llapi_layout_free(layout);
	finish("dir/file", llapi_layout_file_create("dir/file", O_RDWR, 0600, NULL));
	/* A file without stripes has a layout with nothing in it. */
	CHECK(mknod("bare", S_IFREG | 0600, 0) == 0);
	layout = llapi_layout_get_by_path("bare", 0);
	CHECK(llapi_layout_stripe_count_get(layout, &number) == 0 && number == LLAPI_LAYOUT_DEFAULT);
	llapi_layout_free(layout);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && chdir(argv[1]) == 0);
	older();
	newer();
	directories();
	return 0;
}
