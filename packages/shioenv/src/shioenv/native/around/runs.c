#define _GNU_SOURCE
#include "runs.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../inside/rows.h"
#include "common.h"
#include "configuration.h"
#include "filters.h"
#include "forkserver.h"
#include "mounts.h"
#include "namespaces.h"
#include "notices.h"
#include "processes.h"
#include "terminal.h"
#include "traces.h"
#include "uptime.h"
#include "usage.h"

enum { PAUSE_NS = 1000000000 };  /* shorter pauses count as time of the input */
enum { LONG_NS = 1000000 };  /* the time for freezing a layer */

int64_t now_ns(int clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* The total time for which this process waited for a processor; -1: unknown. */
static int64_t waited_for_processor(void)
{
    static int statistics = -1;
    char text[128];
    long long waited;
    unsigned long times;
    if (statistics < 0) statistics = openat(host_proc, "self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = statistics < 0 ? -1 : pread(statistics, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    return sscanf(text, "%*u %lld %lu", &waited, &times) == 2 && times ? waited : -1;
}

/* The part of a delay in which this process was stopped, rather than waiting for a processor that inputs or the host keep busy.
 * `before` is the waiting time before the delay, and is updated. */
static int64_t stopped_ns(int64_t late, int64_t *before)
{
    int64_t waited = waited_for_processor(), stopped = late - (waited - *before);
    bool known = waited >= 0 && *before >= 0;
    *before = waited;
    return known && stopped > PAUSE_NS ? stopped : 0;
}

/* Read once; false at end of file. */
static bool read_channel(struct channel *channel, uint32_t keep)
{
    static char bytes[1 << 16];
    ssize_t n = read(channel->fd, bytes, sizeof bytes);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    channel->seen += (uint64_t)n;
    size_t room = keep > channel->kept.length ? keep - channel->kept.length : 0;
    buffer_add(&channel->kept, bytes, (size_t)n < room ? (size_t)n : room);
    return true;
}

bool is_flood(const struct channel channels[2], const struct request *request)
{
    return channels[0].seen + channels[1].seen > request->drain_max;
}

/* Write as much as the pipe accepts; close it after the last byte, or when it has no reader. */
static void fill_pipe(struct feed *feed)
{
    ssize_t n = write(feed->fd, feed->next, feed->left);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) feed->next += n, feed->left -= (size_t)n;
    if (n < 0 || !feed->left) close_fd(&feed->fd);
}

/* Counts of samples of a run: all; those in which it was busy (running, waiting for a disk, or with processor time used since the
 * previous sample, because a process's state is that of its first thread only); and the latest consecutive idle ones. */
struct looks { unsigned all, busy, asleep; uint64_t cpu_ms; };

enum { MANY_LOOKS = 10 };

/* Whether a run that timed out would not have benefited from more processor time: it slept in nearly all samples, or, given
 * enough samples, in the whole second half. */
static bool waited(const struct looks *looks)
{
    if (!looks->all) return false;
    return looks->busy * 10 <= looks->all || (looks->all >= MANY_LOOKS && looks->asleep * 2 >= looks->all);
}

/* Sample the resource usage of a run. Return the flag of an exceeded limit, or 0. */
static uint32_t look(const struct watched *run, struct looks *looks)
{
    struct reply *reply = run->reply;
    struct usage used = usage_now();
    bool busy = used.busy || (looks->all && used.cpu_ms > looks->cpu_ms);
    looks->all++;
    looks->busy += busy;
    looks->asleep = busy ? 0 : looks->asleep + 1;
    looks->cpu_ms = used.cpu_ms;
    if (used.threads >= config.processes) reply->flags |= REPLY_PROCESSES;
    if (used.cpu_ms > config.cpu_ms + run->cpu_before_ms) return REPLY_CPU;
    if (used.bytes > run->request->memory_max) return REPLY_MEMORY;
    if (!host_is_short_of_memory()) return 0;
    reply->error = ENOMEM;  /* it is unknown which process used it, so the run is not recorded */
    return REPLY_MEMORY;
}

static int open_mounts(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "%d/ns/mnt", (int)pid);
    return openat(host_proc, path, O_RDONLY | O_CLOEXEC);
}

void read_channels(struct channel channels[2], const struct request *request)
{
    for (int i = 0; i < 2; i++) {
        uint64_t seen;
        do {
            seen = channels[i].seen;
            if (channels[i].fd >= 0 && !read_channel(&channels[i], request->output_max)) close_fd(&channels[i].fd);
        } while (channels[i].seen != seen && !is_flood(channels, request));
    }
}

/* Let background processes of a line continue for a while; effects in that time are attributed to the line. */
static unsigned settle(const struct watched *run)
{
    int64_t until = now_ns(CLOCK_MONOTONIC) + run->request->background_ms * 1000000ll;
    unsigned noticed = 0;
    for (;;) {
        int newcomer = open_newcomer();
        if (newcomer >= 0) run->reply->flags |= REPLY_OUTLIVED;
        int64_t left = newcomer < 0 ? 0 : until - now_ns(CLOCK_MONOTONIC);
        read_channels(run->channels, run->request);
        if (left <= 0 || is_flood(run->channels, run->request)) {
            close_fd(&newcomer);
            return noticed;
        }
        struct pollfd watched[5] = {
            {notices, POLLIN, 0}, {control, POLLRDHUP, 0}, {newcomer, POLLIN, 0},
            {run->channels[0].fd, POLLIN, 0}, {run->channels[1].fd, POLLIN, 0},
        };
        poll(watched, 5, (int)((left + 999999) / 1000000));
        close_fd(&newcomer);
        if (watched[0].revents & POLLIN) noticed |= attend_notice(notices);
        if (watched[1].revents) _exit(0);
    }
}

bool hear(struct watched *run)
{
    struct server_reply word = hear_server();
    switch (word.stage) {
    case STAGE_COPIED:
        mounts_copy = open_mounts(word.status);
        send(server_socket, "", 1, MSG_NOSIGNAL);
        return false;
    case STAGE_STARTED:
        run->shell = (int)syscall(SYS_pidfd_open, word.status, 0);
        resident.shell = word.status;
        return false;
    case STAGE_NONE:
        if (word.error) run->reply->error = word.error;
        run->reply->status = word.status;
        run->reply->processes = word.processes;
        return true;
    default:  /* a message of the child, before the input had control; its end follows */
        run->reply->stage = word.stage;
        run->reply->error = word.error;
        return false;
    }
}

void await_shell(struct watched *run)
{
    static const struct server_request wait = {.op = SERVER_WAIT};
    if (run->shell >= 0) send_with(server_socket, &wait, sizeof wait, NULL, 0);
    close_fd(&run->shell);
}

/* End all processes after a limit was reached. The parent of a persistent shell does not wait for it without a request. */
static void end_run(struct watched *run, uint32_t why)
{
    await_shell(run);
    if (run->beside) end_newcomers();
    else if (why == REPLY_BACKGROUND || run->stays) end_survivors();
    else ask_init();  /* kills everything at once */
}

/* Whether a process of the shell outlives it, and may continue for a while; its descriptor `process` is readable once it has
 * ended. A run that enters a machine leaves its processes running, so there is no wait. */
static bool is_outlived(struct watched *run, int *process)
{
    if (run->request->flags & REQUEST_ENTER) return false;
    if (*process >= 0 && poll(&(struct pollfd){*process, POLLIN, 0}, 1, 0) <= 0) return true;
    close_fd(process);
    *process = run->beside ? open_newcomer() : open_survivor();
    return *process >= 0;
}

static bool is_open(const struct channel channels[2]) { return channels[0].fd >= 0 || channels[1].fd >= 0; }

unsigned watch(struct watched *run)
{
    const struct request *request = run->request;
    struct channel *channels = run->channels;
    struct reply *reply = run->reply;
    int64_t held_ms = request->flags & (REQUEST_EAGER | REQUEST_LAZY) ? ALL_HELD_MS : 0;
    int64_t start = now_ns(CLOCK_MONOTONIC), deadline = start + (request->wall_ms + held_ms) * 1000000ll;
    int64_t next_look = start + LOOK_NS, lacked = waited_for_processor();
    bool shell_ended = false, killed = false;
    int process = -1;  /* a process that outlives the shell */
    unsigned noticed = 0;
    struct looks looks = {0};
    while (!shell_ended || is_open(channels) || (!killed && is_outlived(run, &process))) {
        struct pollfd watched[8] = {
            {channels[0].fd, POLLIN, 0}, {channels[1].fd, POLLIN, 0},
            {shell_ended ? -1 : server_socket, POLLIN, 0}, {control, POLLRDHUP, 0}, {notices, POLLIN, 0},
            {run->feed.fd, POLLOUT, 0}, {run->shell, POLLIN, 0}, {process, POLLIN, 0},
        };
        int64_t now = now_ns(CLOCK_MONOTONIC), wake = deadline < next_look ? deadline : next_look;
        int wait_ms = wake <= now ? 0 : (int)((wake - now + 999999) / 1000000);
        int n = poll(watched, 8, killed ? 1000 : wait_ms);
        int64_t late = now_ns(CLOCK_MONOTONIC) - now - wait_ms * 1000000ll;
        if (late > PAUSE_NS) deadline += stopped_ns(late, &lacked);  /* everything was stopped, so this was not time of the input */
        if (watched[3].revents & (POLLHUP | POLLRDHUP | POLLERR)) _exit(0);
        for (int i = 0; i < 2; i++)
            if (watched[i].revents && !read_channel(&channels[i], request->output_max)) close_fd(&channels[i].fd);
        if (watched[5].revents) fill_pipe(&run->feed);
        if (watched[6].revents) await_shell(run);
        if (watched[2].revents && hear(run)) {
            shell_ended = true;
            run->stays = false;
            close_fd(&run->slave);
            if (reply->error) return noticed;
            if (!killed) {
                int64_t last = now_ns(CLOCK_MONOTONIC) + request->background_ms * 1000000ll;
                if (last < deadline) deadline = last;
            }
        }
        if (watched[4].revents & POLLIN) {
            /* The message with the shell's process id precedes the shell's call, but may not have been received yet. */
            while (run->stays && !resident.shell && !reply->error) hear(run);
            noticed |= attend_notice(notices);
        }
        if (killed) {
            if (n) continue;
            if (!shell_ended && await_server()) continue;
            if (!shell_ended) reply->error = ETIMEDOUT;  /* the fork server is stopped, so the result of the input is unknown */
            return noticed;  /* some process still holds a descriptor: give up on further output */
        }
        if (noticed & NOTICED_LINE && run->stays) {
            if (request->flags & REQUEST_LINE) noticed |= settle(run);
            if (!is_flood(channels, request)) return noticed;
        }
        now = now_ns(CLOCK_MONOTONIC);
        uint32_t why = 0;
        if (is_flood(channels, request)) why = REPLY_OUTPUT_KILLED;
        else if (now >= deadline && !shell_ended) why = REPLY_TIMED_OUT;
        else if (now >= deadline && (is_open(channels) || is_outlived(run, &process))) why = REPLY_BACKGROUND;
        else if (now >= next_look) {
            while (next_look <= now) next_look += LOOK_NS;
            lacked = waited_for_processor();
            show_uptime(false);
            why = look(run, &looks);
            if (run->slave >= 0) offer_ends_of_file(channels[0].fd, 1);
        }
        if (why == REPLY_TIMED_OUT && waited(&looks)) reply->flags |= REPLY_WAITED;
        if (why) {
            reply->flags |= why;
            close_fd(&process);
            end_run(run, why);
            killed = true;
        }
    }
    return noticed;
}

static struct buffer changes;

void answer(struct reply *reply, struct channel channels[2], uint32_t keep)
{
    for (int i = 0; i < 2; i++)
        if (channels[i].seen > keep) reply->flags |= REPLY_OUTPUT_TRUNCATED;
    uint32_t state = shared->state_length;
    reply->state_length = shared->dumped && state <= STATE_MAX ? state : 0;
    reply->output_length = (uint32_t)channels[0].kept.length;
    reply->errors_length = (uint32_t)channels[1].kept.length;
    reply->changes_length = (uint32_t)changes.length;
    static struct buffer message;
    message.length = 0;
    buffer_add(&message, reply, sizeof *reply);
    buffer_add(&message, channels[0].kept.bytes, channels[0].kept.length);
    buffer_add(&message, channels[1].kept.bytes, channels[1].kept.length);
    buffer_add(&message, shared->state, reply->state_length);
    buffer_add(&message, changes.bytes, changes.length);
    write_all(control, message.bytes, message.length);
}

_Static_assert(ROWS_MAX == STDIN_MAX, "rows come as standard input does");

uint32_t order_of(const struct request *request)
{
    return (request->flags & REQUEST_EAGER ? RUN_EAGER : 0u) | (request->flags & REQUEST_LAZY ? RUN_LAZY : 0u);
}

void clear_survivors(struct reply *reply)
{
    unsigned left = processes_left();
    if (left & LEFT_SURVIVORS) {
        end_survivors();
        left = processes_left();
    }
    if (left & LOST_PROCESSES) reply->flags |= REPLY_INIT;
}

void check_machine(unsigned noticed, struct reply *reply)
{
    if (noticed & NOTICED_SETTINGS) forget_proxies();
    if ((!init_alive || (noticed & NOTICED_SOCKETS && !web_is_alive())) && !reply->error) reply->error = ECHILD;
}

void make_pristine(uint32_t flags, bool looked_at, bool usable)
{
    if (flags & REPLY_FILES) {
        close_fd(&mounts_copy);
        renew_layer();
    } else settle_root();
    bool unseen = flags & REPLY_NETWORK && !looked_at;
    if ((looked_at || flags & REPLY_TRAFFIC) && !unseen && !(flags & NEEDS_NEW_SANDBOX) && usable) {
        int network = renew_network();
        move_server(CLONE_NEWNET, network, "renew the network");
        close(network);
    }
}

/* Copy rows to the shared memory for their shell. */
static void share_rows(const struct request *request, const uint8_t *rows)
{
    shared->flags |= RUN_ROWS;
    shared->background_ms = request->background_ms;
    memcpy(shared->rows, rows, request->stdin_length);
    /* The kernel maps pages in groups. Map as many after the last row as after any other, so that a row cannot infer from its
     * memory how many rows follow. */
    uint32_t left = sizeof shared->rows - request->stdin_length, group = 128u << 10;
    memset(shared->rows + request->stdin_length, 0, left < group ? left : group);
    shared->typed_rows = 0;
    for (uint32_t at = 0; at < request->stdin_length; at += (uint32_t)strlen(shared->rows + at) + 1)
        if (shared->rows[at] == ROW_END) shared->typed_rows = at + 2;
}

void start_run(struct watched *run, uint32_t pid, uint32_t flags, const uint8_t *standard_input)
{
    const struct request *request = run->request;
    struct channel *channels = run->channels;
    shared->dumped = 0;
    shared->state_length = 0;
    shared->processors = config.processors;
    int out[2], err[2] = {-1, -1};
    bool separate = request->flags & REQUEST_SEPARATE, terminal = request->flags & REQUEST_TERMINAL;
    if (terminal ? !open_terminal(out, !run->stays) : pipe2(out, O_CLOEXEC)) _exit(125);
    if (separate && pipe2(err, O_CLOEXEC)) _exit(125);
    channels[0].fd = out[0];
    channels[1].fd = err[0];
    fcntl(out[0], F_SETFL, O_NONBLOCK);  /* an input can open its own pipe and drain it */
    if (separate) fcntl(err[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 2; i++) channels[i].kept.length = 0, channels[i].seen = 0;
    struct server_request start = {SERVER_RUN, pid, flags | (terminal ? RUN_ON_TERMINAL : 0)};
    int fds[DESCRIPTORS] = {out[1]};
    unsigned n_fds = 1;
    if (separate) {
        start.flags |= RUN_SEPARATE;
        fds[n_fds++] = err[1];
    }
    if (mounts_copy >= 0) {
        start.flags |= RUN_IN_COPY;
        fds[n_fds++] = mounts_copy;
    }
    int in[2] = {-1, -1};
    run->feed = (struct feed){.fd = -1};
    if (flags & RUN_WITH_STDIN) {  /* the peer writes the input and may receive answers */
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in)) _exit(125);
        run->feed.fd = in[1];
        fds[n_fds++] = in[0];
    } else if (standard_input) {
        if (pipe2(in, O_CLOEXEC)) _exit(125);
        fcntl(in[1], F_SETFL, O_NONBLOCK);
        run->feed = (struct feed){in[1], standard_input, request->stdin_length};
        fill_pipe(&run->feed);  /* usually all of it, before the shell starts, followed by end of file */
        start.flags |= RUN_WITH_STDIN;
        fds[n_fds++] = in[0];
    }
    if (flags & RUN_WITH_START) fds[n_fds++] = run->start;
    send_with(server_socket, &start, sizeof start, fds, n_fds);
    run->slave = terminal ? out[1] : -1;
    if (!terminal) close(out[1]);
    if (separate) close(err[1]);
    close_fd(&in[0]);
}

void forget_changes(void) { changes.length = 0; }

static int64_t looking_ns;  /* processor time at the last scan */
static bool linked;

bool is_linked(void) { return linked; }
bool is_better_frozen(void) { return looking_ns > LONG_NS && !linked; }

void find_changes(const struct request *request, struct reply *reply)
{
    int64_t began = now_ns(CLOCK_THREAD_CPUTIME_ID);
    looking_ns = 0;
    linked = false;
    changes.length = 0;
    struct disk_state disk = disk_state();
    if (!memcmp(&disk, &pristine_disk, sizeof disk)) return;
    reply->flags |= REPLY_FILES;
    if (!disk.blocks) reply->flags |= REPLY_DISK;
    if (!disk.files) reply->flags |= REPLY_INODES;
    struct scan_end end = scan_changes(lower_root, upper_root, merged_root, request->scan_ms, &changes);
    linked = end.linked;
    if (end.truncated) reply->flags |= REPLY_CHANGES_TRUNCATED;
    if (end.out_of_time) reply->flags |= REPLY_SCAN;
    if (end.error && !reply->error) reply->error = end.error, reply->stage = STAGE_SCAN;
    looking_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - began;
}

void run(const struct request *request, const uint8_t *standard_input)
{
    static struct channel channels[2] = {{.fd = -1}, {.fd = -1}};
    struct reply reply = {0};
    struct watched run = {.request = request, .channels = channels, .shell = -1, .reply = &reply};
    shared->flags = (request->flags & REQUEST_FRESH ? RUN_FRESH : 0u) | order_of(request);
    bool with_rows = request->flags & REQUEST_ROWS && request->stdin_length;
    if (with_rows) share_rows(request, standard_input);
    shared->uptime = config.declared_clock ? config.uptime : 0;
    show_uptime(config.declared_clock);
    reply.started_ns = now_ns(CLOCK_REALTIME);
    start_run(&run, SHELL_PID, 0, with_rows || !request->stdin_length ? NULL : standard_input);
    unsigned noticed = watch(&run);
    close_fd(&run.feed.fd);
    close_fd(&run.slave);
    close_fd(&channels[0].fd);
    close_fd(&channels[1].fd);
    clear_survivors(&reply);
    reply.ended_ns = now_ns(CLOCK_REALTIME);
    find_changes(request, &reply);
    reply.flags |= traces_left(noticed, request->flags & REQUEST_TERMINAL);
    check_machine(noticed, &reply);
    answer(&reply, channels, request->output_max);
    empty_shared_memory();
    if (request->flags & REQUEST_KEEP) return;
    make_pristine(reply.flags, request->flags & REQUEST_RENEW, !reply.error);
}
