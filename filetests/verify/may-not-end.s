; A loop in which nothing changes.
    r0 = 0
again:
    goto again  ; error[may-not-end]: the loop may not end: nothing changes between two rounds of it
