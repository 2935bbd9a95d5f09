/*
 * INT3 and INT 4 under signals that come as fast as another thread can send them: each one raises
 * its signal. At p = 3 KVM injects their exceptions by itself, and a kick may come between an
 * instruction and its exception, several times even.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "t_entry.h"

static volatile long traps, segvs;
static atomic_bool stop;
static pid_t target;

static void on_trap(int sig) { (void)sig, traps++; }
static void on_segv(int sig) { (void)sig, segvs++; }
static void on_kick(int sig) { (void)sig; }

static void *kicker(void *arg)
{
        while (!atomic_load(&stop))
                syscall(SYS_tgkill, getpid(), target, SIGUSR1);
        return arg;
}

int kicks_main(long rounds)
{
        pthread_t t;

        target = (pid_t)syscall(SYS_gettid);
        signal(SIGTRAP, on_trap);
        signal(SIGSEGV, on_segv);       /* RIP is behind an INT: the program continues there */
        signal(SIGUSR1, on_kick);
        if (pthread_create(&t, NULL, kicker, NULL)) {
                perror("FAILED to begin");
                return 1;
        }
        for (long i = 0; i < rounds; i++) {
                __asm__ volatile("int3" ::: "memory");
                __asm__ volatile("int $4" ::: "memory");
        }
        atomic_store(&stop, true);
        pthread_join(t, NULL);
        printf("%ld of %ld int3, %ld of %ld int 4\n", traps, rounds, segvs, rounds);
        return 0;
}
