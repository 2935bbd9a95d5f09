/*
 * The service vCPU, and how others ask it for frames.
 */
#ifndef VMRUN_CLEANER_H
#define VMRUN_CLEANER_H

_Noreturn void cleaner_main(void);

/* Wakes the service vCPU if it sleeps and free frames are short. */
void cleaner_poke(void);

/* Makes a frame available to this vCPU; may sleep, so no fault is published.
 * 0, or -ENOMEM: nothing can be freed. */
int frames_wait(void);

#endif
