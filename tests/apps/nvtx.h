// As much of NVTX 3 as the tests need: a user of NVTX is a table of functions, which the library that NVTX_INJECTION64_PATH names fills
// in when the first of them is called. Numbers are those of the interface.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

struct Event {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type, padding;
    const void *message;
};

enum { CORE = 1, CUDART = 4, CORE2 = 5, MODULES = 7, FUNCTIONS = 17 };

static void *functions[MODULES][FUNCTIONS];
static void **places[MODULES][FUNCTIONS + 1];

extern "C" int module_table(int module, void ****table, unsigned *count)
{
    if (module != CORE && module != CUDART && module != CORE2)
        return 0;
    // Number 0 is no function.
    for (int i = 1; i < FUNCTIONS; i++)
        places[module][i] = &functions[module][i];
    *table = places[module];
    *count = FUNCTIONS;
    return 1;
}

extern "C" const void *find_table(unsigned number)
{
    static struct {
        size_t bytes;
        int (*module)(int, void ****, unsigned *);
    } callbacks = { sizeof(callbacks), module_table };
    return number == 1 ? &callbacks : nullptr;
}

static bool ask_tool()
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : nullptr;
    auto start = library ? (int (*)(const void *(*)(unsigned)))dlsym(library, "InitializeInjectionNvtx2") : nullptr;
    return start && start(find_table);
}

static bool there()
{
    static const bool asked = ask_tool();
    return asked;
}

template <typename Result, typename... Args> static Result nvtx(Result without, int module, int number, Args... args)
{
    auto function = there() ? (Result(*)(Args...))functions[module][number] : nullptr;
    return function ? function(args...) : without;
}

template <typename... Args> static void nvtx_do(int module, int number, Args... args)
{
    auto function = there() ? (void (*)(Args...))functions[module][number] : nullptr;
    if (function)
        function(args...);
}

static Event event_of(int type, const void *message)
{
    Event event = {};
    event.version = 3;
    event.size = sizeof(event);
    event.message_type = type;
    event.message = message;
    return event;
}

// What an application gets without a tool: -2 for depths, 0 for ranges and handles.
static inline int push(const char *name) { return nvtx(-2, CORE, 9, name); }
static inline int push_wide(const wchar_t *name) { return nvtx(-2, CORE, 10, name); }
static inline int pop() { return nvtx(-2, CORE, 11); }
static inline uint64_t start(const char *name) { return nvtx((uint64_t)0, CORE, 5, name); }
static inline void end(uint64_t range) { nvtx_do(CORE, 7, range); }
static inline void mark(const char *name) { nvtx_do(CORE, 2, name); }
static inline void name_thread(unsigned id, const char *name) { nvtx_do(CORE, 14, id, name); }
static inline void name_stream(void *stream, const char *name) { nvtx_do(CUDART, 3, stream, name); }
static inline void *domain(const char *name) { return nvtx((void *)nullptr, CORE2, 12, name); }
static inline void *registered(void *domain, const char *name) { return nvtx((void *)nullptr, CORE2, 10, domain, name); }
static inline int push_in(void *domain, const Event &event) { return nvtx(-2, CORE2, 4, domain, &event); }
static inline int pop_in(void *domain) { return nvtx(-2, CORE2, 5, domain); }
