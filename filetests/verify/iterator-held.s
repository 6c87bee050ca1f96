; An iterator that is not destroyed.
    r2 = 0
    r3 = 3
    r1 = r10
    r1 += -8
    call kfunc[1]
    r0 = 0
    exit  ; error[iterator-held]: the iterator made at instruction 4 is not destroyed on this path
