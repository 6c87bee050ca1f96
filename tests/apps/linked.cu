// PTX that the driver's linker makes machine code of, as numba has it made: one text as data or as a file, one at most so many registers a thread, or two
// texts, of which no one stands for what comes out. Prints the sum of what the kernel did.
// usage: linked data|file|bounded|several LAUNCHES
#include <cstring>
#include <unistd.h>

#include "adds.h"

#define HEADER ".version 8.0\n.target sm_80\n.address_size 64\n"
#define FUNCTION ".func (.param .b32 scaled_is) scaled(.param .b32 scaled_of)"

// Where it is alone it has the function; else another text has.
static const char function[] = ".visible " FUNCTION R"(
{
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [scaled_of];
    mad.lo.u32 %r1, %r1, 3, 1;
    st.param.b32 [scaled_is], %r1;
    ret;
}
)";
static const char kernel[] = R"(
.visible .entry linked_add(.param .u64 sums, .param .u32 count)
{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %rd<3>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    ld.param.u32 %r2, [count];
    setp.ge.u32 %p, %r1, %r2;
    @%p bra done;
    ld.param.u64 %rd1, [sums];
    cvta.to.global.u64 %rd1, %rd1;
    mad.wide.u32 %rd1, %r1, 4, %rd1;
    add.u32 %r4, %r1, %r1;
    {
        .param .b32 of;
        .param .b32 is;
        st.param.b32 [of], %r4;
        call.uni (is), scaled, (of);
        ld.param.b32 %r4, [is];
    }
    ld.global.u32 %r5, [%rd1];
    add.u32 %r5, %r5, %r4;
    st.global.u32 [%rd1], %r5;
done:
    ret;
}
)";

static void add(CUlinkState link, const std::string &text)
{
    // Its NUL is counted.
    DRIVER(cuLinkAddData, link, CU_JIT_INPUT_PTX, (void *)text.c_str(), text.size() + 1, "part", 0, nullptr, nullptr);
}

static void add_file(CUlinkState link, const std::string &text)
{
    char path[] = "/tmp/warpbpf-linked-XXXXXX";
    int file = mkstemp(path);
    if (file < 0 || write(file, text.c_str(), text.size()) != (ssize_t)text.size() || close(file) != 0)
        fail(path, strerror(errno));
    DRIVER(cuLinkAddFile, link, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr);
    unlink(path);
}

// A copy of what is linked, because the driver keeps its own only as long as the link.
static std::vector<char> image(const std::string &how)
{
    CUlinkState link;
    CUjit_option options[] = {CU_JIT_MAX_REGISTERS};
    void *values[] = {(void *)32};
    DRIVER(cuLinkCreate, how == "bounded", options, values, &link);
    std::string together = std::string(HEADER) + function + kernel;
    if (how == "data" || how == "bounded") {
        add(link, together);
    } else if (how == "file") {
        add_file(link, together);
    } else if (how == "several") {
        add(link, std::string(HEADER ".extern " FUNCTION ";\n") + kernel);
        add(link, std::string(HEADER) + function);
    } else {
        fail("usage", "linked data|file|bounded|several LAUNCHES");
    }
    void *made;
    size_t bytes;
    DRIVER(cuLinkComplete, link, &made, &bytes);
    std::vector<char> copy((char *)made, (char *)made + bytes);
    DRIVER(cuLinkDestroy, link);
    return copy;
}

int main(int count, char **arguments)
{
    if (count != 3)
        fail("usage", "linked data|file|bounded|several LAUNCHES");
    unsigned *sums = zeroed_sums();
    run_adds(image(arguments[1]), "linked_add", sums, arguments[1], atoi(arguments[2]));
    return 0;
}
