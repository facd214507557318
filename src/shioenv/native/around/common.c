#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
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
        if (n <= 0) _exit(0);  /* the peer is gone, and with it the reason to go on */
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

/* Whether the child that is needed has ended. A signal takes a moment. */
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
    if (serving_inputs) _exit(125);  /* the peer waits for answers, not for lines */
    if (needed_is_gone()) error = ESRCH;  /* and not that the host forbids something */
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

void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
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
