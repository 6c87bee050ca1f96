; bpftrace's `count()`: look-up, add, write back. One addition, and an insertion that does not overwrite.
; map hash key=8 value=8 entries=16
r6 = 1
*(u64 *)(r10 - 16) = r6
r1 = map[0]
r2 = r10
r2 += -16
call 1
if r0 == 0 goto absent
r6 = *(u64 *)(r0 + 0)
r6 += 1
absent: *(u64 *)(r10 - 8) = r6
r1 = map[0]
r2 = r10
r2 += -16
r3 = r10
r3 += -8
r4 = 0
call 2
r0 = 0
exit
