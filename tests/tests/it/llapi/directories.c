/* Directory striping, with one MDT. Argument: MOUNT. */
#include "check.h"

int main(int argc, char **argv)
{
	struct llapi_stripe_param *param = calloc(1, sizeof(*param) + 2 * sizeof(__u32));

	CHECK(argc == 2 && param != NULL && chdir(argv[1]) == 0);
	umask(027);
	param->lsp_stripe_offset = -1;
	param->lsp_stripe_count = 1;
	CHECK(llapi_dir_create("made", 0777, param) == 0);
	CHECK(llapi_dir_create("closed", 0500, param) == 0);
	REFUSES(llapi_dir_create("made", 0777, param), EEXIST);
	umask(022);
	CHECK(llapi_dir_create_pool("numbers", 0777, 0, 1, LMV_HASH_TYPE_UNKNOWN, NULL) == 0);
	/* Two stripes on one MDT, by a list. */
	param->lsp_is_specific = true;
	param->lsp_stripe_count = 2;
	param->lsp_stripe_pattern = LMV_HASH_TYPE_CRUSH | 0x01000000;
	CHECK(llapi_dir_create("spread", 0777, param) == 0);
	param->lsp_osts[1] = 1;
	REFUSES(llapi_dir_create("refused", 0777, param), ENODEV);
	param->lsp_is_specific = false;
	param->lsp_stripe_offset = 3;
	REFUSES(llapi_dir_create("refused", 0777, param), ENODEV);
	param->lsp_stripe_offset = -1;
	param->lsp_stripe_pattern = 77;
	REFUSES(llapi_dir_create("refused", 0777, param), EINVAL);
	REFUSES(llapi_dir_create_pool("refused", 0777, 0, 1, 0, "pool"), EINVAL);
	REFUSES(llapi_dir_create("no/such/dir", 0777, param), ENOENT);
	REFUSES(llapi_dir_create("/tmp/sheen-llapi-not-made", 0777, param), ENOTTY);
	REFUSES(llapi_dir_create("refused", 0777, NULL), EINVAL);

	/* Default striping, which new directories inherit. */
	param->lsp_stripe_pattern = LMV_HASH_TYPE_FNV_1A_64;
	param->lsp_stripe_offset = 0;
	param->lsp_stripe_count = 1;
	param->lsp_max_inherit = 3;
	CHECK(llapi_dir_set_default_lmv("made", param) == 0);
	CHECK(llapi_dir_set_default_lmv_stripe("numbers", 0, 1, 0, NULL) == 0);
	CHECK(llapi_dir_set_default_lmv_stripe("numbers", -1, 0, 0, NULL) == 0);
	param->lsp_stripe_offset = 1;
	REFUSES(llapi_dir_set_default_lmv("made", param), ENODEV);
	REFUSES(llapi_dir_set_default_lmv_stripe("absent", 0, 1, 0, NULL), ENOENT);
	REFUSES(llapi_dir_set_default_lmv_stripe("/proc/self/status", 0, 1, 0, NULL), ENOTDIR);
	REFUSES(llapi_dir_set_default_lmv_stripe("/tmp", 0, 1, 0, NULL), ENOTTY);
	return 0;
}
