#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

int control, host_proc = -1;
bool serving_inputs;
pid_t needed;

void write_all(int fd, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length) {
        ssize_t n = write(fd, at, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0);  /* the peer is gone, so there is nothing left to do */
        at += n;
        length -= (size_t)n;
    }
}

bool read_all(int fd, void *bytes, size_t length)
{
    char *at = bytes;
    while (length) {
        ssize_t n = read(fd, at, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

/* Whether the needed child has ended. A signal takes a moment to arrive. */
static bool needed_is_gone(void)
{
    if (!needed) return false;
    for (int tries = 0; tries < 100; tries++) {
        if (waitpid(needed, NULL, WNOHANG)) return true;
        usleep(1000);
    }
    return false;
}

void die(const char *format, ...)
{
    int error = errno;
    if (serving_inputs) _exit(125);  /* the peer expects replies, not lines */
    if (needed_is_gone()) error = ESRCH;  /* instead of an errno that suggests a restriction of the host */
    char line[512];
    int length = snprintf(line, sizeof line, "E%d ", error);
    va_list more;
    va_start(more, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, more);
    va_end(more);
    line[length++] = '\n';
    write_all(control, line, (size_t)length);
    _exit(125);
}

static pid_t caller;

static void end_without_caller(int number)
{
    (void)number;
    if (getppid() != caller) _exit(0);
}

/* The signal is SIGCONT, which continues a stopped process and has no effect on others. The kernel sends it when the parent
 * thread ends, although the parent process may continue. */
void end_with_caller(void)
{
    if (!caller) caller = getppid();
    sigaction(SIGCONT, &(struct sigaction){.sa_handler = end_without_caller, .sa_flags = SA_RESTART}, NULL);
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    if (getppid() != caller) _exit(0);
}

/* Whether a signal stopped the process. Under a debugger its state would be `t`. */
static bool is_stopped(int process)
{
    char text[512];
    read_proc(text, sizeof text, "%d/stat", process);
    const char *name_end = strrchr(text, ')');  /* a process can choose its name */
    return name_end && name_end[1] && name_end[2] == 'T';
}

bool await_answer(int fd, int process)
{
    enum { LOOKS = 4, LOOK_MS = 1000 };
    for (int stopped = 0; stopped < LOOKS;) {
        struct pollfd watched[2] = {{fd, POLLIN, 0}, {control, POLLRDHUP, 0}};
        poll(watched, 2, LOOK_MS);
        if (watched[0].revents) return true;
        if (watched[1].revents) _exit(0);
        stopped = is_stopped(process) ? stopped + 1 : 0;
    }
    return false;
}

void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void read_proc(char *text, size_t room, const char *format, ...)
{
    char path[64];
    va_list more;
    va_start(more, format);
    vsnprintf(path, sizeof path, format, more);
    va_end(more);
    int fd = openat(host_proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);
    close_fd(&fd);
    text[n < 0 ? 0 : n] = 0;
}

bool is_capable(int process, unsigned capability)
{
    char text[4096];
    read_proc(text, sizeof text, "%d/status", process);
    const char *effective = strstr(text, "\nCapEff:");
    return effective && strtoull(effective + 8, NULL, 16) >> capability & 1;
}

void write_file(int directory, const char *path, const char *text)
{
    int fd = openat(directory, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) die("write %s", path);
    close(fd);
}

void do_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data)
{
    CHECK(mount(source, target, type, flags, data), "mount %s on %s (%s)", type ? type : source ? source : "again", target,
          data ? data : "");
}

void join_namespace(int fd, int kind, const char *name) { CHECK(setns(fd, kind), "join %s namespace", name); }
