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

/* The answer of the call is the descriptor of a copy of the mounts, which the shell enters before it waits again, or 0. Then
 * shared->call_answer says what to do. After all but the first two the shell waits again. */
enum {
    LINE_RUN,                /* the line in shared->input */
    LINE_LAST,               /* the same, as the last one of `bash -c`, with which the shell ends */
    LINE_DESCRIBE,           /* fill shared->node */
    LINE_PREPARE,            /* take the kernel state and the areas of shared->node */
    LINE_SETTLE,             /* wait with the memory that the supervisor wrote, that of a shell that waited here */
    LINE_CONTINUE,           /* continue with this memory, and LINE_RUN */
    LINE_CONTINUE_LAST,      /* the same, and LINE_LAST */
};

/* Show a text in the shell's arguments and variables as the input of its `bash -c`. */
void show_input(const char *text);

/* Dump the shell's state to the shared memory. */
void dump_state(void);
