; The rank is another in each lane.
    call 523
    if r0 == 0 goto out
    r1 = 1
    call 528  ; error[not-together]: `bpf_gpu_warp_sum` needs all lanes that arrived together, but the branch at instruction 1 sends some of them another way
out:
    r0 = 0
    exit
