/* Everything that a container of the node test runs: it waits. As first process of a pod it also reaps orphans. What a
 * container was given (environment, mounts, user) the test reads from the kernel, by its process. */
#include <signal.h>
#include <unistd.h>

static void end(int number) { _exit(128 + number); }

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, SIG_IGN);
    for (;;)
        pause();
}
