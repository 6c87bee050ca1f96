; What points into a record is gone with it.
; map ring events entries=65536
    r1 = map[0]
    r2 = 16
    r3 = 0
    r4 = r10
    r4 += -16
    call 198
    r1 = r10
    r1 += -16
    r2 = 0
    r3 = 8
    call 203
    r6 = r0
    r1 = r10
    r1 += -16
    r2 = 0
    call 199
    if r6 == 0 goto +1  ; error[uninitialised]: `r6` is read but holds nothing: instruction 16 gave its record back
    *(u64 *)(r6 + 0) = 1
    r0 = 0
    exit
