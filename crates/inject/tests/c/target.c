// A process that does many things at once and notices whatever is not as it should be.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// What the agent of the tests looks for.
int agent_mode;
extern int answer(void);
asm(".globl answer\n.type answer,@function\n.p2align 4\nanswer:\n mov $1, %eax\n ret\n.size answer, .-answer\n");

static atomic_int stop_all, errors;
static atomic_long ticks, rounds, answers[3];
static int wake[2], epolls[2], epoll_set;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void wrong(const char *what) {
  fprintf(stderr, "wrong: %s (%s)\n", what, strerror(errno));
  errors++;
}

static void on_tick(int signal) {
  (void)signal;
  ticks++;
}

static void *allocates(void *arg) {
  (void)arg;
  unsigned seed = 7;
  char *held[64] = {0};
  while (!stop_all) {
    unsigned at = rand_r(&seed) % 64;
    free(held[at]);
    size_t bytes = rand_r(&seed) % 5000 + 1;
    held[at] = malloc(bytes);
    memset(held[at], (int)at, bytes);
    if (held[at][bytes - 1] != (char)at) wrong("memory");
    rounds++;
  }
  return NULL;
}

// Nothing but registers of the other kind; what they should hold is known.
static void *computes(void *arg) {
  (void)arg;
  while (!stop_all) {
    double a = 1.0, b = 0.5, c = 0.25, d = 0.125;
    for (int i = 0; i < 100000; i++) {
      a = a * 0.5 + b;
      b = b * 0.5 + c;
      c = c * 0.5 + d;
      d = d * 0.5 + 0.0625;
      asm volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d));
    }
    if (a != 1.0 || b != 0.5 || c != 0.25 || d != 0.125) wrong("numbers");
    rounds++;
  }
  return NULL;
}

static void *asks(void *arg) {
  (void)arg;
  while (!stop_all) {
    int got = answer();
    if (got != 1 && got != 2) wrong("an answer");
    else answers[got]++;
  }
  return NULL;
}

static void *reads(void *arg) {
  (void)arg;
  char byte;
  errno = 77;
  if (read(wake[0], &byte, 1) != 1) wrong("read");
  if (errno != 77) wrong("errno behind read");
  return NULL;
}

static void *sleeps(void *arg) {
  (void)arg;
  while (!stop_all) {
    struct timespec before, after, time = {0, 30000000}, left = {9, 9};
    clock_gettime(CLOCK_MONOTONIC, &before);
    if (nanosleep(&time, &left)) wrong("nanosleep");
    clock_gettime(CLOCK_MONOTONIC, &after);
    long ns = (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec;
    if (ns < 30000000) wrong("a short sleep");
  }
  return NULL;
}

static void *waits(void *arg) {
  (void)arg;
  pthread_mutex_lock(&mutex);
  while (!stop_all)
    if (pthread_cond_wait(&condition, &mutex)) wrong("a condition");
  pthread_mutex_unlock(&mutex);
  return NULL;
}

// An interrupted epoll_wait is not begun again by the kernel; a tool that lives has it begun again.
static void *polls(void *arg) {
  (void)arg;
  struct epoll_event event;
  int got;
  do {
    errno = 78;
    got = epoll_wait(epoll_set, &event, 1, -1);
  } while (got < 0 && errno == EINTR && getenv("TOOLS_ARE_KILLED"));
  if (got != 1) wrong("epoll_wait");
  if (errno != 78) wrong("errno behind epoll_wait");
  return NULL;
}

int main(void) {
  // Only the main thread is interrupted by signals.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  if (pipe(wake) || pipe(epolls)) return 2;
  epoll_set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  if (epoll_ctl(epoll_set, EPOLL_CTL_ADD, epolls[0], &event)) return 2;
  void *(*all[])(void *) = {allocates, allocates, computes, asks, reads, sleeps, waits, polls};
  enum { N = sizeof all / sizeof *all };
  pthread_t threads[N];
  for (int i = 0; i < N; i++) pthread_create(&threads[i], NULL, all[i], NULL);
  struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  struct itimerval every = {{0, 3000}, {0, 3000}};
  setitimer(ITIMER_REAL, &every, NULL);
  printf("ready %d\n", (int)getpid());
  fflush(stdout);
  char line[64];
  // Commands: a number sets the agent's mode, `a` asks for answers so far, `q` ends.
  while (fgets(line, sizeof line, stdin) && line[0] != 'q') {
    if (line[0] == 'a') {
      printf("%ld %ld\n", (long)answers[1], (long)answers[2]);
      answers[1] = answers[2] = 0;
    } else {
      agent_mode = atoi(line);
      printf("mode %d\n", agent_mode);
    }
    fflush(stdout);
  }
  while (ticks < 11 || rounds < 11) usleep(1000);
  memset(&every, 0, sizeof every);
  setitimer(ITIMER_REAL, &every, NULL);
  stop_all = 1;
  if (write(wake[1], "x", 1) != 1 || write(epolls[1], "x", 1) != 1) wrong("write");
  pthread_mutex_lock(&mutex);
  pthread_cond_broadcast(&condition);
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
  printf("errors %d\n", (int)errors);
  return errors != 0;
}
