; There are no floating-point numbers in eBPF.
; map rodata .rodata bytes=256600
    r3 = 1
    r1 = map[0][0] + 0
    r2 = 3
    call 6  ; error[format-conversion]: `%f` in the format is not served
    r0 = 0
    exit
