// Counts the memory accesses of every kernel that a process launches, by NVIDIA's Compute Sanitizer: what `gpu/mem` counts
// is compared with this. Comes in by CUDA_INJECTION64_PATH, with libsanitizer-public.so on the library path.
// At exit one line of JSON per kernel goes to $MEMCOUNT_OUT (else to standard error), and one per error.
#include "counters.h"

#include <dlfcn.h>
#include <sanitizer.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>

namespace {

struct Kernel {
    // Page-locked memory that launches count in: it can be read when a launch has ended, without a copy.
    Counters *live = nullptr;
    Counters counters = {};
    uint64_t launches = 0;
};

// The name is the one in the image. A context has its own memory, so its own counters.
using Key = std::pair<CUcontext, std::string>;

struct State {
    // What is called under it may call back.
    std::recursive_mutex lock;
    std::map<Key, Kernel> kernels;
    std::set<CUcontext> patched;
    std::set<std::string> errors;
    std::string patches;
};

// Never destroyed: the driver calls back until the process is gone.
State &state()
{
    static State *const all = new State;
    return *all;
}

bool done(SanitizerResult result, const std::string &what)
{
    if (result == SANITIZER_SUCCESS)
        return true;
    const char *text = nullptr;
    if (sanitizerGetResultString(result, &text) != SANITIZER_SUCCESS || text == nullptr)
        text = "unknown result";
    state().errors.insert(what + ": " + text + " (" + std::to_string(result) + ")");
    return false;
}

void patch(const Sanitizer_ResourceModuleData &loaded)
{
    const std::pair<Sanitizer_InstructionId, const char *> patches[] = {
        {SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS, "count_global"},
        {SANITIZER_INSTRUCTION_SHARED_MEMORY_ACCESS, "count_shared"},
        {SANITIZER_INSTRUCTION_MEMCPY_ASYNC, "count_copied"},
    };
    if (!state().patched.count(loaded.context)) {
        const std::string &file = state().patches;
        if (!done(sanitizerAddPatchesFromFile(file.c_str(), loaded.context), "cannot load `" + file + "`"))
            return;
        state().patched.insert(loaded.context);
    }
    for (const auto &[instruction, function] : patches)
        if (!done(sanitizerPatchInstructions(instruction, loaded.module, function), std::string("cannot select ") + function))
            return;
    done(sanitizerPatchModule(loaded.module), "cannot patch a module");
}

void begin(const Sanitizer_LaunchData &launch)
{
    const char *name = launch.functionName;
    Kernel &kernel = state().kernels[{launch.context, name ? name : "?"}];
    if (kernel.live == nullptr) {
        void *memory = nullptr;
        if (!done(sanitizerAllocHost(launch.context, &memory, sizeof(Counters)), "cannot allocate counters"))
            return;
        kernel.live = new (memory) Counters();
    }
    kernel.launches++;
    done(sanitizerSetLaunchCallbackData(launch.hLaunch, launch.function, launch.hStream, kernel.live),
         "cannot give counters to a launch");
}

// Counters are read while the context is sure to be alive; at exit it may be gone.
void read(Kernel &kernel)
{
    if (kernel.live != nullptr)
        kernel.counters = *kernel.live;
}

void end(const Sanitizer_LaunchData &launch)
{
    const char *name = launch.functionName;
    const auto found = state().kernels.find({launch.context, name ? name : "?"});
    if (found != state().kernels.end() && done(sanitizerStreamSynchronize(launch.hStream), "cannot wait for a launch"))
        read(found->second);
}

void end(const Sanitizer_GraphLaunchData &graph)
{
    if (!done(sanitizerStreamSynchronize(graph.hStream), "cannot wait for a graph"))
        return;
    for (auto &[key, kernel] : state().kernels)
        if (key.first == graph.context)
            read(kernel);
}

void called(void *, Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void *data)
{
    const std::lock_guard<std::recursive_mutex> guard(state().lock);
    if (domain == SANITIZER_CB_DOMAIN_RESOURCE && id == SANITIZER_CBID_RESOURCE_MODULE_LOADED) {
        patch(*static_cast<const Sanitizer_ResourceModuleData *>(data));
    } else if (domain == SANITIZER_CB_DOMAIN_LAUNCH && id == SANITIZER_CBID_LAUNCH_BEGIN) {
        begin(*static_cast<const Sanitizer_LaunchData *>(data));
    } else if (domain == SANITIZER_CB_DOMAIN_LAUNCH && id == SANITIZER_CBID_LAUNCH_END) {
        end(*static_cast<const Sanitizer_LaunchData *>(data));
    } else if (domain == SANITIZER_CB_DOMAIN_GRAPHS && id == SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN) {
        const auto &node = *static_cast<const Sanitizer_GraphNodeLaunchData *>(data);
        if (node.nodeType == CU_GRAPH_NODE_TYPE_KERNEL && !node.isGraphUpload)
            begin(node.launchData);
    } else if (domain == SANITIZER_CB_DOMAIN_GRAPHS && id == SANITIZER_CBID_GRAPHS_LAUNCH_END) {
        const auto &graph = *static_cast<const Sanitizer_GraphLaunchData *>(data);
        if (!graph.isGraphUpload)
            end(graph);
    }
}

std::string quoted(const std::string &text)
{
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            out += '\\';
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out + '"';
}

// Kinds as in `gpu/mem`: what both reads and writes is an atomic or a reduction.
std::string kinds(const Counts (&of)[FLAGS])
{
    Counts loads = {}, stores = {}, atomics = {}, prefetches = {}, unknown = {};
    for (uint32_t flags = 0; flags < FLAGS; flags++) {
        const bool reads = flags & SANITIZER_MEMORY_DEVICE_FLAG_READ;
        const bool writes = flags & SANITIZER_MEMORY_DEVICE_FLAG_WRITE;
        Counts &kind = flags & SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH                         ? prefetches
                       : (reads && writes) || (flags & SANITIZER_MEMORY_DEVICE_FLAG_ATOMSYS) ? atomics
                       : reads                                                               ? loads
                       : writes                                                              ? stores
                                                                                             : unknown;
        kind.accesses += of[flags].accesses;
        kind.bytes += of[flags].bytes;
    }
    std::string out;
    const std::pair<const char *, Counts> all[] = {
        {"loads", loads}, {"stores", stores}, {"atomics", atomics}, {"prefetches", prefetches}, {"unknown", unknown}};
    for (const auto &[name, counts] : all)
        out += std::string(out.empty() ? "{" : ", ") + '"' + name + "\": [" + std::to_string(counts.accesses) + ", " +
               std::to_string(counts.bytes) + ']';
    return out + '}';
}

void report()
{
    const std::lock_guard<std::recursive_mutex> guard(state().lock);
    const char *path = getenv("MEMCOUNT_OUT");
    FILE *out = path ? fopen(path, "w") : stderr;
    if (out == nullptr) {
        perror(path);
        return;
    }
    for (const auto &[key, kernel] : state().kernels)
        fprintf(out, "{\"kernel\": %s, \"launches\": %llu, \"global\": %s, \"shared\": %s, \"copied\": %s}\n",
                quoted(key.second).c_str(), static_cast<unsigned long long>(kernel.launches),
                kinds(kernel.counters.of[GLOBAL]).c_str(), kinds(kernel.counters.of[SHARED]).c_str(),
                kinds(kernel.counters.of[COPIED]).c_str());
    for (const std::string &error : state().errors)
        fprintf(out, "{\"error\": %s}\n", quoted(error).c_str());
    if (out != stderr)
        fclose(out);
}

} // namespace

// The driver calls this when it is initialised; it ignores what comes back.
extern "C" __attribute__((visibility("default"))) int InitializeInjection()
{
    Dl_info self;
    if (dladdr(reinterpret_cast<const void *>(&InitializeInjection), &self) && self.dli_fname) {
        const std::string library = self.dli_fname;
        state().patches = library.substr(0, library.rfind('/') + 1) + "memcount.fatbin";
    }
    atexit(report);
    Sanitizer_SubscriberHandle subscriber;
    if (!done(sanitizerSubscribe(&subscriber, called, nullptr), "cannot subscribe"))
        return 1;
    const std::pair<Sanitizer_CallbackDomain, Sanitizer_CallbackId> wanted[] = {
        {SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED},
        {SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN},
        {SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_END},
        {SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN},
        {SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_LAUNCH_END},
    };
    for (const auto &[domain, id] : wanted)
        done(sanitizerEnableCallback(1, subscriber, domain, id),
             "cannot enable callback " + std::to_string(id) + " of domain " + std::to_string(domain));
    return 1;
}
