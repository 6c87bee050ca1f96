// Explicit contexts and every way to load an image by the driver API: as PTX and as a fatbin, from memory and from files, as module and as library. Contexts
// are several at once, and modules are unloaded while others run. Says what the kernels computed, and how many launches there were.
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <elf.h>

#include "driver.h"

// Only the fatbin that nvcc made of it is used: nothing here is launched by the runtime.
extern "C" __global__ void probedFill(unsigned *to, unsigned factor)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = to[i] * factor + i;
}
__constant__ unsigned offset = 11;
extern "C" __global__ void probedShift(unsigned *to, unsigned factor)
{
    to[blockIdx.x * blockDim.x + threadIdx.x] += offset * factor;
}

static const std::string text = scale_text("probedText");

constexpr unsigned BLOCKS = 4, THREADS = 64, WORDS = BLOCKS * THREADS;
static std::atomic<unsigned> launches;

static std::string read_file(const char *path)
{
    std::string bytes;
    char part[65536];
    FILE *file = fopen(path, "rb");
    if (!file)
        exit(3);
    while (size_t n = fread(part, 1, sizeof(part), file))
        bytes.append(part, n);
    fclose(file);
    return bytes;
}

// The fatbin that nvcc put into this program: the longest one of its section, as the linker's own is empty.
static std::string own_fatbin()
{
    std::string file = read_file("/proc/self/exe"), longest;
    auto header = (const Elf64_Ehdr *)file.data();
    auto sections = (const Elf64_Shdr *)(file.data() + header->e_shoff);
    const char *names = file.data() + sections[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; i++) {
        if (strcmp(names + sections[i].sh_name, ".nv_fatbin"))
            continue;
        size_t at = sections[i].sh_offset, end = at + sections[i].sh_size;
        while (at + 16 <= end) {
            struct {
                unsigned magic;
                unsigned short version, header;
                unsigned long long bytes;
            } start;
            memcpy(&start, file.data() + at, sizeof(start));
            if (start.magic != 0xba55ed50) {
                at += 8;
                continue;
            }
            size_t bytes = start.header + start.bytes;
            if (bytes > longest.size())
                longest = file.substr(at, bytes);
            at += bytes;
        }
    }
    return longest;
}

struct Images {
    std::string fatbin;
    char fatbin_path[64], text_path[64];
};

static void write_file(char *path, const char *bytes, size_t count)
{
    strcpy(path, "/tmp/loading-XXXXXX");
    int file = mkstemp(path);
    if (file < 0 || write(file, bytes, count) != (ssize_t)count)
        exit(3);
    close(file);
}

// Memory of a context, and a checksum of all that kernels left there.
struct Words {
    CUdeviceptr at;
    unsigned sum = 0;

    Words() { DO(cuMemAlloc(&at, WORDS * 4)); }
    void clear() { DO(cuMemsetD32(at, 1, WORDS)); }
    void add()
    {
        unsigned words[WORDS];
        DO(cuMemcpyDtoH(words, at, sizeof(words)));
        for (unsigned word : words)
            sum = sum * 31 + word;
    }
};

static void launch(CUfunction function, Words &words, unsigned factor)
{
    void *params[] = { &words.at, &factor };
    DO(cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, nullptr, params, nullptr));
    launches++;
}

enum Way { TEXT_DATA, TEXT_FILE, FATBIN_DATA, FATBIN_BINARY, FATBIN_FILE, WAYS };

static CUmodule load(const Images &images, Way way)
{
    CUmodule module = nullptr;
    switch (way) {
    case TEXT_DATA: DO(cuModuleLoadDataEx(&module, text.c_str(), 0, nullptr, nullptr)); break;
    case TEXT_FILE: DO(cuModuleLoad(&module, images.text_path)); break;
    case FATBIN_DATA: DO(cuModuleLoadData(&module, images.fatbin.data())); break;
    case FATBIN_BINARY: DO(cuModuleLoadFatBinary(&module, images.fatbin.data())); break;
    default: DO(cuModuleLoad(&module, images.fatbin_path)); break;
    }
    return module;
}

static CUfunction function(CUmodule module, const char *name)
{
    CUfunction function;
    DO(cuModuleGetFunction(&function, module, name));
    return function;
}

static void run_module(CUmodule module, Way way, Words &words)
{
    words.clear();
    if (way == TEXT_DATA || way == TEXT_FILE) {
        launch(function(module, "probedText"), words, 3 + way);
    } else {
        launch(function(module, "probedFill"), words, 3 + way);
        launch(function(module, "probedShift"), words, 3 + way);
    }
    words.add();
}

// A library, its kernel launched by its own handle and by the function that it is here.
static void run_library(CUlibrary library, Words &words)
{
    CUkernel kernel;
    CUfunction here;
    CUmodule module;
    words.clear();
    DO(cuLibraryGetKernel(&kernel, library, "probedFill"));
    launch((CUfunction)kernel, words, 5);
    DO(cuKernelGetFunction(&here, kernel));
    launch(here, words, 7);
    DO(cuLibraryGetKernel(&kernel, library, "probedShift"));
    launch((CUfunction)kernel, words, 2);
    DO(cuLibraryGetModule(&module, library));
    launch(function(module, "probedShift"), words, 4);
    words.add();
}

static CUcontext new_context(CUdevice device)
{
    CUcontext context;
    DO(cuCtxCreate(&context, nullptr, 0, device));
    return context;
}

int main()
{
    Images images = { own_fatbin(), "", "" };
    if (images.fatbin.empty())
        return 3;
    write_file(images.fatbin_path, images.fatbin.data(), images.fatbin.size());
    write_file(images.text_path, text.data(), text.size());
    DO(cuInit(0));
    CUdevice device;
    DO(cuDeviceGet(&device, 0));

    // One context; each way in turn, loaded twice, the second time while the first is there.
    CUcontext first = new_context(device);
    Words words;
    for (int way = 0; way < WAYS; way++) {
        CUmodule one = load(images, (Way)way);
        run_module(one, (Way)way, words);
        CUmodule two = load(images, (Way)way);
        run_module(two, (Way)way, words);
        DO(cuModuleUnload(one));
        run_module(two, (Way)way, words);
        DO(cuModuleUnload(two));
        printf("way %d: %08x\n", way, words.sum);
    }

    // A library, in two contexts that this thread has in turn. The second one is destroyed, and the library stays.
    CUlibrary library, from_file;
    DO(cuLibraryLoadData(&library, images.fatbin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    run_library(library, words);
    CUcontext second = new_context(device);
    {
        Words others;
        run_library(library, others);
        DO(cuLibraryLoadFromFile(&from_file, images.fatbin_path, nullptr, nullptr, 0, nullptr, nullptr, 0));
        run_library(from_file, others);
        DO(cuCtxPushCurrent(first));
        run_library(library, words);
        run_library(from_file, words);
        DO(cuCtxPopCurrent(nullptr));
        run_library(library, others);
        printf("libraries: %08x %08x\n", words.sum, others.sum);
    }
    DO(cuCtxDestroy(second));
    DO(cuCtxSetCurrent(first));
    run_library(library, words);
    DO(cuLibraryUnload(library));
    run_library(from_file, words);
    DO(cuLibraryUnload(from_file));
    printf("one context less: %08x\n", words.sum);

    // What cannot be had is told as ever.
    CUmodule none;
    CUlibrary no_library;
    CUfunction no_function;
    CUkernel no_kernel;
    CUmodule there = load(images, TEXT_DATA);
    DO(cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    const char broken[] = ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry probedText( { ret; }\n";
    // A fatbin's header, and nothing behind it.
    alignas(16) const unsigned empty[] = { 0xba55ed50, 16 << 16 | 1, 0, 0 };
    printf("refused: %d %d %d", cuModuleLoad(&none, "/nowhere/at/all"), cuModuleLoadData(&none, broken),
           cuModuleLoadFatBinary(&none, empty));
    printf(" %d %d\n", cuModuleGetFunction(&no_function, there, "probedFill"), cuLibraryGetKernel(&no_kernel, library, "probedFill"));
    // A library's text is looked at when somebody asks for a kernel.
    DO(cuLibraryLoadData(&no_library, broken, nullptr, nullptr, 0, nullptr, nullptr, 0));
    printf("refused late: %d\n", cuLibraryGetKernel(&no_kernel, no_library, "probedText"));
    DO(cuLibraryUnload(no_library));
    DO(cuLibraryUnload(library));
    DO(cuModuleUnload(there));

    // Threads, each with a context of its own, and each loads and unloads while the others launch.
    constexpr int THREADS_AT_ONCE = 3, ROUNDS = 4;
    unsigned sums[THREADS_AT_ONCE];
    std::vector<std::thread> threads;
    for (int me = 0; me < THREADS_AT_ONCE; me++)
        threads.emplace_back([&, me] {
            CUcontext mine = new_context(device);
            Words words;
            for (int round = 0; round < ROUNDS; round++) {
                Way way = (Way)((me + round) % WAYS);
                CUmodule module = load(images, way);
                run_module(module, way, words);
                DO(cuModuleUnload(module));
            }
            sums[me] = words.sum;
            DO(cuCtxDestroy(mine));
        });
    for (auto &each : threads)
        each.join();
    printf("contexts at once: %08x %08x %08x\n", sums[0], sums[1], sums[2]);

    // In one context: modules come and go beside launches of another one.
    std::vector<std::thread> more;
    CUmodule stays = load(images, FATBIN_BINARY);
    for (int me = 0; me < THREADS_AT_ONCE; me++)
        more.emplace_back([&, me] {
            DO(cuCtxSetCurrent(first));
            Words words;
            for (int round = 0; round < ROUNDS; round++) {
                Way way = me == 0 ? FATBIN_BINARY : (Way)((me + round) % WAYS);
                CUmodule module = me == 0 ? stays : load(images, way);
                run_module(module, way, words);
                if (me != 0)
                    DO(cuModuleUnload(module));
            }
            sums[me] = words.sum;
        });
    for (auto &each : more)
        each.join();
    printf("modules that come and go: %08x %08x %08x\n", sums[0], sums[1], sums[2]);
    DO(cuModuleUnload(stays));
    DO(cuCtxDestroy(first));
    printf("%u launches of %u blocks of %u threads\n", launches.load(), BLOCKS, THREADS);
    unlink(images.fatbin_path);
    unlink(images.text_path);
    return 0;
}
