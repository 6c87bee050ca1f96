; The number of an open-coded iterator is the iterator.
    r2 = 0
    r3 = 3
    r1 = r10
    r1 += -8
    call kfunc[1]
    r1 = r10
    r1 += -8
    call kfunc[2]
    if r0 == 0 goto out
    *(u32 *)(r0 + 0) = 1  ; error[number-written]: write of 4 bytes at the number that an iterator gave: it may only be read
out:
    r1 = r10
    r1 += -8
    call kfunc[3]
    r0 = 0
    exit
