/* Rows that are run one after the other; see `rows.c`. */
#pragma once

/* How a row is run: its first byte. A NUL ends each. */
enum {
    ROW_TYPED = 't',         /* in this shell: the last one, at most */
    ROW_AGAIN = 'a',         /* the same, and what it prints is lost */
    ROW_BESIDE = 'b',        /* in a newly executed bash */
    ROW_BESIDE_AGAIN = 'c',
    ROW_END = 'e',           /* the shell of the rows before it ends, with every process that it left behind */
};

/* Has the input `. /dev/stdin` of the calling bash run rows; `environment` is what a new bash gets. */
void take_rows(char *const environment[]);
