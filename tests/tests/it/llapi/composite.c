/* Builds composite layouts, encodes them as lustre.lov, decodes them, and compares the result. */
#include "check.h"

#define MIB ((uint64_t)1 << 20)

static struct llapi_layout *three(void)
{
	struct llapi_layout *layout = llapi_layout_alloc();

	CHECK(!llapi_layout_is_composite(layout));
	CHECK(llapi_layout_stripe_count_set(layout, 1) == 0 && llapi_layout_stripe_size_set(layout, MIB) == 0);
	CHECK(llapi_layout_comp_extent_set(layout, 0, 2 * MIB) == 0);
	CHECK(llapi_layout_comp_add(layout) == 0);
	CHECK(llapi_layout_comp_extent_set(layout, 2 * MIB, 64 * MIB) == 0);
	CHECK(llapi_layout_stripe_count_set(layout, 4) == 0);
	CHECK(llapi_layout_pool_name_set(layout, "flash") == 0);
	CHECK(llapi_layout_comp_add(layout) == 0);
	CHECK(llapi_layout_comp_extent_set(layout, 64 * MIB, LUSTRE_EOF) == 0);
	CHECK(llapi_layout_stripe_count_set(layout, LLAPI_LAYOUT_WIDE) == 0);
	CHECK(llapi_layout_pool_name_set(layout, "") == 0);
	CHECK(llapi_layout_is_composite(layout));
	CHECK(llapi_layout_sanity(layout, false, false) == 0);
	return layout;
}

/* Encodes and decodes a layout. */
static struct llapi_layout *again(struct llapi_layout *layout)
{
	size_t size;
	struct lov_user_md *lum = llapi_layout_to_lum(layout, &size);
	struct llapi_layout *found;

	CHECK(lum != NULL);
	found = llapi_layout_get_by_xattr(lum, size, LLAPI_LAYOUT_GET_COPY);
	CHECK(found != NULL);
	free(lum);
	llapi_layout_free(layout);
	return found;
}

static void expect(struct llapi_layout *layout, uint64_t start, uint64_t end, uint64_t count, uint64_t size, const char *pool)
{
	uint64_t a, b;
	char name[LOV_MAXPOOLNAME + 1];

	CHECK(llapi_layout_comp_extent_get(layout, &a, &b) == 0 && a == start && b == end);
	CHECK(llapi_layout_stripe_count_get(layout, &a) == 0 && a == count);
	CHECK(llapi_layout_stripe_size_get(layout, &a) == 0 && a == size);
	CHECK(llapi_layout_pool_name_get(layout, name, sizeof(name)) == 0 && strcmp(name, pool) == 0);
}

static int stop_at_second(struct llapi_layout *layout, void *data)
{
	uint64_t start, end;

	CHECK(llapi_layout_comp_extent_get(layout, &start, &end) == 0);
	++*(int *)data;
	return start == 2 * MIB ? LLAPI_LAYOUT_ITER_STOP : LLAPI_LAYOUT_ITER_CONT;
}

static int broken(struct llapi_layout *layout, void *data)
{
	(void)layout, (void)data;
	return -EPROTO;
}

int main(void)
{
	struct llapi_layout *layout = again(three()), *other = NULL;
	int seen = 0;
	uint16_t mirrors;
	uint64_t number;
	uint32_t flags;

	expect(layout, 0, 2 * MIB, 1, MIB, "");
	CHECK(llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_NEXT) == 0);
	expect(layout, 2 * MIB, 64 * MIB, 4, MIB, "flash");
	CHECK(llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_NEXT) == 0);
	expect(layout, 64 * MIB, LUSTRE_EOF, LLAPI_LAYOUT_WIDE, MIB, "");
	CHECK((errno = 0, llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_NEXT) == 1) && errno == ENOENT);
	CHECK(llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_PREV) == 0);
	CHECK(llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_FIRST) == 0);
	CHECK(llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_PREV) == 1);
	FAILS(llapi_layout_comp_use(layout, 5), EINVAL);
	FAILS(llapi_layout_comp_use_id(layout, 77), ENOENT);
	CHECK(llapi_layout_comp_iterate(layout, stop_at_second, &seen) == LLAPI_LAYOUT_ITER_STOP && seen == 2);
	CHECK(llapi_layout_comp_iterate(layout, broken, NULL) == -EPROTO);

	/*
	 * Only the last component can be deleted, and a component begins where the one before it
	 * ends.
	 */
	CHECK(llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_FIRST) == 0);
	FAILS(llapi_layout_comp_del(layout), EINVAL);
	CHECK(llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_LAST) == 0);
	FAILS(llapi_layout_comp_add(layout), EINVAL);
	FAILS(llapi_layout_comp_extent_set(layout, 65 * MIB, LUSTRE_EOF), EINVAL);
	CHECK(llapi_layout_comp_del(layout) == 0);
	expect(layout, 2 * MIB, 64 * MIB, 4, MIB, "flash");
	CHECK(llapi_layout_sanity(layout, true, true) == 0);
	CHECK(llapi_layout_sanity(layout, false, true) > 0);
	llapi_layout_sanity_perror(llapi_layout_sanity(layout, false, true));

	/* A component for extension (SEL). */
	CHECK(llapi_layout_comp_add(layout) == 0);
	CHECK(llapi_layout_comp_flags_set(layout, LCME_FL_EXTENSION) == 0);
	CHECK(llapi_layout_extension_size_set(layout, 128 * MIB) == 0);
	FAILS(llapi_layout_stripe_size_get(layout, &number), EINVAL);
	layout = again(layout);
	CHECK(llapi_layout_comp_use(layout, LLAPI_LAYOUT_COMP_USE_LAST) == 0);
	CHECK(llapi_layout_extension_size_get(layout, &number) == 0 && number == 128 * MIB);
	CHECK(llapi_layout_comp_flags_clear(layout, LCME_FL_EXTENSION) == 0);
	CHECK(llapi_layout_comp_flags_get(layout, &flags) == 0 && flags == 0);
	FAILS(llapi_layout_comp_flags_set(layout, 0x40000000), EINVAL);
	llapi_layout_free(layout);

	/* Data on the MDT. */
	layout = llapi_layout_alloc();
	CHECK(llapi_layout_pattern_set(layout, LLAPI_LAYOUT_MDT) == 0);
	CHECK(llapi_layout_comp_extent_set(layout, 0, MIB) == 0);
	CHECK(llapi_layout_comp_add(layout) == 0);
	layout = again(layout);
	CHECK(llapi_layout_dom_size(layout, &number) == 0 && number == MIB);
	CHECK(llapi_layout_pattern_get(layout, &number) == 0 && number == LLAPI_LAYOUT_MDT);
	llapi_layout_free(layout);

	/* Mirrors. */
	layout = three();
	CHECK(llapi_layout_merge(&other, layout) == 0 && llapi_layout_merge(&other, layout) == 0);
	CHECK(llapi_layout_mirror_count_set(other, 2) == 0);
	FAILS(llapi_layout_mirror_count_set(other, 17), EINVAL);
	other = again(other);
	CHECK(llapi_layout_mirror_count_get(other, &mirrors) == 0 && mirrors == 2);
	CHECK(llapi_layout_sanity(other, false, true) == 0);
	seen = 0;
	CHECK(llapi_layout_comp_use(other, LLAPI_LAYOUT_COMP_USE_FIRST) == 0);
	do
		seen++;
	while (llapi_layout_comp_use(other, LLAPI_LAYOUT_COMP_USE_NEXT) == 0);
	CHECK(seen == 6);
	CHECK(llapi_layout_add_first_comp(layout) == 0);
	expect(layout, 0, LUSTRE_EOF, LLAPI_LAYOUT_DEFAULT, LLAPI_LAYOUT_DEFAULT, "");
	CHECK(llapi_layout_comp_use(other, LLAPI_LAYOUT_COMP_USE_FIRST) == 0);
	CHECK(llapi_layout_comp_use(other, LLAPI_LAYOUT_COMP_USE_NEXT) == 0);
	CHECK(llapi_layout_mirror_inherit(other, layout) == 0);
	expect(layout, 0, LUSTRE_EOF, 4, MIB, "");
	REFUSES(llapi_layout_mirror_inherit(NULL, layout), EINVAL);
	REFUSES(llapi_layout_mirror_inherit(other, NULL), EINVAL);
	llapi_layout_free(other);
	llapi_layout_free(layout);
	return 0;
}
