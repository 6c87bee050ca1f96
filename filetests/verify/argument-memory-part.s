; How much is written is not known, so what may stay as it was must have been written before.
    r6 = r1
    r1 = r10
    r1 += -8
    r2 = *(u32 *)(r6 + 24)
    r2 &= 7
    r3 = 4096
    call 4  ; error[argument-memory]: argument 1 of `bpf_probe_read` must be 7 writable bytes: read of 7 bytes at r10-8 of the stack: the byte at r10-8 was never written
    r0 = *(u64 *)(r10 - 8)
    exit
