/*
 * How a program dies: the wait status that others see, with its core flag.
 *
 * usage: t_core wait COMMAND...   runs it, and says by which signal it died, and if it left a core
 *        t_core HOW MB            dies, with that much private memory and as much again shared in
 *                                 three ways. HOW: abort; segv; thread, a segv in one of several;
 *                                 quit, by another process; term; nodump, an abort of a process
 *                                 that must leave no core
 */
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include "t_child.h"

static int wait_for(char **command)
{
        int status;
        pid_t child = start_child();

        if (!child) {
                execv(command[0], command);
                _exit(127);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (WIFSIGNALED(status))
                printf("%s, %s\n", sigabbrev_np(WTERMSIG(status)),
                       WCOREDUMP(status) ? "core" : "no core");
        else
                printf("exit status %d\n", WEXITSTATUS(status));
        return 0;
}

static void fill_shared(uint64_t pages)
{
        uint64_t third = pages / 3;
        int id = shmget(IPC_PRIVATE, third * PG, IPC_CREAT | 0600), fd = memfd_create("t_core", 0);
        char *segment = id >= 0 ? shmat(id, NULL, 0) : (char *)-1;

        CHECK(segment != (char *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
        CHECK(fd >= 0 && ftruncate(fd, (off_t)(third * PG)) == 0);
        char *file = mmap(NULL, third * PG, RW, MAP_SHARED, fd, 0);
        CHECK(file != MAP_FAILED);
        fill(segment, 0, third, 1);
        fill(file, 0, third, 1);
        fill(map_pages(third, RW, MAP_SHARED), 0, third, 1);
}

static volatile int *volatile nowhere = NULL;

static void *fault(void *arg)
{
        *nowhere = 1;
        return arg;
}

static void *sleep_on(void *arg)
{
        pause();
        return arg;
}

static void fault_in_thread(void)
{
        pthread_t t;
        for (int i = 0; i < 3; i++)
                CHECK(pthread_create(&t, NULL, sleep_on, NULL) == 0);
        CHECK(pthread_create(&t, NULL, fault, NULL) == 0);
        pause();
}

static void be_killed(int signo)
{
        signal(signo, SIG_DFL);         /* a shell starts background commands with it ignored */
        pid_t self = getpid(), child = start_child();
        if (!child)
                _exit(kill(self, signo));
        for (;;)
                pause();
}

static void die(const char *how)
{
        if (strcmp(how, "abort") == 0)
                abort();
        if (strcmp(how, "segv") == 0)
                fault(NULL);
        if (strcmp(how, "thread") == 0)
                fault_in_thread();
        if (strcmp(how, "quit") == 0)
                be_killed(SIGQUIT);
        if (strcmp(how, "term") == 0)
                be_killed(SIGTERM);
        if (strcmp(how, "nodump") == 0 && prctl(PR_SET_DUMPABLE, 0) == 0)
                abort();
}

int main(int argc, char **argv)
{
        if (argc > 2 && strcmp(argv[1], "wait") == 0)
                return wait_for(argv + 2);
        if (argc != 3)
                return 2;
        uint64_t pages = strtoull(argv[2], NULL, 10) * MiB / PG;
        fill(map_pages(pages, RW, MAP_PRIVATE), 0, pages, 1);
        fill_shared(pages);
        die(argv[1]);
        return 3;
}
