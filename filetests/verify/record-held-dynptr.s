; A dynptr is given back even where there was no room for it.
; map ring events entries=65536
    r1 = map[0]
    r2 = 16
    r3 = 0
    r4 = r10
    r4 += -16
    call 198
    if r0 == 0 goto +2
    r0 = 0
    exit  ; error[record-held]: the record reserved at instruction 6 in map `events` is neither submitted nor discarded on this path
    r1 = r10
    r1 += -16
    r2 = 0
    call 199
    r0 = 0
    exit
