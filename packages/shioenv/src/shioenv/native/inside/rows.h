/* Rows: inputs that one shell runs one after the other; see `rows.c`. */
#pragma once

/* The first byte of a row, which selects how it is run. A NUL ends each row. */
enum {
    ROW_TYPED = 't',         /* in this shell; only the last row */
    ROW_AGAIN = 'a',         /* the same, with its output discarded */
    ROW_BESIDE = 'b',        /* in a newly executed bash */
    ROW_BESIDE_AGAIN = 'c',
    ROW_END = 'e',           /* end the shell of the previous rows, with all its remaining processes */
};

/* Make the input `. /dev/stdin` of the calling bash run rows. A new bash gets `environment` (see `enter_directory`), and
 * starts in the same directory as this one. */
void take_rows(char **environment);

/* Make the input `. /dev/stdin` of the calling bash run lines as they arrive. Before each line the shell dumps its state, and
 * calls prctl(2) with an unused operation. The supervisor answers that call once shared->input holds a line. */
enum { LINE_CALL = 0x53484c4e };
void take_lines(void);

/* The answer is 0 for a line, else the descriptor of a copy of the mounts, which the shell enters before it waits again. */

/* Dump the shell's state to the shared memory. */
void dump_state(void);
