// What Compute Sanitizer calls before each access, once per lane that executes it.
#include "counters.h"

#include <sanitizer_patching.h>

static_assert((SANITIZER_MEMORY_DEVICE_FLAG_READ | SANITIZER_MEMORY_DEVICE_FLAG_WRITE | SANITIZER_MEMORY_DEVICE_FLAG_ATOMSYS |
               SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH) < FLAGS,
              "a flag has no counter");

// One pair of atomics for the lanes that are here together: a pair per lane makes a kernel hundreds of times slower.
static __device__ __forceinline__ SanitizerPatchResult add(void *userdata, Place place, uint32_t flags, uint32_t bytes)
{
    if (userdata == nullptr)
        return SANITIZER_PATCH_SUCCESS;
    uint32_t before;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
    uint32_t here = __activemask();
    if (here & before)
        return SANITIZER_PATCH_SUCCESS;
    // The size belongs to the instruction, so it is the same in all of them.
    Counts *counts = &static_cast<Counters *>(userdata)->of[place][flags % FLAGS];
    unsigned long long lanes = __popc(here);
    atomicAdd(reinterpret_cast<unsigned long long *>(&counts->accesses), lanes);
    atomicAdd(reinterpret_cast<unsigned long long *>(&counts->bytes), lanes * bytes);
    return SANITIZER_PATCH_SUCCESS;
}

extern "C" __device__ __noinline__ SanitizerPatchResult count_global(void *userdata, uint64_t, void *, uint32_t bytes,
                                                                     uint32_t flags, const void *)
{
    return add(userdata, GLOBAL, flags, bytes);
}

extern "C" __device__ __noinline__ SanitizerPatchResult count_shared(void *userdata, uint64_t, void *, uint32_t bytes,
                                                                     uint32_t flags, const void *)
{
    return add(userdata, SHARED, flags, bytes);
}

extern "C" __device__ __noinline__ SanitizerPatchResult count_copied(void *userdata, uint64_t, void *, uint32_t, uint32_t bytes)
{
    return add(userdata, COPIED, SANITIZER_MEMORY_DEVICE_FLAG_READ, bytes);
}

// The library gives these to Compute Sanitizer by name; here the compiler checks that they are what it calls.
static_assert(static_cast<SanitizerCallbackMemoryAccess>(count_global));
static_assert(static_cast<SanitizerCallbackMemoryAccess>(count_shared));
static_assert(static_cast<SanitizerCallbackMemcpyAsync>(count_copied));
