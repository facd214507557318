/* Files of /proc in which single lines or words are shown otherwise. */
#pragma once

#include "text.h"

/* What a process is and may: `status`, in which the declared kernel has no line of a newer one's and nothing filters calls, and
 * `limits`, in which no limit keeps another one's declared value. */
void show_status(struct output *shown, const char *text);
void show_limits(struct output *shown, const char *text);

/* What a process does: `stat`. Where the machine has one processor, it names the first, as `status` does. */
void show_stat(struct output *shown, const char *text);

/* Which sockets are there: `tcp` and `tcp6`, in which those of the machine's processes have the numbers that the processes'
 * own files say. `family` is 4 or 6. */
void show_sockets(struct output *shown, const char *text, int family);

/* The number that is shown for a socket of the machine's processes, or 0. */
uint64_t declared_inode(int family, uint64_t port, uint64_t peer_port);
