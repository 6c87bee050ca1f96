; A string that is not constant would be read when the application has gone on.
; map rodata .rodata bytes=612025357300
    *(u64 *)(r10 - 8) = 1
    r1 = map[0][0] + 0
    r2 = 6
    r3 = r10
    r3 += -8
    r4 = 8
    call 177  ; error[format-conversion]: the value of `%5s` in the format of `bpf_trace_vprintk` must be a constant string (in `.rodata`); it is the number 1
    r0 = 0
    exit
