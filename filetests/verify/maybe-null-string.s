; A string of a value that may not be there.
; map hash values key=4 value=16 entries=4
    *(u32 *)(r10 - 4) = 3
    r1 = map[0]
    r2 = r10
    r2 += -4
    call 1
    r3 = r0
    r1 = r10
    r1 += -24
    r2 = 16
    call 114  ; error[maybe-null]: `r3` may be null here: it is a pointer to a value of map `values`, or null
    r0 = 0
    exit
