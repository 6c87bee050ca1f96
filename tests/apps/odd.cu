// usage: odd MODE [ARGUMENT]: launches a kernel ten times in a process that is odd in one way, and prints what the kernel counted. What it has
// of its own (files, pipes) it looks at in the end, and says so where somebody else was there. MODE is one of
//   plain          nothing is odd
//   close-before   closes all descriptors behind 2 before it uses CUDA (ARGUMENT: a folder for its files)
//   close-after    the same behind its first launch
//   close-often    the same again and again, on another thread, with pipes of its own coming and going
//   pipes          opens pipes behind the first launch and the closing
//   thread KIB     all of it on a thread with so much stack
//   context KIB    the same on a stack of its own making
//   leader         the main thread ends first
//   leave HOW      ends by _exit, quick (quick_exit), exec (another program), handler (_exit in a
//                  signal handler), system (exit_group), abort, kill (a signal) or exit
//   graph HOW      launches a graph of two nodes as often, and ends so
//   running        ends by _exit while a kernel runs
//   late WHAT      one more launch at its end, in an exit handler (handler, or early: registered
//                  before it uses CUDA) or in a destructor (destructor, or static: of what was
//                  there before it uses CUDA)
//   workers HOW    two forked children do all of it, and end so; the parent never uses CUDA
//   sizes          no file of it may grow (RLIMIT_FSIZE), and it has no handler for the signal
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#include "check.h"

#define LAUNCHES 10
#define FILES 40

// Waits first, if it is to.
__global__ void odd_add(int *sum, const volatile int *go)
{
    while (go && !*go)
        ;
    atomicAdd(sum, 1);
}

static int *device;
static int launched;

static void prepare(void)
{
    CHECK(cudaMalloc(&device, sizeof(int)));
    CHECK(cudaMemset(device, 0, sizeof(int)));
}

static void launch(int times)
{
    for (int i = 0; i < times; i++) {
        odd_add<<<2, 32>>>(device, nullptr);
        CHECK(cudaGetLastError());
    }
    launched += times;
    CHECK(cudaDeviceSynchronize());
}

static int finish(void)
{
    int sum = 0;
    CHECK(cudaMemcpy(&sum, device, sizeof(int), cudaMemcpyDeviceToHost));
    printf("sum %d of %d\n", sum, launched * 64);
    return sum != launched * 64;
}

static void close_all(unsigned from)
{
    syscall(SYS_close_range, from, ~0u, 0);
}

// Files of the application's that get the lowest free numbers; nobody else writes into them.
static std::vector<int> open_files(const char *folder)
{
    std::vector<int> files;
    for (int i = 0; i < FILES; i++) {
        std::string name = std::string(folder) + "/own." + std::to_string(i);
        files.push_back(open(name.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_APPEND, 0644));
    }
    return files;
}

static int foreign_files(const std::vector<int> &files)
{
    int foreign = 0;
    for (int file : files) {
        struct stat about;
        foreign += file < 0 || fstat(file, &about) || !S_ISREG(about.st_mode) || about.st_size;
    }
    return foreign;
}

static int with_closed(bool before, const char *folder)
{
    if (before)
        close_all(3);
    prepare();
    launch(1);
    if (!before)
        close_all(3);
    std::vector<int> files = open_files(folder);
    for (int i = 1; i < LAUNCHES; i++) {
        launch(1);
        // Longer than who looks on sleeps.
        usleep(30000);
    }
    int foreign = foreign_files(files);
    printf("files with foreign bytes: %d\n", foreign);
    return finish() | foreign;
}

static int with_pipes(void)
{
    int pipes[FILES][2], foreign = 0;
    char text[64];
    prepare();
    launch(1);
    close_all(3);
    for (auto &ends : pipes)
        if (pipe(ends) || write(ends[1], "0123456789", 10) != 10)
            foreign++;
    for (int i = 1; i < LAUNCHES; i++) {
        launch(1);
        usleep(30000);
    }
    for (auto &ends : pipes) {
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        foreign += read(ends[0], text, sizeof(text)) != 10 || memcmp(text, "0123456789", 10) ||
                   fcntl(ends[1], F_GETFD) < 0;
    }
    printf("pipes with foreign bytes: %d\n", foreign);
    return finish() | foreign;
}

static int while_closing(void)
{
    std::atomic<bool> over{false};
    std::atomic<int> foreign{0};
    prepare();
    launch(1);
    std::thread closing([&] {
        char text[8];
        while (!over) {
            int ends[2];
            close_all(3);
            if (pipe(ends) || write(ends[1], "mine", 4) != 4)
                foreign++;
            sched_yield();
            fcntl(ends[0], F_SETFL, O_NONBLOCK);
            if (read(ends[0], text, sizeof(text)) != 4 || memcmp(text, "mine", 4))
                foreign++;
            if (close(ends[0]) || close(ends[1]))
                foreign++;
        }
    });
    for (int i = 1; i < LAUNCHES; i++) {
        launch(1);
        usleep(20000);
    }
    over = true;
    closing.join();
    printf("pipes with foreign bytes: %d\n", foreign.load());
    return finish() | foreign;
}

static void *on_a_stack(void *)
{
    prepare();
    launch(LAUNCHES);
    return nullptr;
}

static int on_a_thread(size_t bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, bytes) ||
        pthread_create(&thread, &attributes, on_a_stack, nullptr))
        return 2;
    pthread_join(thread, nullptr);
    return finish();
}

static ucontext_t home, away;

static void in_a_context(void)
{
    on_a_stack(nullptr);
}

static int on_own_stack(size_t bytes)
{
    // A page that nobody may touch lies before it.
    char *memory = (char *)mmap(nullptr, bytes + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + 4096, bytes, PROT_READ | PROT_WRITE))
        return 2;
    getcontext(&away);
    away.uc_stack.ss_sp = memory + 4096;
    away.uc_stack.ss_size = bytes;
    away.uc_link = &home;
    makecontext(&away, in_a_context, 0);
    swapcontext(&home, &away);
    return finish();
}

static int without_a_leader(void)
{
    std::thread([] {
        // Until the main thread is a zombie.
        std::string state = "/proc/self/task/" + std::to_string(getpid()) + "/stat";
        for (bool zombie = false; !zombie; usleep(1000)) {
            char text[256] = "";
            int file = open(state.c_str(), O_RDONLY);
            if (read(file, text, sizeof(text) - 1) > 0)
                zombie = strstr(text, ") Z ") != nullptr;
            close(file);
        }
        prepare();
        launch(LAUNCHES);
        exit(finish());
    }).detach();
    pthread_exit(nullptr);
}

static void in_a_handler(int)
{
    _exit(0);
}

// Nothing is behind the last launch.
static int end_by(const char *how, int wrong)
{
    struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    fflush(stdout);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    if (!strcmp(how, "exit"))
        exit(wrong);
    if (!strcmp(how, "_exit"))
        _exit(wrong);
    if (!strcmp(how, "quick"))
        quick_exit(wrong);
    if (!strcmp(how, "exec"))
        execl("/bin/true", "true", (char *)nullptr);
    if (!strcmp(how, "system"))
        syscall(SYS_exit_group, wrong);
    if (!strcmp(how, "handler")) {
        signal(SIGUSR1, in_a_handler);
        raise(SIGUSR1);
    }
    return 2;
}

static int leave(const char *how)
{
    prepare();
    launch(LAUNCHES);
    return end_by(how, finish());
}

static int leave_graph(const char *how)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    prepare();
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 2; i++)
        odd_add<<<2, 32, 0, stream>>>(device, nullptr);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < LAUNCHES; i += 2)
        CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    launched += LAUNCHES;
    return end_by(how, finish());
}

static int leave_running(void)
{
    volatile int *go;
    cudaStream_t stream;

    prepare();
    launch(LAUNCHES);
    int wrong = finish();
    CHECK(cudaHostAlloc((void **)&go, sizeof(*go), cudaHostAllocMapped));
    *go = 0;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    odd_add<<<1, 1, 0, stream>>>(device, go);
    CHECK(cudaGetLastError());
    return end_by("_exit", wrong);
}

static void launch_once_more(void)
{
    launch(1);
    finish();
    fflush(stdout);
}

struct LaunchesInTheEnd {
    bool wanted;
    ~LaunchesInTheEnd()
    {
        if (wanted)
            launch_once_more();
    }
};

static int launch_late(const char *what)
{
    auto is = [&](const char *name) { return !strcmp(what, name); };
    if (is("early"))
        atexit(launch_once_more);
    if (is("static"))
        static LaunchesInTheEnd first{true};
    prepare();
    launch(LAUNCHES);
    if (is("handler"))
        atexit(launch_once_more);
    if (is("destructor"))
        static LaunchesInTheEnd last{true};
    return finish();
}

static int workers(const char *how)
{
    int wrong = 0;
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child)
            _exit(leave(how));
        int status;
        waitpid(child, &status, 0);
        wrong |= status;
    }
    return wrong != 0;
}

static int without_sizes(rlim_t most)
{
    struct rlimit limit = {most, most};
    if (setrlimit(RLIMIT_FSIZE, &limit))
        return 2;
    prepare();
    launch(LAUNCHES);
    return finish();
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "plain", *argument = argc > 2 ? argv[2] : "";
    auto is = [&](const char *name) { return !strcmp(mode, name); };
    if (is("close-before") || is("close-after"))
        return with_closed(is("close-before"), argument);
    if (is("close-often"))
        return while_closing();
    if (is("pipes"))
        return with_pipes();
    if (is("thread"))
        return on_a_thread(atoi(argument) * 1024);
    if (is("context"))
        return on_own_stack(atoi(argument) * 1024);
    if (is("leader"))
        return without_a_leader();
    if (is("leave"))
        return leave(argument);
    if (is("graph"))
        return leave_graph(argument);
    if (is("running"))
        return leave_running();
    if (is("late"))
        return launch_late(argument);
    if (is("workers"))
        return workers(argument);
    if (is("sizes"))
        return without_sizes(atoll(argument));
    prepare();
    launch(LAUNCHES);
    return finish();
}
