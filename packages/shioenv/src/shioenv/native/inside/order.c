/* The order in which the shell's processes start, for runs that request one of the two extremes. The order of concurrent effects
 * is undefined, but an input that behaves the same in both orders mostly does so in all others.
 *
 * Eager: a process that forks continues when all others sleep, so that a pipe is written before it is read. Lazy: a forked process
 * starts when all others sleep, the youngest first, so that a pipe is read before it is written. Only the shell and its forks do
 * this, not processes of other programs. The time for holding processes is limited, per process and per run; after that, they
 * start in any order. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "server.h"

enum { PAUSE_NS = 300000 };
enum { LISTED = 1024, STATUS_MAX = 4096 };

struct entry { uint64_t inode, offset; uint16_t length; uint8_t type; char name[]; };

static int64_t moment(void)
{
    struct timespec now = {0};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static pid_t number_of(const char *name)
{
    pid_t number = 0;
    for (; *name >= '0' && *name <= '9'; name++) number = 10 * number + (*name - '0');
    return *name ? 0 : number;
}

/* The state of a thread, or 0 if it has ended; its whole status in /proc is added to the sum. */
static char look_at(pid_t process, pid_t thread, uint64_t *sum)
{
    static const char mark[] = "\nState:\t";
    char path[64], text[STATUS_MAX];
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)process, (int)thread);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    char state = 0;
    for (ssize_t i = 0; i < length; i++) {
        *sum = (*sum ^ (uint8_t)text[i]) * 0x100000001b3ull;
        if (!state && length - i > (ssize_t)sizeof mark && !memcmp(text + i, mark, sizeof mark - 1))
            state = text[i + (ssize_t)sizeof mark - 1];
    }
    return state;
}

static bool is_held(uint32_t process)
{
    for (unsigned i = 0; i < HELD_MAX; i++)
        if (shared->held[i] == process) return true;
    return false;
}

/* Whether all entries in a directory of /proc sleep: the threads of a process, or, without a process, all processes of the run
 * except held ones. */
static bool all_sleep(pid_t process, uint64_t *sum)
{
    char path[32] = "/proc";
    if (process) snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return true;  /* it has ended */
    _Alignas(struct entry) char list[LISTED];
    bool asleep = true;
    for (long n; asleep && (n = syscall(SYS_getdents64, fd, list, sizeof list)) > 0;)
        for (long at = 0; asleep && at < n;) {
            const struct entry *entry = (const struct entry *)(list + at);
            at += entry->length;
            pid_t number = number_of(entry->name);
            if (!number || (!process && (number < shell_pid || is_held((uint32_t)number)))) continue;
            if (process) {
                char state = look_at(process, number, sum);
                asleep = state != 'R' && state != 'D';
            } else asleep = all_sleep(number, sum);
        }
    close(fd);
    return asleep;
}

/* Whether no younger process is held. Processes that were killed meanwhile do not count. */
static bool is_youngest(uint32_t self)
{
    for (unsigned i = 0; i < HELD_MAX; i++) {
        uint32_t other = shared->held[i];
        uint64_t sum = 0;
        if (other <= self) continue;
        char state = look_at((pid_t)other, (pid_t)other, &sum);
        if (state && state != 'Z' && state != 'X') return false;
        __atomic_compare_exchange_n(&shared->held[i], &other, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    return true;
}

/* Wait until all other processes of the run wait. One check is not enough, because a process may wake another during it. */
static void hold(void)
{
    uint32_t self = (uint32_t)syscall(SYS_getpid), place = 0, nobody = 0;
    while (!__atomic_compare_exchange_n(&shared->held[place], &nobody, self, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        if (nobody = 0, ++place == HELD_MAX) return;
    int64_t never = 0;
    __atomic_compare_exchange_n(&shared->held_until, &never, moment() + ALL_HELD_MS * 1000000ll, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    uint64_t before = 0;
    for (bool slept = false; moment() < shared->held_until;) {
        uint64_t sum = 0xcbf29ce484222325ull;
        bool sleep = is_youngest(self) && all_sleep(0, &sum);
        if (sleep && slept && sum == before) break;
        slept = sleep;
        before = sum;
        nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    }
    shared->held[place] = 0;
}

pid_t fork(void)
{
    static pid_t (*original)(void);
    if (!original) original = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
    pid_t child = original();
    if (shell_pid && child >= 0 && shared->flags & (child ? RUN_EAGER : RUN_LAZY)) hold();
    return child;
}
