/* The first process of a pod: it holds the pod's namespaces, and reaps what dies in them. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }
static void reap(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0)
    ;
}

int main(void) {
  signal(SIGINT, end);
  signal(SIGTERM, end);
  signal(SIGCHLD, reap);
  for (;;)
    pause();
}
