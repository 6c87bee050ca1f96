; Values have 8 bytes each.
; map rodata .rodata bytes=256400
    *(u64 *)(r10 - 8) = 1
    *(u64 *)(r10 - 16) = 1
    r1 = map[0][0] + 0
    r2 = 3
    r3 = r10
    r3 += -16
    r4 = 12
    call 177  ; error[argument]: argument 4 of `bpf_trace_vprintk` must be a constant size, a multiple of 8; `r4` is the number 12
    r0 = 0
    exit
