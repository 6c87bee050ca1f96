; A read of the application's memory with a size that has no bound.
    r6 = r1
    *(u64 *)(r10 - 8) = 0
    r1 = r10
    r1 += -8
    r2 = *(u64 *)(r6 + 104)
    r3 = 0
    call 113  ; error[argument]: argument 2 of `bpf_probe_read_kernel` must be a size of at least 0 with a known upper bound; `r2` is any number
    r0 = 0
    exit
