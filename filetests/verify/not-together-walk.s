; A walk over a hash visits what is there at the instant: lanes may make different numbers of rounds.
; map hash table entries=16 key=8 value=8
; budget 100000
    r1 = map[0]
    r2 = subprog[f]
    r3 = 0
    r4 = 0
    call 164
    r0 &= 1
    if r0 == 0 goto out
    r1 = 1
    call 528  ; error[not-together]: `bpf_gpu_warp_sum` needs all lanes that arrived together, but the branch at instruction 8 sends some of them another way
out:
    r0 = 0
    exit
f:
    r0 = 0
    exit
