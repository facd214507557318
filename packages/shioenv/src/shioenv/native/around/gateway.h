/* The servers that inputs can connect to: the gateway's web server, and the machine's declared listeners. */
#pragma once

#include "protocol.h"

enum { MOST_LISTENERS = 1 + MOST_SOCKETS };

/* A listening socket, and the banner sent to clients; NULL for the web server. */
struct listener { int fd; const char *banner; };

/* Serve all listeners forever, one connection at a time: HTTP/1.1 with the files below `root`, or a banner. Answers depend
 * only on the request and the files; their date is `date`. */
void answer_all(const struct listener listeners[], int n, int root, const char *date) __attribute__((noreturn));
