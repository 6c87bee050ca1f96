; What a group makes together is the same in all its lanes: a branch on it parts nobody.
    r1 = *(u32 *)(r1 + 48)
    call 528
    r6 = r0
    if r6 > 3 goto out
    r1 = r6
    call 525
out:
    r0 = 0
    exit
