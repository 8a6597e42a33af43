/*
 * Prints the layout of a file from the bytes of lustre.lov, as a program does that uses the
 * attribute alone. With -x FILE the bytes come from a file. Then it prints what the library
 * decodes from the same bytes.
 */
#include "check.h"
#include <sys/xattr.h>

static void plain(const struct lov_user_md *lum, size_t size)
{
	const struct lov_user_ost_data *objects = lum->lmm_objects;

	if (lum->lmm_magic == LOV_USER_MAGIC_V3) {
		const struct lov_user_md_v3 *v3 = (const void *)lum;

		printf(" pool " LOV_POOLNAMEF, v3->lmm_pool_name);
		objects = v3->lmm_objects;
	}
	printf(" pattern %#x size %u count %hu:", lum->lmm_pattern, lum->lmm_stripe_size, lum->lmm_stripe_count);
	for (size_t i = 0; (const char *)&objects[i + 1] <= (const char *)lum + size; i++) {
		struct lu_fid fid = objects[i].l_object_fid;

		printf(" %u=" DFID, objects[i].l_ost_idx, PFID(&fid));
	}
	printf("\n");
}

static int component(struct llapi_layout *layout, void *data)
{
	uint64_t start, end, count, size = 0, pattern, ost;
	uint32_t id, mirror, flags;
	char pool[LOV_MAXPOOLNAME + 1];

	CHECK(llapi_layout_comp_extent_get(layout, &start, &end) == 0);
	CHECK(llapi_layout_comp_id_get(layout, &id) == 0 && llapi_layout_mirror_id_get(layout, &mirror) == 0);
	CHECK(llapi_layout_comp_flags_get(layout, &flags) == 0);
	CHECK(llapi_layout_stripe_count_get(layout, &count) == 0);
	CHECK(llapi_layout_pattern_get(layout, &pattern) == 0);
	CHECK(llapi_layout_pool_name_get(layout, pool, sizeof(pool)) == 0);
	if (flags & LCME_FL_EXTENSION)
		CHECK(llapi_layout_extension_size_get(layout, &size) == 0);
	else
		CHECK(llapi_layout_stripe_size_get(layout, &size) == 0);
	printf("id %u mirror %u flags %#x [%" PRIu64 ", ", id & 0xffff, mirror, flags, start);
	end == LUSTRE_EOF ? printf("EOF)") : printf("%" PRIu64 ")", end);
	printf(" pattern %" PRIu64 " size %" PRIu64 " count ", pattern, size);
	if (count == LLAPI_LAYOUT_DEFAULT)
		printf("default");
	else if (count >= LLAPI_LAYOUT_WIDE_MIN && count <= LLAPI_LAYOUT_WIDE_MAX)
		printf("all");
	else
		printf("%" PRIu64, count);
	printf("%s%s osts", *pool ? " pool " : "", pool);
	for (uint64_t i = 0; llapi_layout_ost_index_get(layout, i, &ost) == 0; i++)
		printf(" %" PRIu64, ost);
	printf("\n");
	++*(int *)data;
	return LLAPI_LAYOUT_ITER_CONT;
}

int main(int argc, char **argv)
{
	static char bytes[65536], same[65536];
	ssize_t size;
	int count = 0;
	uint32_t flags;
	uint16_t mirrors;

	if (argc == 3 && strcmp(argv[1], "-x") == 0) {
		FILE *file = fopen(argv[2], "r");

		CHECK(file != NULL);
		size = fread(bytes, 1, sizeof(bytes), file);
		fclose(file);
	} else {
		CHECK(argc == 2);
		size = getxattr(argv[1], XATTR_LUSTRE_LOV, bytes, sizeof(bytes));
	}
	CHECK(size > 0);
	memcpy(same, bytes, size);
	struct lov_comp_md_v1 *comp = (void *)bytes;
	if (comp->lcm_magic == LOV_USER_MAGIC_COMP_V1) {
		CHECK(comp->lcm_size == size);
		for (int i = 0; i < comp->lcm_entry_count; i++) {
			struct lov_comp_md_entry_v1 *e = &comp->lcm_entries[i];

			printf("entry %u", e->lcme_id & 0xffff);
			plain((void *)(bytes + e->lcme_offset), e->lcme_size);
		}
	} else {
		printf("file");
		plain((void *)bytes, size);
	}
	struct llapi_layout *layout = llapi_layout_get_by_xattr(bytes, size, LLAPI_LAYOUT_GET_CHECK | LLAPI_LAYOUT_GET_COPY);
	CHECK(layout != NULL);
	CHECK(memcmp(bytes, same, size) == 0);
	CHECK(llapi_layout_mirror_count_get(layout, &mirrors) == 0 && llapi_layout_flags_get(layout, &flags) == 0);
	printf("%s, mirrors %hu, state %s\n", llapi_layout_is_composite(layout) ? "composite" : "plain", mirrors,
	       llapi_layout_flags_string(flags));
	CHECK(llapi_layout_comp_iterate(layout, component, &count) == 0);
	CHECK(llapi_layout_sanity(layout, false, mirrors > 1) == 0);
	printf("components %d", count);
	CHECK(llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_FIRST) == 0);
	CHECK(llapi_layout_get_last_init_comp(layout) == 0 && llapi_layout_comp_id_get(layout, &flags) == 0);
	printf(", the last with objects %u\n", flags);
	llapi_layout_free(layout);
	return 0;
}
