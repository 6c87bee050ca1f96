; A read into what nobody may write.
    r2 = 4
    r3 = 4096
    call 113  ; error[argument-memory]: argument 1 of `bpf_probe_read_kernel` must be 4 writable bytes: write of 4 bytes at offset 0 of the context: the context can only be read
    r0 = 0
    exit
