#define _GNU_SOURCE
#include "directory.h"
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#define SECOND 1000000000ll
#define MILLISECOND 1000000ll

struct shared *shared;

bool send_with(int socket, const void *body, size_t length, const int *fds, unsigned n)
{
    union { char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))]; struct cmsghdr header; } ancillary = {0};
    struct iovec vector = {(void *)(uintptr_t)body, length};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (n) {
        message.msg_control = ancillary.bytes;
        message.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(header), fds, n * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)length;
}

ssize_t receive_with(int socket, void *body, size_t length, int fds[DESCRIPTORS])
{
    union { char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))]; struct cmsghdr header; } ancillary;
    struct iovec vector = {body, length};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1,
        .msg_control = ancillary.bytes, .msg_controllen = sizeof ancillary.bytes,
    };
    ssize_t n;
    do n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC); while (n < 0 && errno == EINTR);
    for (int i = 0; i < DESCRIPTORS; i++) fds[i] = -1;
    struct cmsghdr *header = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS) memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    return n;
}

/* Report to the supervisor why the input could not run. Inputs do not have FD_CONTROL. */
static void __attribute__((noreturn)) fail(uint32_t stage)
{
    struct server_reply reply = {.error = errno ? errno : EIO, .stage = stage};
    send(FD_CONTROL, &reply, sizeof reply, MSG_NOSIGNAL);
    _exit(125);
}

/* Call clone3 until its process id is free, or give up after TRIES. The kernel frees an id a moment after the last process with
 * it is gone from all lists, and later on a busy host. */
static long clone_patiently(struct clone_args *arguments)
{
    enum { TRIES = 4000 };
    long child;
    for (int tries = 0; (child = syscall(SYS_clone3, arguments, sizeof *arguments)) < 0; tries++) {
        if (errno != EEXIST || tries > TRIES) break;
        nanosleep(&(struct timespec){0, 25000}, NULL);
    }
    return child;
}

/* Fork a child with process id `pid` in the input's pid namespace (0: the next one). glibc caches the thread id, so the kernel
 * must store the new id in glibc's cache. */
static pid_t fork_as(pid_t pid)
{
    int *thread_id = NULL;
    prctl(PR_GET_TID_ADDRESS, &thread_id);
    struct clone_args arguments = {
        .flags = CLONE_CHILD_SETTID,
        .child_tid = (uintptr_t)thread_id,
        .exit_signal = SIGCHLD,
        .set_tid = pid ? (uintptr_t)&pid : 0,
        .set_tid_size = pid != 0,
    };
    return (pid_t)clone_patiently(&arguments);
}

/* Wait until all ids from `first` to `last` are free. For each, ask for a process with that id and for its descriptor at an invalid
 * address: if the id is free, the kernel takes it, fails to store the descriptor, and frees the id again. */
static void await_numbers(pid_t first, pid_t last)
{
    struct clone_args arguments = {
        .flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_PIDFD,
        .pidfd = 1,
        .exit_signal = SIGCHLD,
        .set_tid_size = 1,
    };
    for (pid_t number = first; number <= last; number++) {
        arguments.set_tid = (uintptr_t)&number;
        clone_patiently(&arguments);
        if (errno != EFAULT) return;  /* occupied for good, or another kind of failure: do not try all the others */
    }
}

/* The last id given to a process or thread; 0 on failure. */
static uint32_t last_number(void)
{
    char digits[16] = "";
    if (pread(FD_LAST_PID, digits, sizeof digits - 1, 0) <= 0) return 0;
    uint32_t last = 0;
    for (const char *digit = digits; *digit >= '0' && *digit <= '9'; digit++) last = 10 * last + (uint32_t)(*digit - '0');
    return last;
}

/* The number of ids given since `first`. */
static uint32_t numbers_from(uint32_t first)
{
    uint32_t last = last_number();
    return last < first ? 0 : last - first + 1;
}

static int write_number(int fd, unsigned value)
{
    char digits[16];
    int at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10); while (value /= 10);
    return pwrite(fd, digits + at, sizeof digits - (size_t)at, 0) < 0 ? -1 : 0;
}

/* Restrict this process to the declared number of processors, including the current one. */
__attribute__((cold)) static void take_processors(uint32_t wanted)
{
    cpu_set_t allowed, taken;
    unsigned here;
    /* Direct system calls, because the system's library returns the declared machine's processors. */
    CPU_ZERO(&allowed);
    if (!wanted || syscall(SYS_getcpu, &here, NULL, NULL) || syscall(SYS_sched_getaffinity, 0, sizeof allowed, &allowed) < 0) return;
    CPU_ZERO(&taken);
    CPU_SET(here, &taken);
    for (int cpu = 0; cpu < CPU_SETSIZE && (uint32_t)CPU_COUNT(&taken) < wanted; cpu++)
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &taken);
    syscall(SYS_sched_setaffinity, 0, sizeof taken, &taken);
}

/* The declared limit on processes. The kernel counts fork servers of all sandboxes against one user, so they have a higher one. */
static struct rlimit declared_processes;

/* Raise the soft limit on this server's processes to the hard one, which a declared machine has as well. */
__attribute__((cold)) static void allow_more_servers(void)
{
    if (syscall(SYS_prlimit64, 0, RLIMIT_NPROC, NULL, &declared_processes)) return;
    struct rlimit most = {declared_processes.rlim_max, declared_processes.rlim_max};
    syscall(SYS_prlimit64, 0, RLIMIT_NPROC, &most, NULL);
}

/* The kernel's time, without the library's declared clock. */
static int64_t kernel_time(clockid_t clock)
{
    struct timespec now = {0};
    syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

/* Create a time namespace for the next child, with the declared uptime as its time since boot. It starts at the last tick of the
 * clock of file timestamps, so that files of a run are never older than the run. It starts at a whole millisecond, so that programs
 * can compute its difference from real time exactly (library/clock.c). */
__attribute__((cold)) static int renew_clock(int64_t uptime, int64_t offset)
{
    if (unshare(CLONE_NEWTIME)) return -1;
    int64_t booted = 0, nearest = INT64_MAX;
    for (int tries = 0; !offset && tries < 50 && nearest > MILLISECOND / 50; tries++) {
        int64_t before = kernel_time(CLOCK_BOOTTIME), real = kernel_time(CLOCK_REALTIME);
        int64_t took = kernel_time(CLOCK_BOOTTIME) - before;
        if (took < nearest) booted = real - (before + took / 2), nearest = took;
    }
    int64_t tick = kernel_time(CLOCK_REALTIME_COARSE);
    if (!offset) offset = uptime * SECOND - (tick - tick % MILLISECOND - booted);
    long long seconds = offset / SECOND, rest = offset % SECOND;
    if (rest < 0) rest += SECOND, seconds--;
    char text[128];
    int length = snprintf(text, sizeof text, "boottime %lld %lld\nmonotonic %lld %lld\n", seconds, rest, seconds, rest);
    int fd = openat(FD_PROC, "self/timens_offsets", O_WRONLY | O_CLOEXEC);
    ssize_t written = fd < 0 ? -1 : write(fd, text, (size_t)length);
    if (fd >= 0) close(fd);
    return written == length ? 0 : -1;
}

/* Report the stage of the calling process, and its process id on the host. */
static void tell_stage(uint32_t stage)
{
    char self[32] = "";
    if (readlinkat(FD_PROC, "self", self, sizeof self - 1) < 0) fail(STAGE_NAMESPACES);
    struct server_reply reply = {.stage = stage};
    for (const char *digit = self; *digit; digit++) reply.status = reply.status * 10 + (*digit - '0');
    if (send(FD_CONTROL, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply) fail(STAGE_NAMESPACES);
}

/* Enter the inner user namespace and a copy of the layer's mounts that it owns, in which every mount is locked. The supervisor gets
 * the copy, for reuse until an input may have changed it. */
static void enter_namespaces(int copy)
{
    if (copy >= 0) {
        if (setns(FD_USER, CLONE_NEWUSER) || setns(copy, CLONE_NEWNS)) fail(STAGE_NAMESPACES);
        return;
    }
    if (setns(FD_MOUNTS, CLONE_NEWNS) || setns(FD_USER, CLONE_NEWUSER) || unshare(CLONE_NEWNS)) fail(STAGE_NAMESPACES);
    /* The supervisor opens the copy itself, because descriptors in flight are limited per user of the host, and inputs of other
     * sandboxes may have exhausted that limit. */
    char go;
    tell_stage(STAGE_COPIED);
    if (recv(FD_CONTROL, &go, 1, 0) != 1) fail(STAGE_NAMESPACES);
}

/* Put the calling child into the sandbox: namespaces, start directory, and descriptors and signals as after a login. */
static void enter_sandbox(const struct server_request *how, int input, int output, int errors, int copy, int start,
                          char **environment)
{
    bool on_terminal = how->flags & RUN_ON_TERMINAL;
    /* Processes of the input get ids that follow the shell's id. */
    if (how->pid && write_number(FD_LAST_PID, how->pid)) fail(STAGE_NAMESPACES);
    if (how->flags & RUN_BESIDE && unshare(CLONE_NEWTIME)) fail(STAGE_NAMESPACES);  /* with the same time, for its children */
    if (!(how->flags & RUN_APART)) enter_namespaces(copy);
    if (how->flags & RUN_STAYS) tell_stage(STAGE_STARTED);
    if (syscall(SYS_setresuid, 0, 0, 0)) fail(STAGE_NAMESPACES);
    if (syscall(SYS_prlimit64, 0, RLIMIT_NPROC, &declared_processes, NULL)) fail(STAGE_NAMESPACES);
    if (enter_directory(shared->cwd, environment)) {
        if (start < 0 || syscall(SYS_fchdir, start)) fail(STAGE_DIRECTORY);
        shared->flags |= RUN_FRESH;  /* a fresh bash itself reports a missing directory */
    }
    if (input < 0) input = on_terminal ? output : open("/dev/null", O_RDONLY);
    if (input < 0) fail(STAGE_NAMESPACES);
    if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0) fail(STAGE_NAMESPACES);
    setsid();
    if (on_terminal && ioctl(0, TIOCSCTTY, 0)) fail(STAGE_NAMESPACES);
    take_processors(shared->processors);
    /* Starting a fresh bash may still fail, so FD_CONTROL stays open until exec closes it. */
    syscall(SYS_close_range, 3u, FD_CONTROL - 1u, 0u);
    syscall(SYS_close_range, FD_CONTROL + (shared->flags & RUN_FRESH ? 1u : 0u), ~0u, 0u);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_NAME, "bash");
}

__attribute__((cold)) static void close_all(int fds[DESCRIPTORS])
{
    for (int i = 0; i < DESCRIPTORS; i++) {
        if (fds[i] >= 0) close(fds[i]);
        fds[i] = -1;
    }
}

/* The persistent shell, or 0. */
static pid_t staying;

static void wait_for(pid_t child, struct server_reply *reply)
{
    while (waitpid(child, &reply->status, __WALL) < 0)
        if (errno != EINTR) { reply->error = errno; break; }
    reply->processes = numbers_from((uint32_t)child);
}

void serve(char **environment)
{
    fcntl(FD_CONTROL, F_SETFD, FD_CLOEXEC);
    /* Inputs see this process as their shell's parent. Signals and limits check its real and saved ids, which no input can
     * have; its effective ids determine its permissions. */
    struct server_reply ready = {0};
    allow_more_servers();
    if (syscall(SYS_setresuid, NOBODY_INSIDE, 0, NOBODY_INSIDE)) ready.error = errno;
    send(FD_CONTROL, &ready, sizeof ready, MSG_NOSIGNAL);
    /* bash's own handler must not reap children that this loop waits for */
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    uint32_t most = 0;  /* the highest id given since the last shell with a fixed id, or beside a persistent shell */
    for (;;) {
        struct server_request request;
        int fds[DESCRIPTORS];
        if (receive_with(FD_CONTROL, &request, sizeof request, fds) != sizeof request) _exit(0);
        struct server_reply reply = {0};
        if (request.op == SERVER_JOIN) {
            if (setns(fds[0], (int)request.flags)) reply.error = errno;
        } else if (request.op == SERVER_WAIT) {
            wait_for(staying, &reply);
            staying = 0;
        } else if (request.op == SERVER_NUMBER) {
            if (request.pid && write_number(FD_LAST_PID, request.pid)) reply.error = errno;
            reply.processes = numbers_from((uint32_t)request.flags);
        } else {
            bool separate = request.flags & RUN_SEPARATE;
            unsigned next = separate ? 2 : 1;
            int copy = request.flags & RUN_IN_COPY ? fds[next++] : -1;
            int input = request.flags & RUN_WITH_STDIN ? fds[next++] : -1;
            int start = request.flags & RUN_WITH_START ? fds[next] : -1;
            uint32_t last = last_number();
            if (last > most) most = last;
            if (request.pid) {
                await_numbers((pid_t)request.pid + 1, (pid_t)most);  /* its processes get the ids that follow its own */
                last = most = 0;
            }
            if (shared->uptime && renew_clock(shared->uptime, shared->clock)) reply.error = errno ? errno : EIO;
            int entering[2] = {-1, -1};
            if (request.flags & RUN_STAYS && syscall(SYS_pipe2, entering, O_CLOEXEC)) reply.error = errno;
            pid_t child = reply.error ? -1 : fork_as((pid_t)request.pid);
            if (child == 0) {
                enter_sandbox(&request, input, fds[0], fds[separate], copy, start, environment);
                return;
            }
            if (child < 0 && !reply.error) reply.error = errno;
            close_all(fds);  /* otherwise the pipe would not end with its last writer */
            if (entering[1] >= 0) close(entering[1]);
            char nothing;
            if (child > 0 && request.flags & RUN_STAYS) {
                /* Until the child closes its end, it may wait for a message. After that it reports itself, and the kernel reports its
                 * end. */
                while (read(entering[0], &nothing, 1) < 0 && errno == EINTR) {}
                close(entering[0]);
                staying = child;
                continue;
            }
            if (entering[0] >= 0) close(entering[0]);
            if (child > 0) wait_for(child, &reply);
            if (last) {
                most = last_number();
                write_number(FD_LAST_PID, last);  /* as if no process had run beside the shell */
            }
        }
        close_all(fds);
        if (send(FD_CONTROL, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply) _exit(0);
        /* A sibling that the input created (CLONE_PARENT) is a child of this process. The supervisor finds and kills it, and it is
         * reaped here before anything else runs. */
        while (!staying && (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)) {}
    }
}

void exec_bash(const char *text, char *const environment[])
{
    char *input = (char *)(uintptr_t)text, *arguments[] = {"bash", "--norc", "--noprofile", "-c", input, NULL, NULL};
    if (*input == '-' || *input == '+') arguments[4] = "--", arguments[5] = input;  /* not an option */
    /* execve keeps ignored signals, and an initialised bash ignores SIGQUIT */
    for (int signal_number = 1; signal_number < NSIG; signal_number++) signal(signal_number, SIG_DFL);
    syscall(SYS_execve, "/bin/bash", arguments, environment);
}

void exec_fresh(char *const environment[])
{
    shared->input[shared->input_length] = 0;
    exec_bash(shared->input, environment);
    fail(STAGE_NAMESPACES);
}
