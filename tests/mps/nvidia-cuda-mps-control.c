/* A stand-in for NVIDIA's nvidia-cuda-mps-control: the daemon (-f), and the program that speaks to it (no argument).
 *
 * A server is a process of the uid that it is for; it does nothing. Whoever keeps a connection after `attach` stands for a
 * program that uses the board: it is cut when the daemon ends. What goes wrong is read at each step from the file `faults`
 * beside the program, a word a line:
 *   dies       the daemon ends as soon as it is started       mute       it accepts and does not answer
 *   stillborn  servers fail as they start                     failing    the server fails at each attach (pain A19)
 *   faulty     servers are in status FAULT                    slow       they stay in status INITIALIZING
 *   deaf       the socket is closed to all but its owner      rooted     servers run as the daemon's own uid
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 64 };
static struct { pid_t pid; uid_t uid; char limit[32]; } server;
static char default_limit[32];
static int attached[MANY], mute[MANY], attachments, mutes;

static const char *pipes(void) { return getenv("CUDA_MPS_PIPE_DIRECTORY") ?: "/tmp/nvidia-mps"; }

static const char *in_pipes(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", pipes(), name);
  return path;
}

static int fault(const char *word) {
  char path[4096], line[64];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
  path[length < 0 ? 0 : length] = 0;
  strcpy(strrchr(path, '/') + 1, "faults");
  FILE *file = fopen(path, "r");
  int found = 0;
  while (file && fgets(line, sizeof line, file)) found |= !strcmp(strtok(line, "\n"), word);
  if (file) fclose(file);
  return found;
}

static void say(const char *format, ...) {
  char when[32];
  time_t now = time(NULL);
  va_list arguments;
  strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime(&now));
  printf("[%s.000 Control %5d] ", when, getpid());
  va_start(arguments, format), vprintf(format, arguments), va_end(arguments);
  printf("\n"), fflush(stdout);
}

static struct sockaddr_un address(void) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  snprintf(at.sun_path, sizeof at.sun_path, "%s", in_pipes("control"));
  return at;
}

/* The daemon ------------------------------------------------------------------------------------------------------- */

/* Returns when the server is what it is to be: who looks at it must not find a copy of the daemon, with its uid and its lock. */
static void start_server(uid_t uid) {
  pid_t daemon = getpid();
  int ready[2];
  char byte;
  if (fault("rooted")) uid = getuid();
  if (pipe(ready)) return say("Failed to start a server");
  if ((server.pid = fork()) == 0) {
    for (int descriptor = 3; descriptor < 1024; descriptor++)
      if (descriptor != ready[1]) close(descriptor);
    if (fault("stillborn") || (getuid() == 0 && uid && (setgid(uid) || setuid(uid)))) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* another user would not inherit it */
    if (getppid() != daemon) _exit(1);
    prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
    signal(SIGTERM, SIG_DFL);
    close(ready[1]);
    for (;;) pause();
  }
  close(ready[1]);
  while (read(ready[0], &byte, 1) < 0 && errno == EINTR) continue;
  close(ready[0]);
  server.uid = uid;
  strcpy(server.limit, default_limit);
  say("Starting new server %d for user %d", server.pid, uid);
}

static void reap(int flags) {
  int status;
  if (server.pid && waitpid(server.pid, &status, flags) == server.pid) {
    say("Server %d exited with status %d", server.pid, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    server.pid = 0;
  }
}

static void leave(int number) {
  if (server.pid) kill(server.pid, SIGTERM);
  unlink(in_pipes("control")), unlink(in_pipes("nvidia-cuda-mps-control.pid"));
  _exit(number == SIGTERM ? 1 : 0);
}

static void obey(int connection, char *command) {
  char answer[256] = "", word[64] = "", value[64] = "";
  int number = 0;
  reap(WNOHANG);
  say("Cmd:%s", command);
  sscanf(command, "%63s", word);
  if (!strcmp(word, "get_server_list")) {
    if (server.pid) snprintf(answer, sizeof answer, "%d\n", server.pid);
  } else if (sscanf(command, "start_server -uid %d", &number) == 1) {
    if (!server.pid) start_server((uid_t)number);
    if (fault("stillborn")) reap(0);
  } else if (sscanf(command, "get_server_status %d", &number) == 1) {
    snprintf(answer, sizeof answer, "%s\n", number != server.pid ? "no such server" : fault("faulty") ? "FAULT" : fault("slow") ? "INITIALIZING" : "ACTIVE");
  } else if (sscanf(command, "get_client_list %d", &number) == 1) {
    for (int i = 0; i < attachments; i++) {
      struct ucred who;
      socklen_t length = sizeof who;
      char byte;
      if (recv(attached[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) continue; /* it has ended */
      getsockopt(attached[i], SOL_SOCKET, SO_PEERCRED, &who, &length);
      snprintf(answer + strlen(answer), sizeof answer - strlen(answer), "%d\n", who.pid);
    }
  } else if (sscanf(command, "set_default_device_pinned_mem_limit 0 %31s", value) == 1) {
    strcpy(default_limit, value);
  } else if (sscanf(command, "set_device_pinned_mem_limit %d 0 %31s", &number, value) == 2 && number == server.pid) {
    strcpy(server.limit, value);
  } else if (!strcmp(word, "limits")) { /* ours, for tests */
    snprintf(answer, sizeof answer, "%s %s\n", default_limit, server.pid ? server.limit : "-");
  } else if (!strcmp(word, "attach")) { /* what a CUDA program does */
    if (!server.pid) start_server(getuid());
    if (fault("failing")) {
      say("Server encountered a fatal exception. Shutting down");
      kill(server.pid, SIGKILL), reap(0);
    } else if (attachments < MANY) {
      attached[attachments++] = dup(connection), snprintf(answer, sizeof answer, "ACTIVE\n");
    }
  } else if (!strcmp(word, "quit")) {
    close(connection), leave(0);
  } else {
    snprintf(answer, sizeof answer, "Unknown command: %s\n", command);
  }
  if (write(connection, answer, strlen(answer)) < 0) say("client has gone");
}

static int serve(void) {
  int lock = open(in_pipes("control_lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666), listener;
  struct sockaddr_un at = address();
  if (fault("dies")) return say("Failed to start: invalid argument"), 1;
  if (lock < 0) return say("Failed to create %s: %s", in_pipes("control_lock"), strerror(errno)), 1;
  if (flock(lock, LOCK_EX | LOCK_NB)) return say("An instance of this daemon is already running"), 1;
  signal(SIGTERM, leave), signal(SIGPIPE, SIG_IGN);
  unlink(at.sun_path);
  listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, (struct sockaddr *)&at, sizeof at) || chmod(at.sun_path, fault("deaf") ? 0600 : 0666)) return say("Cannot bind"), 1;
  FILE *file = fopen(in_pipes("nvidia-cuda-mps-control.pid"), "w");
  fprintf(file, "%d", getpid()), fclose(file);
  say("Starting control daemon using socket %s on %s", at.sun_path, getenv("CUDA_VISIBLE_DEVICES"));
  for (listen(listener, 16);;) {
    char command[256] = "";
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0) continue;
    if (fault("mute") && mutes < MANY) {
      mute[mutes++] = connection;
      continue;
    }
    if (read(connection, command, sizeof command - 1) > 0) obey(connection, strtok(command, "\n") ?: "");
    close(connection);
  }
}

/* The program that speaks to it ------------------------------------------------------------------------------------ */

static int ask(void) {
  char line[256], answer[256];
  ssize_t length;
  while (fgets(line, sizeof line, stdin)) {
    struct sockaddr_un at = address();
    int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(connection, (struct sockaddr *)&at, sizeof at) || write(connection, line, strlen(line)) < 0)
      return fprintf(stderr, "Cannot find MPS control daemon process\n"), 1;
    while ((length = read(connection, answer, sizeof answer)) > 0) fwrite(answer, 1, (size_t)length, stdout);
    close(connection);
  }
  return 0;
}

int main(int count, char **arguments) { return count > 1 && !strcmp(arguments[1], "-f") ? serve() : ask(); }
