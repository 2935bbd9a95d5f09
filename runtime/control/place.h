/*
 * Where control sockets are: a folder for each user, in it a socket for each process that vmrun
 * runs, named by its process id.
 */
#ifndef VMRUN_CONTROL_PLACE_H
#define VMRUN_CONTROL_PLACE_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

/* The folders in which vmrun looks for a place, in this order: below XDG_RUNTIME_DIR, if that is
 * set; /run/vmrun, which root alone can make; for other users place_in_tmp().  Returns how many, at
 * most PLACES. */
#define PLACES 3
unsigned place_list(char dir[PLACES][PATH_MAX]);
/* The folder of a user who has none below /run.  Nobody has to prepare it, and each user has one.
 * As others may have made it, place_open() and place_enter() look whose it is. */
void place_in_tmp(char dir[PATH_MAX], uid_t user);
/* Makes it the working directory, if it is the user's; for root whosever it is.  0, or -errno. */
int place_enter(const char *dir, uid_t user);

/* Opens the first of these folders that is there, or can be made, for this user alone.  A
 * descriptor (O_PATH), or -errno with why. */
#define PLACE_WHY 256
int place_open(char why[PLACE_WHY]);

/* The name of a process's socket.  turn: 0, or more if a process of another PID namespace has that
 * number and name already. */
#define PLACE_NAME 32
const char *place_name(char name[PLACE_NAME], int pid, unsigned turn);

#endif
