/* Files of /proc in which single lines or words are replaced. */
#pragma once

#include "text.h"

/* `status` without lines of kernels newer than the declared one and without a filter of calls, and `limits` with the declared
 * values. */
void show_status(struct output *shown, const char *text);
void show_limits(struct output *shown, const char *text);

/* `stat` of a process. If the machine has one processor, it names the first, like `status`. */
void show_stat(struct output *shown, const char *text);

/* `tcp` and `tcp6`, in which sockets of the machine's processes have the inode numbers that the files of these processes show.
 * `family` is 4 or 6. */
void show_sockets(struct output *shown, const char *text, int family);

/* The declared inode number of a socket of the machine's processes, or 0. */
uint64_t declared_inode(int family, uint64_t port, uint64_t peer_port);
