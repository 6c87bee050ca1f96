; What lanes touch together, only some of them are asked.
    r2 = *(u32 *)(r1 + 48)
    if r2 > 3 goto out
    r1 = 64
    r2 = 4
    call 552  ; error[not-together]: `bpf_gpu_warp_sectors` needs all lanes that arrived together, but the branch at instruction 1 sends some of them another way
out:
    r0 = 0
    exit
