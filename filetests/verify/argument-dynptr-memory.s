; A dynptr is made of a map's value only, as in Linux.
    *(u64 *)(r10 - 8) = 0
    r1 = r10
    r1 += -8
    r2 = 8
    r3 = 0
    r4 = r10
    r4 += -24
    call 197  ; error[argument]: argument 1 of `bpf_dynptr_from_mem` must be a value of a map; `r1` is a pointer to r10-8 of the stack
    r0 = 0
    exit
