/*
 * For split_lock and t_split: a thread that waits at its instruction has this in
 * RBX, and the instruction's address in RAX.
 */
#ifndef T_SPLIT_H
#define T_SPLIT_H

#define SPLIT_MARK_TEXT "0x5b17a10c"
#define SPLIT_MARK      0x5b17a10cu

#endif
