/* An older name of this header. */
#include <linux/lustre/lustre_user.h>
