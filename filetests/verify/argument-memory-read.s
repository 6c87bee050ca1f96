; A read of more bytes than there is room for.
    r1 = r10
    r1 += -8
    r2 = 12
    r3 = 4096
    call 113  ; error[argument-memory]: argument 1 of `bpf_probe_read_kernel` must be 12 writable bytes: write of 12 bytes at r10-8 of the stack, which has 512 bytes
    r0 = 0
    exit
