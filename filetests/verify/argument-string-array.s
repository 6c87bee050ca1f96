; Only a stack can hold pointers to strings.
; map rodata .rodata bytes=612025357300
; map array values value=16
    *(u32 *)(r10 - 4) = 0
    r1 = map[1]
    r2 = r10
    r2 += -4
    call 1
    if r0 == 0 goto +5
    r1 = map[0][0] + 0
    r2 = 6
    r3 = r0
    r4 = 8
    call 177  ; error[argument]: argument 3 of `bpf_trace_vprintk` must be 1 values of 8 bytes, on the stack at a constant offset; `r3` is a pointer to a value of map `values`
    r0 = 0
    exit
