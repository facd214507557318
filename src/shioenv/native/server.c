#define _GNU_SOURCE
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shared *shared;

/* Tells the supervisor why this run never happened. The input never has FD_CONTROL. */
static void __attribute__((noreturn)) fail(uint32_t stage)
{
    struct server_reply reply = {.error = errno ? errno : EIO, .stage = stage};
    send(FD_CONTROL, &reply, sizeof reply, MSG_NOSIGNAL);
    _exit(125);
}

/* A child with process id `pid` in the input's pid namespace. glibc caches the thread id, so the
 * kernel is told to store it where glibc looks. */
static pid_t fork_as(pid_t pid)
{
    int *thread_id = NULL;
    prctl(PR_GET_TID_ADDRESS, &thread_id);
    struct clone_args arguments = {
        .flags = CLONE_CHILD_SETTID,
        .child_tid = (uintptr_t)thread_id,
        .exit_signal = SIGCHLD,
        .set_tid = (uintptr_t)&pid,
        .set_tid_size = 1,
    };
    pid_t child;
    /* The kernel frees the number a moment after the last process that used it was seen to be gone. */
    for (int tries = 0; (child = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments)) < 0; tries++) {
        if (errno != EEXIST || tries > 4000) break;
        nanosleep(&(struct timespec){0, 25000}, NULL);
    }
    return child;
}

static int write_number(int fd, unsigned value)
{
    char digits[16];
    int at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10); while (value /= 10);
    return pwrite(fd, digits + at, sizeof digits - (size_t)at, 0) < 0 ? -1 : 0;
}

/* As many processors as the declared machine has, this one among them. */
static void take_processors(uint32_t wanted)
{
    cpu_set_t allowed, taken;
    int here = sched_getcpu();
    if (here < 0 || !wanted || sched_getaffinity(0, sizeof allowed, &allowed)) return;
    CPU_ZERO(&taken);
    CPU_SET(here, &taken);
    for (int cpu = 0; cpu < CPU_SETSIZE && (uint32_t)CPU_COUNT(&taken) < wanted; cpu++)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &taken);
    sched_setaffinity(0, sizeof taken, &taken);
}

/* Puts the calling child into the sandbox: its own copy of the mounts (owned by the inner user
 * namespace, so every mount is locked), the inner user namespace, start directory, descriptors,
 * limits and signals as a login would leave them. */
static void enter_sandbox(int output, int errors)
{
    /* Processes the input starts are numbered from the shell's own id on. */
    if (write_number(FD_LAST_PID, (unsigned)syscall(SYS_getpid))) fail(STAGE_NAMESPACES);
    if (setns(FD_MOUNTS, CLONE_NEWNS) || setns(FD_USER, CLONE_NEWUSER) || unshare(CLONE_NEWNS))
        fail(STAGE_NAMESPACES);
    if (chdir(shared->cwd)) fail(STAGE_DIRECTORY);
    int null = open("/dev/null", O_RDONLY);
    if (null < 0) fail(STAGE_NAMESPACES);
    if (dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0) fail(STAGE_NAMESPACES);
    for (uint32_t i = 0; i < shared->n_rlimits && i < 16; i++) {
        struct rlimit limit = {shared->rlimits[i].soft, shared->rlimits[i].hard};
        if (setrlimit(shared->rlimits[i].resource, &limit)) fail(STAGE_NAMESPACES);
    }
    take_processors(shared->processors);
    /* A fresh bash may still fail to start: exec closes the way to say so. */
    syscall(SYS_close_range, 3u, FD_CONTROL - 1u, 0u);
    syscall(SYS_close_range, FD_CONTROL + (shared->flags & RUN_FRESH ? 1u : 0u), ~0u, 0u);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    setsid();
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_NAME, "bash");
}

static void adopt(int fd, int wanted)
{
    if (dup2(fd, wanted) < 0) _exit(125);
    fcntl(wanted, F_SETFD, FD_CLOEXEC);
    close(fd);
}

void serve(void)
{
    fcntl(FD_CONTROL, F_SETFD, FD_CLOEXEC);
    /* bash's own handler must not reap what this loop waits for */
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    for (;;) {
        struct server_request request;
        union { char bytes[CMSG_SPACE(2 * sizeof(int))]; struct cmsghdr header; } ancillary;
        struct iovec body = {&request, sizeof request};
        struct msghdr message = {
            .msg_iov = &body, .msg_iovlen = 1,
            .msg_control = ancillary.bytes, .msg_controllen = sizeof ancillary.bytes,
        };
        ssize_t length = recvmsg(FD_CONTROL, &message, MSG_CMSG_CLOEXEC);
        if (length < 0 && errno == EINTR) continue;
        if (length != sizeof request) _exit(0);
        int fds[2] = {-1, -1};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header && header->cmsg_type == SCM_RIGHTS)
            memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
        struct server_reply reply = {0};
        if (request.op == SERVER_MOUNTS) {
            adopt(fds[0], FD_MOUNTS);
        } else if (request.op == SERVER_PIDS) {
            if (setns(fds[0], CLONE_NEWPID)) reply.error = errno;
            close(fds[0]);
        } else {
            pid_t child = fork_as((pid_t)request.pid);
            if (child == 0) {
                enter_sandbox(fds[0], fds[1] < 0 ? fds[0] : fds[1]);
                return;
            }
            if (child < 0) reply.error = errno;
            close(fds[0]);
            if (fds[1] >= 0) close(fds[1]);
            if (child > 0) {
                struct rusage usage;
                while (wait4(child, &reply.status, __WALL, &usage) < 0)
                    if (errno != EINTR) { reply.error = errno; break; }
                reply.user_us = (uint64_t)usage.ru_utime.tv_sec * 1000000u + (uint64_t)usage.ru_utime.tv_usec;
                reply.system_us = (uint64_t)usage.ru_stime.tv_sec * 1000000u + (uint64_t)usage.ru_stime.tv_usec;
            }
        }
        if (send(FD_CONTROL, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply) _exit(0);
        /* What the input made its own sibling (CLONE_PARENT) is this process's child: the supervisor
         * sees and kills it, and it is reaped here before anything else runs. */
        while (wait4(-1, NULL, __WALL, NULL) > 0 || errno == EINTR) {}
    }
}

void exec_fresh(char *const environment[])
{
    shared->input[shared->input_length] = 0;
    char *arguments[] = {"bash", "--norc", "--noprofile", "-c", strdup(shared->input), NULL};
    /* execve keeps what is ignored, and an initialised bash ignores SIGQUIT */
    for (int signal_number = 1; signal_number < NSIG; signal_number++) signal(signal_number, SIG_DFL);
    syscall(SYS_execve, "/bin/bash", arguments, environment);
    fail(STAGE_NAMESPACES);
}
