; Four of eight bytes were written.
    *(u32 *)(r10 - 8) = 7
    r0 = *(u64 *)(r10 - 8)  ; error[stack-uninitialised]: read of 8 bytes at r10-8 of the stack: the byte at r10-4 was never written
    exit
