; A string of the application, into a value.
; map array value=16
    r3 = *(u64 *)(r1 + 104)
    r1 = map[0][0] + 0
    r2 = 16
    call 115
    r0 = 0
    exit
