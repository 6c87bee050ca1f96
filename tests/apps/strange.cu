// usage: strange MODE [ARGUMENT]: as odd.cu, launches a kernel ten times in a process that is odd
// in one way, prints what the kernel counted, and looks in the end whether what it has of its own
// is as it left it. MODE is one of
//   plain           nothing is odd
//   over            puts pipes of its own over each descriptor that it did not open, again and again
//   inherited       makes each descriptor go to a program that it starts, which writes there
//   junk            is that program
//   files N         may have N descriptors more than it has when it starts
//   memory MIB      may have so much more address space than it has when it starts
//   processes N     may start so many threads and processes (root may start more)
//   filter WHAT     a filter forbids system calls by an error: sockets, memfd, vm (reading of
//                   memory), signals (sigaltstack); or, once CUDA is there, files
//   handler KIB     launches in a signal's handler, on a stack of its own
//   undumpable      nobody may look into it
//   forks           forks a child between any two calls, which ends by exit, _exit or a signal
//   vforks          starts programs by vfork on another thread all the while
//   missing         executes a program that is not there between any two launches
//   blocked         has all signals blocked, and one that waits
//   cancelled       a thread is cancelled while it launches
//   renamed         its threads have names of odd bytes
//   root FOLDER     sees nothing but that folder from the second launch on
//   folder          its working folder is gone
#include <atomic>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <set>
#include <stddef.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.h"

#define LAUNCHES 10

__global__ void strange_add(int *sum)
{
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
        strange_add<<<2, 32>>>(device);
        CHECK(cudaGetLastError());
    }
    launched += times;
    CHECK(cudaDeviceSynchronize());
}

static int finish(int wrong)
{
    int sum = 0;
    CHECK(cudaMemcpy(&sum, device, sizeof(int), cudaMemcpyDeviceToHost));
    printf("sum %d of %d, %d wrong\n", sum, launched * 64, wrong);
    return wrong || sum != launched * 64;
}

static std::set<int> descriptors(void)
{
    std::set<int> all;
    DIR *folder = opendir("/proc/thread-self/fd");
    while (struct dirent *entry = folder ? readdir(folder) : nullptr)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder))
            all.insert(atoi(entry->d_name));
    if (folder)
        closedir(folder);
    return all;
}

// Only what comes once CUDA is there is somebody's else.
static int with_others_replaced(void)
{
    std::set<int> own = descriptors();
    std::vector<int> mine;
    int wrong = 0, ends[2];
    char text[4096];
    if (pipe(ends))
        return 2;
    own.insert({ends[0], ends[1]});
    prepare();
    launch(1);
    for (int i = 1; i < LAUNCHES; i++) {
        for (int fd : descriptors())
            if (!own.count(fd) && dup2(ends[1], fd) == fd) {
                own.insert(fd);
                mine.push_back(fd);
            }
        launch(1);
        // Longer than who looks on sleeps.
        usleep(20000);
    }
    struct stat pipe_is, there;
    fstat(ends[1], &pipe_is);
    for (int fd : mine)
        wrong += fstat(fd, &there) || there.st_ino != pipe_is.st_ino || write(fd, "x", 1) != 1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    // Nobody else has written there.
    wrong += !mine.empty() && read(ends[0], text, sizeof(text)) != (ssize_t)mine.size();
    for (int fd : mine)
        close(fd);
    return finish(wrong);
}

static int with_all_inherited(void)
{
    prepare();
    launch(1);
    int wrong = 0;
    for (int i = 1; i < LAUNCHES; i++) {
        for (int fd : descriptors())
            if (fd > 2)
                fcntl(fd, F_SETFD, 0);
        pid_t child = fork();
        if (!child) {
            execl("/proc/self/exe", "strange", "junk", (char *)nullptr);
            _exit(1);
        }
        int status;
        wrong += waitpid(child, &status, 0) != child || status;
        launch(1);
    }
    return finish(wrong);
}

// What such a program does.
static int write_junk(void)
{
    signal(SIGPIPE, SIG_IGN);
    for (int fd : descriptors())
        if (fd > 2 && write(fd, "junk", 4) < 0)
            errno = 0;
    return 0;
}

static int limited(int resource, rlim_t most)
{
    struct rlimit limit = {most, most};
    if (setrlimit((__rlimit_resource)resource, &limit))
        return 2;
    prepare();
    launch(LAUNCHES);
    return finish(0);
}

static rlim_t address_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        exit(2);
    fclose(file);
    return pages * 4096;
}

static int filtered(const std::string &what)
{
    std::vector<int> calls;
    if (what == "sockets")
        calls = {SYS_socket, SYS_connect, SYS_socketpair, SYS_sendmsg, SYS_recvmsg};
    if (what == "memfd")
        calls = {SYS_memfd_create};
    if (what == "vm")
        calls = {SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp};
    if (what == "signals")
        calls = {SYS_sigaltstack};
    if (what == "files")
        calls = {SYS_statx, SYS_newfstatat, SYS_readlink, SYS_openat};
    std::vector<struct sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, nr))};
    for (int call : calls) {
        code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1));
        code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    }
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog program = {(unsigned short)code.size(), code.data()};
    if (what == "files")
        prepare();
    if (calls.empty() || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 2;
    if (what != "files")
        prepare();
    launch(LAUNCHES);
    return finish(0);
}

static void launch_here(int)
{
    launch(1);
}

static int in_a_handler(size_t bytes)
{
    // A page that nobody may touch lies before it.
    char *memory = (char *)mmap(nullptr, bytes + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + 4096, bytes, PROT_READ | PROT_WRITE))
        return 2;
    stack_t stack = {};
    stack.ss_sp = memory + 4096;
    stack.ss_size = bytes;
    struct sigaction action = {};
    action.sa_handler = launch_here;
    action.sa_flags = SA_ONSTACK;
    if (sigaltstack(&stack, nullptr) || sigaction(SIGUSR1, &action, nullptr))
        return 2;
    prepare();
    for (int i = 0; i < LAUNCHES; i++)
        raise(SIGUSR1);
    return finish(0);
}

static int with_forks(void)
{
    int wrong = 0, status;
    auto child = [&](int how) {
        pid_t pid = fork();
        if (!pid) {
            if (how == 0)
                exit(7);
            if (how == 1)
                _exit(7);
            raise(SIGKILL);
        }
        wrong += waitpid(pid, &status, 0) != pid || (how < 2 ? status != 7 << 8 : status != SIGKILL);
    };
    child(0);
    prepare();
    for (int i = 0; i < LAUNCHES; i++) {
        fflush(stdout);
        child(i % 3);
        launch(1);
        child((i + 1) % 3);
    }
    return finish(wrong);
}

static int with_programs(void)
{
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0}, done{0};
    prepare();
    launch(1);
    std::thread starting([&] {
        while (!over) {
            pid_t pid = vfork();
            if (!pid) {
                execl("/bin/true", "true", (char *)nullptr);
                _exit(1);
            }
            int status;
            wrong += waitpid(pid, &status, 0) != pid || status;
            done++;
        }
    });
    for (int i = 1; i < LAUNCHES; i++) {
        launch(1);
        usleep(20000);
    }
    while (done < 3)
        usleep(1000);
    over = true;
    starting.join();
    return finish(wrong);
}

static int with_missing_programs(void)
{
    int wrong = 0;
    char *none[] = {(char *)"none", nullptr};
    prepare();
    for (int i = 0; i < LAUNCHES; i++) {
        launch(1);
        wrong += execve("/none/none", none, environ) != -1 || errno != ENOENT;
    }
    return finish(wrong);
}

static int with_blocked_signals(void)
{
    sigset_t all, waiting;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGXFSZ);
    prepare();
    launch(LAUNCHES);
    sigpending(&waiting);
    int wrong = sigismember(&waiting, SIGUSR1) != 1 || sigismember(&waiting, SIGXFSZ) != 1;
    return finish(wrong);
}

static int with_a_cancelled_thread(void)
{
    prepare();
    launch(1);
    for (int i = 1; i < LAUNCHES; i++) {
        pthread_t thread;
        auto work = [](void *) -> void * {
            launch(1);
            for (;;)
                pause();
            return nullptr;
        };
        int before = launched;
        if (pthread_create(&thread, nullptr, work, nullptr))
            return 2;
        while (__atomic_load_n(&launched, __ATOMIC_ACQUIRE) == before)
            usleep(1000);
        pthread_cancel(thread);
        pthread_join(thread, nullptr);
    }
    CHECK(cudaDeviceSynchronize());
    return finish(0);
}

static int with_odd_names(void)
{
    prctl(PR_SET_NAME, "\xff\xfe\n) Z 1\x1b[m");
    prepare();
    std::thread([] {
        prctl(PR_SET_NAME, "\n\n\t\xc3(");
        launch(LAUNCHES);
    }).join();
    return finish(0);
}

static int in_another_root(const char *folder)
{
    prepare();
    launch(1);
    int wrong = chroot(folder) != 0 || chdir("/") != 0;
    launch(LAUNCHES - 1);
    return finish(wrong);
}

static int without_a_folder(void)
{
    char name[] = "/tmp/strange-XXXXXX";
    if (!mkdtemp(name) || chdir(name) || rmdir(name))
        return 2;
    prepare();
    launch(LAUNCHES);
    return finish(0);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "plain", *argument = argc > 2 ? argv[2] : "";
    auto is = [&](const char *name) { return !strcmp(mode, name); };
    if (is("junk"))
        return write_junk();
    if (is("over"))
        return with_others_replaced();
    if (is("inherited"))
        return with_all_inherited();
    if (is("files"))
        return limited(RLIMIT_NOFILE, *descriptors().rbegin() + 1 + atoi(argument));
    if (is("memory"))
        return limited(RLIMIT_AS, address_space() + ((rlim_t)atoi(argument) << 20));
    if (is("processes"))
        return limited(RLIMIT_NPROC, atoi(argument));
    if (is("filter"))
        return filtered(argument);
    if (is("handler"))
        return in_a_handler(atoi(argument) * 1024);
    if (is("undumpable") && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
        return 2;
    if (is("forks"))
        return with_forks();
    if (is("vforks"))
        return with_programs();
    if (is("missing"))
        return with_missing_programs();
    if (is("blocked"))
        return with_blocked_signals();
    if (is("cancelled"))
        return with_a_cancelled_thread();
    if (is("renamed"))
        return with_odd_names();
    if (is("root"))
        return in_another_root(argument);
    if (is("folder"))
        return without_a_folder();
    prepare();
    launch(LAUNCHES);
    return finish(0);
}
