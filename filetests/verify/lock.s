; `bpf_spin_lock` of Linux.
; map array counts value=8 entries=16
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    r1 = r0
    call 93  ; error[lock]: `bpf_spin_lock` is not served: a lane that holds a lock waits for the lanes of its warp that wait for the lock
    r0 = 0
    exit
