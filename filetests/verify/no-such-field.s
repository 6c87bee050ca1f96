; `lane` has four bytes, not eight.
    r0 = *(u64 *)(r1 + 48)  ; error[no-such-field]: read of 8 bytes at offset 48 of the context is no field of `wbpf_kernel_ctx`
    exit
