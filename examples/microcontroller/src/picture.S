/* The picture that is read, from flash: the 784 grey values at the end of digit.pgm. A device has a camera instead. */
    .section .rodata.picture, "a"
    .globl picture
    .type picture, %object
picture:
    .incbin "digit.pgm", 13
    .size picture, . - picture
