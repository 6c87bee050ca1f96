; A pointer to a stack that is gone.
    call f
    r0 = 0
    exit
f:
    r0 = r10
    exit  ; error[stack-returned]: `r0` is a pointer into the stack of the function that returns
