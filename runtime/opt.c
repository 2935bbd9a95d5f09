/*
 * The settings of this run.
 */
#include "vmrun.h"

struct options opt;
