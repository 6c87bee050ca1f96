// What the patches count on the device and the injected library reads: one Counters per kernel.
#pragma once
#include <stdint.h>

// A place that is counted by itself.
enum Place {
    GLOBAL, // SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS
    SHARED, // SANITIZER_INSTRUCTION_SHARED_MEMORY_ACCESS
    COPIED, // SANITIZER_INSTRUCTION_MEMCPY_ASYNC: cp.async, from global to shared memory
    PLACES,
};

// Flags of Sanitizer_DeviceMemoryFlags, all of which are below.
constexpr uint32_t FLAGS = 16;

struct Counts {
    uint64_t accesses; // one per lane
    uint64_t bytes;
};

struct Counters {
    Counts of[PLACES][FLAGS];
};
