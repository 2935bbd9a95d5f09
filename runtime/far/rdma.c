#include "far.h"

extern const struct far_driver *const far_module[];
const struct far_driver *const far_module[] = { NULL };
