/* Shared by all parts of the supervisor: the connection to the peer, failures, small helpers. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

extern int control;    /* the connection to the peer, which is the Python side */
extern int host_proc;  /* the host's /proc, reachable only through this descriptor */

bool read_all(int fd, void *bytes, size_t length);
void write_all(int fd, const void *bytes, size_t length);

/* Report the failed step to the peer ("E<errno> <step>\n") and exit; once inputs are served, only exit. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
extern bool serving_inputs;
extern pid_t needed;  /* the child whose death would explain a failure, or 0 */

#define CHECK(call, ...) do { if ((call) < 0) die(__VA_ARGS__); } while (0)

/* Make this process end when its parent ends, even while it waits or is stopped. Must be called again after a change of
 * credentials, because the kernel then resets this setting. */
void end_with_caller(void);

/* Wait until the descriptor on which a process answers is readable. Return false if that process stays stopped. Exit if the
 * peer is gone. */
bool await_answer(int fd, int process);

void close_fd(int *fd);
/* Read a file of the host's /proc as text, up to the size of the buffer; an empty text if it cannot be read. */
void read_proc(char *text, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool is_capable(int process, unsigned capability);  /* one of linux/capability.h */
void write_file(int directory, const char *path, const char *text);
void do_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data);
void join_namespace(int fd, int kind, const char *name);
