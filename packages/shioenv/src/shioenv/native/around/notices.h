/* System calls of inputs: those that are refused, and those that are noticed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* From now on the calling process and its children make no call that the system-call filter refuses. */
void filter_calls(void);

/* From now on certain calls of its children wait until `attend_notice` was told of them. The descriptor
 * to listen to, or -1. */
int notice_calls(void);

/* Hears of one call and lets it go on: which NOTICED_* it is. */
unsigned attend_notice(int listener);
enum {
    NOTICED_MOUNTS = 1, NOTICED_IPC = 2, NOTICED_NAMES = 4, NOTICED_SOCKETS = 8, NOTICED_INIT = 16,
    NOTICED_LINE = 64,      /* the shell that stays waits for its next line: nobody answers before `answer_line` does */
    NOTICED_SETTINGS = 32,  /* of the network: it may have other ones than before, though nobody hears of it */
};

/* The shell that stays, as the host numbers it (0: there is none), and the call in which it waits (0: it does not). */
extern struct resident { pid_t shell; uint64_t call; } resident;

/* Has the shell that stays go on. */
void answer_line(int listener);

/* Has it enter these mounts and wait again; false where it does not get them. */
bool answer_mounts(int listener, int mounts);
