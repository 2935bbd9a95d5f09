/*
 * Signals of the program that an exception causes.
 */
#include "base/exit.h"
#include "base/signal.h"

void program_signal(uint64_t vector, int signo, int code, uint64_t addr)
{
        vmexit5(EXIT_SIGNAL, (uint64_t)signo, (uint64_t)code, addr, vector, 0);
}
