; Waits until the host has made room in a ring.
; map ring events entries=65536
again:
    r1 = map[0]
    r2 = 0
    call 134  ; error[spin]: this loop waits for another thread: it ends only when the value that instruction 3 reads gives another answer
    if r0 > 1000 goto again
    r0 = 0
    exit
