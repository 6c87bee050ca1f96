; A map that the object does not have.
    r1 = map[9]  ; error[no-such-map]: map 9 does not exist, the object has 0
    r0 = 0
    exit
