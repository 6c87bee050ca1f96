; `r10` moves, and with it every variable.
    r10 += -8  ; error[frame-pointer-written]: `r10` is the frame pointer and cannot be written
    r0 = 0
    exit
