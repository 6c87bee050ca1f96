; Two functions that need more stack together than there is.
    *(u64 *)(r10 - 256) = 1
    call f  ; error[stack-too-deep]: this chain of calls uses 520 bytes of stack; at most 512
    exit
f:
    *(u64 *)(r10 - 264) = 1
    r0 = 0
    exit
