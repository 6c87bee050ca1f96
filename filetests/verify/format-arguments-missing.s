; Two conversions, one value.
; map rodata .rodata bytes=256420256400
    *(u64 *)(r10 - 8) = 1
    r1 = r10
    r1 += -24
    r2 = 16
    r3 = map[0][0] + 0
    r4 = r10
    r4 += -8
    r5 = 8
    call 165  ; error[format-arguments]: the format has 2 conversions; `bpf_snprintf` gets 8 bytes of values, 8 for each
    r0 = 0
    exit
