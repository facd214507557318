/* System calls of inputs: those that are refused, and those that are noticed. */
#pragma once

#include <linux/seccomp.h>

/* From now on the calling process and its children make no call that the system-call filter refuses. */
void filter_calls(void);

/* From now on certain calls of its children wait until `attend_notice` (notices.h) has answered them. The descriptor
 * to listen to, or -1. */
int notice_calls(void);

/* What a noticed call may do: */
unsigned noticed_as(const struct seccomp_data *call);
enum {
    NOTICED_MOUNTS = 1, NOTICED_IPC = 2, NOTICED_NAMES = 4, NOTICED_SOCKETS = 8, NOTICED_INIT = 16,
    NOTICED_LINE = 64,      /* the shell that stays waits for its next line: nobody answers before `answer_line` does */
    NOTICED_SETTINGS = 32,  /* of the network: it may have other ones than before, though nobody hears of it */
};
