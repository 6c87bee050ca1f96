// An agent of the tests: does what the process's `agent_mode` says.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

struct control {
  uint32_t version, operation;
  _Atomic uint32_t state;
  int32_t socket;
  uint64_t patches, n_patches;
  uint32_t thread, reserved;
  uint64_t handle, entry, functions[5];
  char name[32], path[1024], text[1024];
};
struct patch {
  uint64_t at, length;
  unsigned char before[12], after[12];
};
enum { BEGUN, NOT_LOADED, REFUSED, PREPARED, PATCHED, PATCHED_BUSY, NOT_PATCHED, DONE };
enum { ATTACH = 1, DETACH = 2 };
static int calls;

void warpbpf_live(struct control *control) {
  prctl(PR_SET_NAME, "warpbpf-late");
  int *mode = dlsym(RTLD_DEFAULT, "agent_mode");
  void *answer = dlsym(RTLD_DEFAULT, "answer");
  calls++;
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  if (!sigismember(&blocked, SIGALRM) || !sigismember(&blocked, SIGTERM)) {
    strcpy(control->text, "signals are not held back");
    control->state = REFUSED;
    return;
  }
  if (*mode == 1) {
    strcpy(control->text, "not today");
    control->state = REFUSED;
    return;
  }
  struct patch patch = {(uint64_t)answer, 5, {0xb8, 1, 0, 0, 0}, {0xb8, 2, 0, 0, 0}};
  if (control->operation == DETACH) {
    patch.before[1] = 2;
    patch.after[1] = 1;
  }
  if (*mode == 2) patch.before[1] = patch.after[1] = 9;
  control->patches = (uint64_t)&patch;
  control->n_patches = 1;
  control->state = PREPARED;
  struct pollfd socket = {.fd = control->socket};
  // Whoever was to answer may be gone.
  while (control->state == PREPARED && !poll(&socket, 1, 0)) nanosleep(&(struct timespec){0, 200000}, NULL);
  if (control->state == NOT_PATCHED || control->state == PREPARED) {
    strcpy(control->text, "it could not be done");
    control->state = REFUSED;
    return;
  }
  sprintf(control->text, "call %d by %s", calls, control->state == PATCHED ? "a quiet process" : "a busy one");
  if (control->operation == ATTACH) {
    if (write(control->socket, "hello", 5) != 5) strcpy(control->text, "no socket");
    close(control->socket);
  }
  control->state = DONE;
}
