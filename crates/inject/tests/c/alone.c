// A process with one thread, which does one thing over and over and notices whatever is not as it should be. SIGUSR1 ends it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// What the agent of the tests looks for.
int agent_mode;
extern int answer(void);
asm(".globl answer\n.type answer,@function\n.p2align 4\nanswer:\n mov $1, %eax\n ret\n.size answer, .-answer\n");

static volatile sig_atomic_t over, ticks;
static int errors, ends[2], set;

static void wrong(const char *what) {
  fprintf(stderr, "wrong: %s (%s)\n", what, strerror(errno));
  errors++;
}

static void on_end(int signal) {
  (void)signal;
  over = 1;
}

static void on_tick(int signal) {
  (void)signal;
  ticks++;
}

static long now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void sleeps(void) {
  long before = now();
  struct timespec time = {0, 20000000};
  if (nanosleep(&time, NULL)) {
    if (!over) wrong("nanosleep");
  } else if (now() - before < 20000000) wrong("a short sleep");
}

// Words that calls of the allocator and of the loader may have left are in a frame that does not write to all of its room.
extern void *__tls_get_addr(void *);
static void keeps(void) {
  enum { HALF = 1024 };
  volatile uintptr_t room[2 * HALF];
  for (int i = 0; i < HALF; i++) {
    room[i] = (uintptr_t)malloc + i;
    room[HALF + i] = (uintptr_t)__tls_get_addr + i;
  }
  sleeps();
  if (room[7] != (uintptr_t)malloc + 7) wrong("words of a frame");
}

static void polls(void) {
  long before = now();
  int got = poll(NULL, 0, 20);
  if (got && !over) wrong("poll");
  if (!got && now() - before < 20000000) wrong("a short poll");
}

// An interrupted epoll_wait is not begun again by the kernel. A tool that stops its thread has it begun again, if it is not killed just
// between these two: then it ends as behind SIGSTOP and SIGCONT (signal(7)).
static void waits(void) {
  struct epoll_event event;
  errno = 78;
  int got = epoll_wait(set, &event, 1, 20);
  if (got < 0 && errno == EINTR) return;
  if (got) wrong("epoll_wait");
  if (errno != 78) wrong("errno behind epoll_wait");
}

// Another mask while it waits, which is not the thread's.
static void suspends(void) {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGALRM);
  sigdelset(&all, SIGUSR1);
  int before = ticks;
  sigsuspend(&all);
  if (ticks == before && !over) wrong("nobody came");
}

// Nothing but registers of the other kind; what they should hold is known.
static void computes(void) {
  double a = 1.0, b = 0.5, c = 0.25, d = 0.125;
#ifdef __x86_64__
  static const unsigned long known[4] = {1, 2, 3, 4};
  unsigned long got[4] = {1, 2, 3, 4};
  int wide = __builtin_cpu_supports("avx");
  if (wide) asm volatile("vmovdqu %0, %%ymm15" : : "m"(known) : "xmm15");
#endif
  fesetround(FE_UPWARD);
  for (int i = 0; i < 2000000; i++) {
    a = a * 0.5 + b;
    b = b * 0.5 + c;
    c = c * 0.5 + d;
    d = d * 0.5 + 0.0625;
    asm volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d) : : "xmm15");
  }
  if (fegetround() != FE_UPWARD) wrong("rounding");
  fesetround(FE_TONEAREST);
#ifdef __x86_64__
  if (wide) asm volatile("vmovdqu %%ymm15, %0" : "=m"(got));
  if (memcmp(got, known, sizeof got)) wrong("wide numbers");
#endif
  if (a != 1.0 || b != 0.5 || c != 0.25 || d != 0.125) wrong("numbers");
}

static void (*work)(void);

static void *all(void *mapped) {
  // Signals have a stack of their own, and stay on it.
  stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536}, there;
  if (!stack.ss_sp || sigaltstack(&stack, NULL)) exit(2);
  struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  action = (struct sigaction){.sa_handler = on_tick, .sa_flags = SA_ONSTACK | SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  sigset_t mask, now_blocked;
  sigemptyset(&mask);
  sigaddset(&mask, SIGHUP);
  if (work == suspends) {
    sigaddset(&mask, SIGALRM);
    sigaddset(&mask, SIGUSR1);
  }
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  struct itimerval every = {{0, 3000}, {0, 3000}};
  if (work == suspends || work == computes) setitimer(ITIMER_REAL, &every, NULL);
  if (mapped) {
    // A name that is no text, and a mapped file with another one.
    prctl(PR_SET_NAME, "\xff\xfe\n x");
    int file = open(mapped, O_RDONLY);
    if (file < 0 || mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED || close(file)) exit(2);
  }
  printf("ready %d\n", (int)getpid());
  fflush(stdout);
  while (!over) {
    work();
    pthread_sigmask(SIG_SETMASK, NULL, &now_blocked);
    if (memcmp(&mask, &now_blocked, 8)) wrong("the mask");
    if (sigaltstack(NULL, &there) || there.ss_sp != stack.ss_sp || there.ss_flags) wrong("the signals' stack");
    if (answer() < 1) wrong("an answer");
  }
  printf("errors %d\n", errors);
  exit(errors != 0);
}

int main(int count, char **words) {
  static const struct { const char *name; void (*work)(void); } works[] = {
      {"sleeps", sleeps}, {"keeps", keeps}, {"polls", polls}, {"waits", waits}, {"suspends", suspends}, {"computes", computes}};
  for (unsigned i = 0; i < sizeof works / sizeof *works; i++)
    if (count > 1 && !strcmp(works[i].name, words[1])) work = works[i].work;
  set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  if (!work || pipe(ends) || epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event)) return 2;
  if (count == 2) all(NULL);
  // With the name of a file: its main thread ends.
  pthread_t thread;
  if (pthread_create(&thread, NULL, all, words[2])) return 2;
  pthread_exit(NULL);
}
