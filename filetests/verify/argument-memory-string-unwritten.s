; A string of the stack behind whose four bytes nothing was written.
    *(u32 *)(r10 - 8) = 6513249
    r1 = r10
    r1 += -16
    r2 = 8
    r3 = r10
    r3 += -8
    call 45  ; error[argument-memory]: argument 3 of `bpf_probe_read_str` must be an address, or 8 bytes that can be read: read of 8 bytes at r10-8 of the stack: the byte at r10-4 was never written
    r0 = 0
    exit
