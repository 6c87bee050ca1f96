; A string conversion would read memory of the application.
; map rodata .rodata bytes=257300
    r3 = 1
    r1 = map[0][0] + 0
    r2 = 3
    call 6  ; error[format-conversion]: `%s` in the format is not served
    r0 = 0
    exit
