/*
 * The command line of vmctl.
 */
#ifndef VMRUN_CONTROL_ORDER_H
#define VMRUN_CONTROL_ORDER_H

#include <stdbool.h>
#include <sys/types.h>

#define EXIT_USAGE 2

enum command {
        CMD_LIST,
        CMD_TOP,
        CMD_STATS,
        CMD_WATCH,
        CMD_GET,
        CMD_SET,
        CMD_NODES,
        CMD_NODES_ADD,
        CMD_SCRUB
};

struct order {
        enum command command;
        pid_t pid;                      /* not of CMD_LIST and CMD_TOP */
        char **words;                   /* behind the command; the last is NULL */
        unsigned interval_ms;           /* of CMD_WATCH and CMD_TOP */
        const char *rate;               /* NULL: not given */
        bool json, flat, prom, reset, status, stop;
};

/* What is to be done.  --help, --version and mistakes end the process here. */
void order_parse(int argc, char **argv, struct order *o);

#endif
