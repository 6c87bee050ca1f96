; Waits until so many cycles are over.
again:
    call 542  ; error[spin]: this loop waits for time to pass: it ends only when the clock at instruction 0 gives another answer
    if r0 < 1000 goto again
    r0 = 0
    exit
