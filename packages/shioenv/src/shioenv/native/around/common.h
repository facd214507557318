/* What every part of the supervisor uses: its peer, failures, small helpers. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

extern int control;    /* the Python side */
extern int host_proc;  /* the host's /proc, reachable by descriptor alone */

bool read_all(int fd, void *bytes, size_t length);
void write_all(int fd, const void *bytes, size_t length);

/* Tells the peer which step failed ("E<errno> <step>\n") and ends; once inputs are served, just ends. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
extern bool serving_inputs;
extern pid_t needed;  /* the child whose death explains what fails, or 0 */

#define CHECK(call, ...) do { if ((call) < 0) die(__VA_ARGS__); } while (0)

/* Has the end of the process that started this one end it too, whatever it waits for, and even while it is stopped. To be
 * called again after the rights of this process changed: the kernel forgets it then. */
void end_with_caller(void);

/* Waits until a descriptor can be read on which a process answers. False where the process is stopped, and stays so. Ends
 * this process where the peer is gone. */
bool await_answer(int fd, int process);

void close_fd(int *fd);
/* Reads a file of the host's /proc as a text, as much as there is room for; an empty one where it cannot be read. */
void read_proc(char *text, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool is_capable(int process, unsigned capability);  /* one of linux/capability.h */
void write_file(int directory, const char *path, const char *text);
void do_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data);
void join_namespace(int fd, int kind, const char *name);
