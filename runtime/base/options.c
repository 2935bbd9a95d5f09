/*
 * The settings of this run.
 */
#include "base/options.h"

struct options opt;
