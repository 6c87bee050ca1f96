; A jump into another function.
    r0 = 0
    goto in  ; error[jumps-out]: the jump goes to instruction 6, outside its function
    exit
    call f
    exit
f:
    r0 = 0
in:
    exit
