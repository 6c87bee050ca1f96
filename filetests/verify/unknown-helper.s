; `bpf_probe_read` of Linux: kernel memory means nothing on a GPU.
    call 4  ; error[unknown-helper]: helper 4 is not known
    r0 = 0
    exit
