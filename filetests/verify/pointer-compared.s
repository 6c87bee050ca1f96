; Whether one pointer is larger than another tells where memory is.
    if r1 > 5 goto +0  ; error[pointer-compared]: `r1` is the context; only `==` and `!=` with 0 compare pointers
    r0 = 0
    exit
