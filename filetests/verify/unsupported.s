; A call through a register.
    r1 = 0
    callx r1  ; error[unsupported]: a call through a register is not served
    r0 = 0
    exit
