// Loaded before all else into a tool: kills it behind its call with the number `KILL_AT`, of those that change another process.
// How many there were is in the file `KILL_COUNT` when it ends by itself.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_int calls;

static void count(void) {
  const char *at = getenv("KILL_AT");
  if (++calls == (at ? atoi(at) : 0)) kill(getpid(), SIGKILL);
}

long ptrace(int request, ...) {
  long (*real)(int, ...) = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace");
  va_list rest;
  va_start(rest, request);
  long thread = va_arg(rest, long);
  void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
  va_end(rest);
  long result = real(request, thread, address, data);
  int error = errno;
  count();
  errno = error;
  return result;
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off_t at) {
  ssize_t (*real)(int, const void *, size_t, off_t) = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
  ssize_t result = real(file, bytes, length, at);
  int error = errno;
  count();
  errno = error;
  return result;
}

__attribute__((destructor)) static void ends(void) {
  const char *name = getenv("KILL_COUNT");
  FILE *file = name ? fopen(name, "w") : NULL;
  if (!file) return;
  fprintf(file, "%d\n", (int)calls);
  fclose(file);
}
