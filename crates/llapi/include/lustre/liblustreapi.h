/* An older name of this header. */
#include <lustre/lustreapi.h>
