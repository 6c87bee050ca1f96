// Kernels that are compiled while the application runs, and by whom: NVRTC or nvJitLink, as PTX or as machine code. Both libraries are looked for
// at run time, in the folder that the last argument names or where the dynamic linker does. Prints the sum of what the kernels did.
// `late` is `cubin` by a library that comes after all memory, and takes as long to compile as a larger text does.
// usage: jit ptx|cubin|late|lto|linked LAUNCHES [FOLDER]
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

#include "adds.h"

static const char kernel[] = R"(
extern "C" __device__ unsigned scaled(unsigned value);
template <typename T> __device__ T twice(T value) { return value + value; }
extern "C" __global__ void jit_add(unsigned *sums, unsigned count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        sums[i] += scaled(twice(i));
}
)";
static const char function[] = R"(
extern "C" __device__ unsigned scaled(unsigned value) { return value * 3 + 1; }
)";

struct Library {
    void *handle;

    Library(const char *name, const char *folder)
    {
        std::string path = folder ? std::string(folder) + "/" + name : name;
        handle = dlopen(path.c_str(), RTLD_NOW);
        if (!handle)
            fail(name, dlerror());
    }
    template <typename... A> void call(const char *name, A... arguments) const
    {
        void *found = dlsym(handle, name);
        if (!found)
            fail(name, "not in the library");
        int code = ((int (*)(A...))found)(arguments...);
        if (code != 0)
            fail(name, std::to_string(code));
    }
};

// What NVRTC makes of a text: `get` names what is asked for.
static std::vector<char> compiled(const Library &nvrtc, const char *text, std::vector<const char *> options,
                                  const char *get)
{
    void *program = nullptr;
    size_t bytes = 0;
    nvrtc.call("nvrtcCreateProgram", &program, text, "jit.cu", 0, (const char *const *)nullptr,
               (const char *const *)nullptr);
    nvrtc.call("nvrtcCompileProgram", program, (int)options.size(), options.data());
    std::string name = get;
    nvrtc.call((name + "Size").c_str(), program, &bytes);
    std::vector<char> made(bytes);
    nvrtc.call(get, program, made.data());
    nvrtc.call("nvrtcDestroyProgram", &program);
    return made;
}

// `what`: CUBIN, or Ptx, which asks for code that was optimised together.
static std::vector<char> linked(const Library &linker, const std::vector<std::vector<char>> &parts, int kind,
                                std::vector<const char *> options, const char *what)
{
    void *handle = nullptr;
    size_t bytes = 0;
    linker.call("nvJitLinkCreate", &handle, (uint32_t)options.size(), options.data());
    for (const std::vector<char> &part : parts)
        linker.call("nvJitLinkAddData", handle, kind, (const void *)part.data(), part.size(), "part");
    linker.call("nvJitLinkComplete", handle);
    std::string get = std::string("nvJitLinkGetLinked") + what;
    linker.call((get + "Size").c_str(), handle, &bytes);
    std::vector<char> made(bytes);
    linker.call(get.c_str(), handle, (void *)made.data());
    linker.call("nvJitLinkDestroy", &handle);
    return made;
}

static std::vector<char> image(const std::string &how, const char *folder)
{
    int major = 0, minor = 0;
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    std::string number = std::to_string(major * 10 + minor);
    std::string text = "-arch=compute_" + number, machine = "-arch=sm_" + number;
    const char *virtual_arch = text.c_str(), *real_arch = machine.c_str();
    void *some;
    if (how == "late")
        CHECK(cudaMalloc(&some, 4));
    // NVRTC looks for this one by its name alone, and then it is there.
    if (folder)
        Library("libnvrtc-builtins.so.13.0", folder);
    Library nvrtc("libnvrtc.so.13", folder);
    if (how == "late")
        usleep(500000);
    else
        // Memory comes first in a framework, too.
        CHECK(cudaMalloc(&some, 4));
    // What is late has no call of the driver from here on until its code is loaded.
    if (how != "late")
        CHECK(cudaFree(some));
    std::string together = std::string(function) + kernel;
    if (how == "ptx")
        return compiled(nvrtc, together.c_str(), {virtual_arch, "-lineinfo"}, "nvrtcGetPTX");
    if (how == "cubin" || how == "late")
        return compiled(nvrtc, together.c_str(), {real_arch, "-lineinfo"}, "nvrtcGetCUBIN");
    Library linker("libnvJitLink.so.13", folder);
    std::vector<std::vector<char>> parts;
    // The numbers are nvJitLink's: NVJITLINK_INPUT_PTX, NVJITLINK_INPUT_LTOIR.
    if (how == "linked") {
        for (const char *text : {kernel, function})
            parts.push_back(compiled(nvrtc, text, {virtual_arch, "-rdc=true"}, "nvrtcGetPTX"));
        return linked(linker, parts, 2, {real_arch}, "Cubin");
    }
    if (how != "lto")
        fail("usage", "jit ptx|cubin|late|lto|linked LAUNCHES [FOLDER]");
    for (const char *text : {kernel, function})
        parts.push_back(compiled(nvrtc, text, {virtual_arch, "-rdc=true", "-dlto"}, "nvrtcGetLTOIR"));
    return linked(linker, parts, 3, {real_arch, "-lto", "-ptx"}, "Ptx");
}

int main(int count, char **arguments)
{
    if (count < 3)
        fail("usage", "jit ptx|cubin|late|lto|linked LAUNCHES [FOLDER]");
    std::vector<char> made = image(arguments[1], count > 3 ? arguments[3] : nullptr);
    run_adds(made, "jit_add", zeroed_sums(), arguments[1], atoi(arguments[2]));
    return 0;
}
