/*
 * A memory node for vmrun itself that does one thing wrong: false_node ADDRESS PORT FAULT, with a
 * fault of node.h. Takes node.h's commands from standard input, and ends with it; says "r" when it
 * listens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "node.h"

int main(int argc, char **argv)
{
        if (argc != 4) {
                fputs("usage: false_node ADDRESS PORT FAULT\n", stderr);
                return 2;
        }
        struct node_config cfg = { .address = argv[1],
                                   .port = (uint16_t)atoi(argv[2]),
                                   .bytes = 64 << 20,
                                   .depth = 64,
                                   .fault = argv[3] };
        node_run(&cfg, STDIN_FILENO, STDOUT_FILENO);
}
