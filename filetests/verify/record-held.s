; A record that is never given back: the ring would fill up and stay full.
; map ring events entries=65536
    r1 = map[0]
    r2 = 16
    r3 = 0
    call 131
    r0 = 0
    exit  ; error[record-held]: the record reserved at instruction 4 in map `events` is neither submitted nor discarded on this path
