; Waits until time has passed.
    call 502
    r6 = r0
    r6 += 1000
again:
    call 502  ; error[spin]: this loop waits for time to pass: it ends only when the clock at instruction 3 gives another answer
    if r0 < r6 goto again
    r0 = 0
    exit
