; Four values; a message carries three.
; map rodata .rodata bytes=256420256420256420256400
    r3 = 1
    r4 = 2
    r5 = 3
    r1 = map[0][0] + 0
    r2 = 12
    call 6  ; error[format-arguments]: the format has 4 conversions; `bpf_trace_printk` takes 3
    r0 = 0
    exit
