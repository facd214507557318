/* What answers whoever connects: the web server at the other end of the input's cable, and the machine's own listeners. */
#pragma once

#include "protocol.h"

enum { MOST_LISTENERS = 1 + MOST_SOCKETS };

/* What is listened to: a descriptor, and what is said to whoever connects. That is NULL for the web. */
struct listener { int fd; const char *banner; };

/* Answers on each listener, one connection at a time, for ever: HTTP/1.1 with the files beneath `root`, or a banner and no
 * more. Every answer depends on the request and the files alone: the date it gives is `date`. */
void answer_all(const struct listener listeners[], int n, int root, const char *date) __attribute__((noreturn));
