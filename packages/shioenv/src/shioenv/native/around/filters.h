/* Seccomp filters for inputs: calls that are refused, and calls that notify the supervisor. */
#pragma once

#include <linux/seccomp.h>

/* Install the filter that refuses system calls, for the calling process and its children. */
void filter_calls(void);

/* Make certain calls of the process's children wait until `attend_notice` (notices.h) answers them. Return the descriptor
 * of the notifications, or -1. */
int notice_calls(void);

/* The possible effects of a noticed call: */
unsigned noticed_as(const struct seccomp_data *call);
enum {
    NOTICED_MOUNTS = 1, NOTICED_IPC = 2, NOTICED_NAMES = 4, NOTICED_SOCKETS = 8, NOTICED_INIT = 16,
    NOTICED_LINE = 64,      /* the persistent shell waits for its next line; only `answer_line` answers this call */
    NOTICED_SETTINGS = 32,  /* settings of the network may have changed without an event */
};
