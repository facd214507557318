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

/* Has the input `. /dev/stdin` of the calling bash run rows. A new bash gets `environment` (see `enter_directory`), and
 * starts where this one did. */
void take_rows(char **environment);

/* Has the input `. /dev/stdin` of the calling bash run lines as they come. Before each the shell says what it is, and makes a
 * call of prctl(2) that no kernel has: the supervisor answers once there is a line in the place of the input. */
enum { LINE_CALL = 0x53484c4e };
void take_lines(void);

/* The answer is 0 where a line is there, else a descriptor: of a copy of the mounts, which the shell enters, and waits again. */

/* What the shell is goes to the shared memory. */
void dump_state(void);
