; A string of a message is a constant one.
; map rodata .rodata bytes=257300
    r3 = 1
    r1 = map[0][0] + 0
    r2 = 3
    call 6  ; error[argument]: argument 3 of `bpf_trace_printk` must be a constant string (in `.rodata`); `r3` is the number 1
    r0 = 0
    exit
