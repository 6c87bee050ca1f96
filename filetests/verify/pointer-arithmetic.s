; The context pointer doubled.
    r1 *= 2  ; error[pointer-arithmetic]: `*=` on `r1`, which is the context
    r0 = 0
    exit
