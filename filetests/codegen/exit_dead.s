; map array value=8 entries=1
; What follows the exit is dead, and so is what follows a function that never returns.
    r6 = *(u32 *)(r1 + 24)
    r7 = map[0][0] + 0
    r8 = 1
    if r6 > 9 goto count
    call 507
    goto after
count:
    lock *(u64 *)(r7 + 0) += r8
after:
    if r6 > 20 goto out
    call never
    r0 = *(u64 *)(r7 + 0)
out:
    r0 = 0
    exit
never:
    call 507
    r0 = 0
    exit
