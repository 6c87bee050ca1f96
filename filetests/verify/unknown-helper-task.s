; A thread of a GPU is no task.
    call 35  ; error[unknown-helper]: `bpf_get_current_task` of Linux (helper 35) is not served
    r0 = 0
    exit
