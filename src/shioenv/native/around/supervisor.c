/* The one process outside a sandbox that works for it: makes the namespaces and mounts, has the fork
 * server run one input at a time, bounds it, asks what it changed, and makes everything pristine again.
 *
 *   shioenv-sandbox keep FD UID GID INSTANT FORM [PLAIN]
 *                                         its user namespace is mapped by the peer on FD, so that id 0 is the host's UID
 *                                         and GID; makes the mounts that every opening begins with, and answers with
 *                                         the form of the lower layer and with both namespaces, which the peer keeps
 *   shioenv-sandbox share FD UID GID INSTANT FORM USER MOUNTS
 *                                         the same for another sandbox of a system: in the user namespace that was kept
 *                                         for one, given as descriptors, and with its lower layer
 *   shioenv-sandbox run FD USER MOUNTS FORM OWNER
 *                                         in the namespaces that were kept, given as descriptors; then it is configured
 *                                         and used over FD; OWNER is an id that no other sandbox of the user namespace
 *                                         has
 *   shioenv-sandbox exec FD PROGRAM...    mapped as the first; then PROGRAM as id 0
 *
 * Two user namespaces, so that nothing an input holds is a capability over what the supervisor made:
 *   outer: this process and the fork server; owns the mounts.
 *   inner: the input; owns its network, IPC, UTS, pid and time namespaces and a
 *          copy of the mounts in which every mount is locked (it cannot be removed or made writable).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../inside/rows.h"
#include "../inside/server.h"
#include "common.h"
#include "configuration.h"
#include "mounts.h"
#include "namespaces.h"
#include "notices.h"
#include "processes.h"
#include "protocol.h"
#include "scan.h"
#include "terminal.h"
#include "traces.h"
#include "tree.h"
#include "uptime.h"
#include "usage.h"

#define SHELL_PID 1000
#define OPEN_FILES 65536  /* of a process; the host's own bound may be lower */
#define LOOK_NS 50000000ll /* between two looks at what a run uses */
#define PAGE 4096
/* Of the memory that shells share, in whole pages: whatever of it can be written can be emptied. */
#define SHARED_BYTES ((sizeof(struct shared) + PAGE - 1) / PAGE * PAGE)

static int server_socket = -1, shared_fd = -1;

/* ---- the fork server ---------------------------------------------------------------------------- */

/* Has the fork server join a namespace, for itself or, with pids, for its children. */
static void move_server(int kind, int fd, const char *what)
{
    struct server_request request = {.op = SERVER_JOIN, .flags = (uint32_t)kind};
    struct server_reply reply = {.error = EPIPE};
    send_with(server_socket, &request, sizeof request, &fd, 1);
    if (recv(server_socket, &reply, sizeof reply, 0) != sizeof reply) reply.error = EPIPE;
    if (reply.error) { errno = reply.error; die("%s (%s)", what, config.shell_mode); }
}

static int notices = -1;      /* where the kernel tells of calls that inputs are about to make */
static int mounts_copy = -1;  /* the copy of the layer's mounts that inputs share until one may have changed it */

/* Starts the fork server, which waits for the layers: what /proc says of it is a part of them. Its number. */
static pid_t start_server(const int pair[2])
{
    int last_pid = openat(host_proc, "sys/kernel/ns_last_pid", O_RDWR | O_CLOEXEC);
    CHECK(last_pid, "open ns_last_pid");
    pid_t server = fork_inside((pid_t)config.parent);
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        if (!config.declared_clock) join_namespace(ns_time, CLONE_NEWTIME, "time");
        char byte;
        int layers[DESCRIPTORS];
        if (receive_with(pair[1], &byte, 1, layers) != 1) _exit(125);
        join_namespace(layers[0], CLONE_NEWNS, "layer mount");
        int nowhere = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++) dup2(nowhere, i);
        dup2(pair[1], FD_CONTROL);
        dup2(shared_fd, FD_SHARED);
        dup2(last_pid, FD_LAST_PID);
        dup2(layers[1], FD_MOUNTS);
        dup2(ns_user, FD_USER);
        dup2(host_proc, FD_PROC);
        syscall(SYS_close_range, 3u, FD_CONTROL - 1u, 0u);
        syscall(SYS_close_range, FD_PROC + 1u, ~0u, 0u);
        for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        umask(022);
        if (chdir(config.directory)) CHECK(chdir("/"), "chdir /");
        filter_calls();
        int listener = notice_calls();
        if (listener < 0 || !send_with(FD_CONTROL, "", 1, &listener, 1)) _exit(125);
        close(listener);
        take_declared_limits();
        if (!strcmp(config.shell_mode, "fresh")) {
            serve();
            exec_fresh(config.environment);
        }
        static char mode[32], *environment[260];
        snprintf(mode, sizeof mode, "SHIOENV_SERVER=%s", config.shell_mode);
        int n = 0;
        for (; n < config.n_environment; n++) environment[n] = config.environment[n];
        environment[n++] = mode;
        environment[n++] = "LD_PRELOAD=/.shioenv.so";
        environment[n++] = "LD_BIND_NOW=1";
        if (!strcmp(config.shell_mode, "late")) environment[n++] = "BASH_ENV=/.shioenv-late";
        char *arguments[] = {"bash", "--norc", "--noprofile", "-c", ":", NULL};
        execve("/bin/bash", arguments, environment);
        _exit(125);
    }
    close(pair[1]);
    close(last_pid);
    server_socket = pair[0];
    return server;
}

static void give_layers(int library_layer, int layer)
{
    char byte = 0;
    int fds[DESCRIPTORS] = {library_layer, layer};
    if (!send_with(server_socket, &byte, 1, fds, 2) || receive_with(server_socket, &byte, 1, fds) != 1) { errno = EPIPE; die("listen to system calls (seccomp)"); }
    notices = fds[0];
    struct server_reply ready;
    if (recv(server_socket, &ready, sizeof ready, 0) != sizeof ready) ready.error = EPIPE;
    if (ready.error) { errno = ready.error; die("start the fork server (%s)", config.shell_mode); }
}

/* ---- one run ------------------------------------------------------------------------------------ */

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

struct channel { int fd; struct buffer kept; uint64_t seen; };

/* Reads once; false at end of file. */
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

/* What of a run's standard input is not yet in its pipe. */
struct feed { int fd; const uint8_t *next; size_t left; };

/* Writes as much as the pipe takes; lets go of it after the last byte, or when nobody reads any more. */
static void fill_pipe(struct feed *feed)
{
    ssize_t n = write(feed->fd, feed->next, feed->left);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) feed->next += n, feed->left -= (size_t)n;
    if (n < 0 || !feed->left) close_fd(&feed->fd);
}

/* How often a run was looked at, how often it wanted a processor or a disk then or had used one since the look before
 * (what the first thread of a process does is all that its state tells), and how often in a row, to this moment, it
 * had not. */
struct looks { unsigned all, busy, asleep; uint64_t cpu_ms; };

enum { MANY_LOOKS = 10 };

/* Whether a run whose time is over would have got no further with more of the processor: it slept nearly always, or,
 * where it had the time for that to mean something, all through the last half. */
static bool waited(const struct looks *looks)
{
    if (!looks->all) return false;
    return looks->busy * 10 <= looks->all || (looks->all >= MANY_LOOKS && looks->asleep * 2 >= looks->all);
}

/* Looks at what a run uses while it lasts: the limit it went past, or 0. */
static uint32_t look(const struct request *request, struct reply *reply, struct looks *looks)
{
    struct usage used = usage_now();
    bool busy = used.busy || (looks->all && used.cpu_ms > looks->cpu_ms);
    looks->all++;
    looks->busy += busy;
    looks->asleep = busy ? 0 : looks->asleep + 1;
    looks->cpu_ms = used.cpu_ms;
    if (used.threads >= config.processes) reply->flags |= REPLY_PROCESSES;
    if (used.cpu_ms > config.cpu_ms) return REPLY_CPU;
    if (used.bytes > request->memory_max) return REPLY_MEMORY;
    if (!host_is_short_of_memory()) return 0;
    reply->error = ENOMEM;  /* who took it is not known: nothing to record */
    return REPLY_MEMORY;
}

static int open_mounts(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "%d/ns/mnt", (int)pid);
    return openat(host_proc, path, O_RDONLY | O_CLOEXEC);
}

/* Watches one run to its end: input, output, time, memory, and what outlives the shell. What was noticed. */
static unsigned watch(const struct request *request, struct channel *channels, struct feed *feed, int *slave,
                      struct reply *reply)
{
    int64_t held_ms = request->flags & (REQUEST_EAGER | REQUEST_LAZY) ? ALL_HELD_MS : 0;
    int64_t start = now_ns(CLOCK_MONOTONIC), deadline = start + (request->wall_ms + held_ms) * 1000000ll;
    int64_t next_look = start + LOOK_NS;
    bool shell_ended = false, killed = false;
    unsigned noticed = 0;
    struct looks looks = {0};
    int open_channels = (channels[0].fd >= 0) + (channels[1].fd >= 0);
    while (!shell_ended || open_channels) {
        struct pollfd watched[6] = {
            {channels[0].fd, POLLIN, 0}, {channels[1].fd, POLLIN, 0},
            {shell_ended ? -1 : server_socket, POLLIN, 0}, {control, POLLRDHUP, 0}, {notices, POLLIN, 0},
            {feed->fd, POLLOUT, 0},
        };
        int64_t now = now_ns(CLOCK_MONOTONIC), wake = deadline < next_look ? deadline : next_look;
        int wait_ms = wake <= now ? 0 : (int)((wake - now + 999999) / 1000000);
        int n = poll(watched, 6, killed ? 1000 : wait_ms);
        if (watched[3].revents & (POLLHUP | POLLRDHUP | POLLERR)) _exit(0);
        for (int i = 0; i < 2; i++)
            if (watched[i].revents && !read_channel(&channels[i], request->output_max)) {
                close_fd(&channels[i].fd);
                open_channels--;
            }
        if (watched[4].revents & POLLIN) noticed |= attend_notice(notices);
        if (watched[5].revents) fill_pipe(feed);
        if (watched[2].revents) {
            struct server_reply ended;
            if (recv(server_socket, &ended, sizeof ended, 0) != sizeof ended) ended = (struct server_reply){.error = EPIPE};
            if (ended.stage == STAGE_COPIED) {
                mounts_copy = open_mounts(ended.status);
                send(server_socket, "", 1, MSG_NOSIGNAL);
                continue;
            }
            if (ended.stage) {  /* the child's own word, before the input had control; its end follows */
                reply->stage = ended.stage;
                reply->error = ended.error;
                continue;
            }
            shell_ended = true;
            close_fd(slave);
            if (ended.error) reply->error = ended.error;
            reply->status = ended.status;
            reply->processes = ended.processes;
            if (ended.error) return noticed;
            if (open_channels && !killed) {
                int64_t last = now_ns(CLOCK_MONOTONIC) + request->background_ms * 1000000ll;
                if (last < deadline) deadline = last;
            }
        }
        if (killed) {
            if (n == 0) return noticed;  /* a descriptor escaped every kill: give up on more output */
            continue;
        }
        now = now_ns(CLOCK_MONOTONIC);
        uint32_t why = 0;
        if (channels[0].seen + channels[1].seen > request->drain_max) why = REPLY_OUTPUT_KILLED;
        else if (now >= deadline) why = shell_ended ? REPLY_BACKGROUND : REPLY_TIMED_OUT;
        else if (now >= next_look) {
            while (next_look <= now) next_look += LOOK_NS;
            show_uptime(false);
            why = look(request, reply, &looks);
            if (*slave >= 0) offer_ends_of_file(channels[0].fd, 1);
        }
        if (why == REPLY_TIMED_OUT && waited(&looks)) reply->flags |= REPLY_WAITED;
        if (why) {
            reply->flags |= why;
            if (why == REPLY_BACKGROUND) end_survivors();
            else ask_init();  /* kills everything at once */
            killed = true;
        }
    }
    return noticed;
}

static struct buffer changes;

static void answer(struct reply *reply, struct channel *channels, uint32_t keep)
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

/* Writes over all that is in the memory that shells share, where that is no more than an ordinary run leaves: its pages stay.
 * False where more is there. Of a text only the pages stay that each has: how many pages a shell finds is told to it. */
static bool write_over_shared_memory(void)
{
    enum { USUAL_STATE = 16 * PAGE };
    const off_t texts = (offsetof(struct shared, input) / PAGE + 1) * PAGE, state = offsetof(struct shared, state) / PAGE * PAGE;
    for (off_t from = 0, to; (from = lseek(shared_fd, from, SEEK_DATA)) >= 0; from = to) {
        to = lseek(shared_fd, from, SEEK_HOLE);
        if (to < 0 || (to > texts && (from < state || to > state + USUAL_STATE))) return false;
        memset((char *)shared + from, 0, (size_t)(to - from));
    }
    return errno == ENXIO;  /* no data behind it */
}

/* Empties the memory that shells share, once no process of a run is left to write it: the next one finds nothing
 * there of the last one's text, variables, or whatever else that wrote. */
static void empty_shared_memory(void)
{
    if (write_over_shared_memory()) return;
    CHECK(fallocate(shared_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SHARED_BYTES), "empty the shared memory");
}

_Static_assert(ROWS_MAX == STDIN_MAX, "rows come as standard input does");

/* Puts rows where their shell finds them. */
static void share_rows(const struct request *request, const uint8_t *rows)
{
    shared->flags |= RUN_ROWS;
    shared->background_ms = request->background_ms;
    memcpy(shared->rows, rows, request->stdin_length);
    /* Pages come to a process in groups: behind the last row there are as many as behind any other, so that a row's own
     * memory does not tell how many come after it. */
    uint32_t left = sizeof shared->rows - request->stdin_length, group = 128u << 10;
    memset(shared->rows + request->stdin_length, 0, left < group ? left : group);
    shared->typed_rows = 0;
    for (uint32_t at = 0; at < request->stdin_length; at += (uint32_t)strlen(shared->rows + at) + 1)
        if (shared->rows[at] == ROW_END) shared->typed_rows = at + 2;
}

static void run(const struct request *request, const uint8_t *standard_input, struct channel *channels)
{
    struct reply reply = {0};
    shared->flags = (request->flags & REQUEST_FRESH ? RUN_FRESH : 0u) | (request->flags & REQUEST_EAGER ? RUN_EAGER : 0u) |
                    (request->flags & REQUEST_LAZY ? RUN_LAZY : 0u);
    bool with_rows = request->flags & REQUEST_ROWS && request->stdin_length;
    if (with_rows) share_rows(request, standard_input);
    shared->dumped = 0;
    shared->state_length = 0;
    shared->processors = config.processors;
    shared->uptime = config.declared_clock ? config.uptime : 0;
    int out[2], err[2] = {-1, -1};
    bool separate = request->flags & REQUEST_SEPARATE, terminal = request->flags & REQUEST_TERMINAL;
    if (terminal ? !open_terminal(out) : pipe2(out, O_CLOEXEC)) _exit(125);
    if (separate && pipe2(err, O_CLOEXEC)) _exit(125);
    channels[0].fd = out[0];
    channels[1].fd = err[0];
    fcntl(out[0], F_SETFL, O_NONBLOCK);  /* an input can open its pipe and read it empty */
    if (separate) fcntl(err[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 2; i++) channels[i].kept.length = 0, channels[i].seen = 0;
    struct server_request start = {SERVER_RUN, SHELL_PID, terminal ? RUN_ON_TERMINAL : 0};
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
    struct feed feed = {.fd = -1};
    if (request->stdin_length && !with_rows) {
        if (pipe2(in, O_CLOEXEC)) _exit(125);
        fcntl(in[1], F_SETFL, O_NONBLOCK);
        feed = (struct feed){in[1], standard_input, request->stdin_length};
        fill_pipe(&feed);  /* mostly all of it: there before the shell is, and at its end already */
        start.flags |= RUN_WITH_STDIN;
        fds[n_fds++] = in[0];
    }
    show_uptime(config.declared_clock);
    reply.started_ns = now_ns(CLOCK_REALTIME);
    send_with(server_socket, &start, sizeof start, fds, n_fds);
    /* of a terminal it is held until the shell has ended: letting go of it would be hanging up */
    int slave = terminal ? out[1] : -1;
    if (!terminal) close(out[1]);
    if (separate) close(err[1]);
    close_fd(&in[0]);
    unsigned noticed = watch(request, channels, &feed, &slave, &reply);
    close_fd(&feed.fd);
    close_fd(&slave);
    close_fd(&channels[0].fd);
    close_fd(&channels[1].fd);
    unsigned left = processes_left();
    bool survivors = left & LEFT_SURVIVORS;
    if (survivors) {
        end_survivors();
        left = processes_left();
    }
    if (left & LOST_PROCESSES) reply.flags |= REPLY_INIT;
    reply.ended_ns = now_ns(CLOCK_REALTIME);

    changes.length = 0;
    struct disk_state disk = disk_state();
    if (memcmp(&disk, &pristine_disk, sizeof disk)) {
        reply.flags |= REPLY_FILES;
        if (!disk.blocks) reply.flags |= REPLY_DISK;
        if (!disk.files) reply.flags |= REPLY_INODES;
        struct scan_end end = scan_changes(lower_root, upper_root, merged_root, layer_mark, request->scan_ms, &changes);
        if (end.truncated) reply.flags |= REPLY_CHANGES_TRUNCATED;
        if (end.out_of_time) reply.flags |= REPLY_SCAN;
        if (end.error && !reply.error) reply.error = end.error, reply.stage = STAGE_SCAN;
    }
    reply.flags |= traces_left(noticed, terminal);
    if (noticed & NOTICED_SETTINGS) forget_proxies();
    if ((!init_alive || (noticed & NOTICED_SOCKETS && !web_is_alive())) && !reply.error) reply.error = ECHILD;
    answer(&reply, channels, request->output_max);
    empty_shared_memory();
    if (request->flags & REQUEST_KEEP) return;
    if (reply.flags & REPLY_FILES) {
        close_fd(&mounts_copy);
        renew_layer();
    } else settle_root();
    bool looked_at = request->flags & REQUEST_RENEW, unseen = reply.flags & REPLY_NETWORK && !looked_at;
    if ((looked_at || reply.flags & REPLY_TRAFFIC) && !unseen && !(reply.flags & NEEDS_NEW_SANDBOX) && !reply.error) {
        int network = renew_network();
        move_server(CLONE_NEWNET, network, "renew the network");
        close(network);
    }
    /* The kernel frees a process's number a moment after it is seen to be gone: the next run shall not
     * find those of this one taken. */
    if (survivors || reply.flags & REPLY_BACKGROUND) nanosleep(&(struct timespec){0, 2000000}, NULL);
}

static void serve_requests(void)
{
    struct request request;
    struct channel channels[2] = {{.fd = -1}, {.fd = -1}};
    uint8_t *standard_input = NULL;  /* made when it is needed: process 1 does not have it */
    signal(SIGPIPE, SIG_IGN);  /* who reads it may stop at any time */
    while (read_all(control, &request, sizeof request)) {
        if (request.cwd_length >= CWD_MAX || request.input_length >= INPUT_MAX || request.stdin_length > STDIN_MAX)
            _exit(125);
        if (!read_all(control, shared->cwd, request.cwd_length)) return;
        shared->cwd[request.cwd_length] = 0;
        if (!read_all(control, shared->input, request.input_length)) return;
        shared->input_length = request.input_length;
        if (request.stdin_length && !standard_input && !(standard_input = malloc(STDIN_MAX))) _exit(125);
        if (!read_all(control, standard_input, request.stdin_length)) return;
        run(&request, standard_input, channels);
    }
}

/* As the host's root: the priorities that inputs would inherit, and show, are those of the declared machine.
 * (An ordinary user may not lower its own.) */
static void run_as_any_other(void)
{
    static const struct sched_param normal;
    sched_setscheduler(0, SCHED_OTHER, &normal);
    setpriority(PRIO_PROCESS, 0, 0);
    syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, 0);
    /* Each sandbox has a bound of its own; of what all of root's may have together there need be none. */
    static const int bounded[] = {RLIMIT_MSGQUEUE, RLIMIT_NPROC, RLIMIT_SIGPENDING};
    for (unsigned i = 0; i < sizeof bounded / sizeof *bounded; i++)
        setrlimit(bounded[i], &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){OPEN_FILES, OPEN_FILES});
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "0", 1) == 1) close(fd);
}

/* Makes the user namespace and the mounts of all supervisors of one sandbox, and hands them over: with a lower layer of
 * its own, or, where `user` and `mounts` are those of another sandbox, with that one's. */
static int keep(char **argv, const char *plain, int user, int mounts)
{
    bool shares = user >= 0;
    if (!geteuid()) {
        run_as_any_other();
        make_device_nodes((uid_t)atol(argv[3]), (gid_t)atol(argv[4]));
    }
    if (shares) join_user_namespace(user);
    else enter_user_namespace();
    own_mounts();
    int tree = shares ? tree_of(mounts) : -1;
    int kept[] = {open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC), open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC)};
    if (kept[0] < 0 || kept[1] < 0) die("open own namespaces");
    struct timespec instant = {.tv_sec = atoll(argv[5])};
    const char *form = make_kept_mounts(argv[6], &instant, plain, tree);
    char line[64];
    snprintf(line, sizeof line, "%s %016llx\n", form, (unsigned long long)filled_sum);
    return send_with(control, line, strlen(line), kept, 2) ? 0 : 125;
}

static int execute(char **argv)
{
    enter_user_namespace();
    close(control);
    signal(SIGINT, SIG_DFL);
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    return 127;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s keep FD UID GID INSTANT FORM [PLAIN] | share FD UID GID INSTANT FORM USER MOUNTS | "
                        "run FD USER MOUNTS FORM OWNER | exec FD PROGRAM [ARGUMENT...]\n", argv[0]);
        return 2;
    }
    control = atoi(argv[2]);
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
    signal(SIGINT, SIG_IGN);  /* Ctrl-C is the Python side's to handle */
    struct rlimit descriptors;  /* as many may be in flight: the outputs' pipes travel to the fork server */
    if (!getrlimit(RLIMIT_NOFILE, &descriptors)) {
        descriptors.rlim_cur = descriptors.rlim_max;
        setrlimit(RLIMIT_NOFILE, &descriptors);
    }
    if (!strcmp(argv[1], "keep")) return argc < 7 ? 2 : keep(argv, argv[7], -1, -1);
    if (!strcmp(argv[1], "share")) return argc < 9 ? 2 : keep(argv, NULL, atoi(argv[7]), atoi(argv[8]));
    if (!strcmp(argv[1], "exec")) return argc < 4 ? 2 : execute(argv);
    if (argc != 7) return 2;
    if (!geteuid()) run_as_any_other();
    int mounts = atoi(argv[4]);
    fcntl(mounts, F_SETFD, FD_CLOEXEC);
    join_user_namespace(atoi(argv[3]));
    close(atoi(argv[3]));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    shared_fd = memfd_create("shioenv", MFD_CLOEXEC);
    CHECK(shared_fd, "memfd_create");
    CHECK(ftruncate(shared_fd, SHARED_BYTES), "size the shared memory");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
    if (shared == MAP_FAILED) die("map the shared memory");
    read_configuration();
    host_proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(host_proc, "open /proc");
    char form[16] = "";
    strncpy(form, argv[5], sizeof form - 1);
    uid_t owner = (uid_t)atol(argv[6]);
    /* What `ps` shows of process 1, which keeps this memory. An area that does not end in a NUL byte is shown up
     * to its first one: its length would tell how long this program's path is. */
    size_t room = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
    memset(argv[0], 0, room);
    strncpy(argv[0], "/sbin/init", room);
    argv[0][room] = ' ';
    int pair[2];  /* made before the inner network, which would list it */
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
    enter_kept_mounts(mounts, form);
    close(mounts);
    make_inner_namespaces(owner);
    pid_t server = start_server(pair);
    make_outer_mounts();
    start_web();
    int library_layer = make_layer(strcmp(config.shell_mode, "fresh") != 0), layer = make_layer(false);
    give_layers(library_layer, layer);
    close(library_layer);
    watch_processes(server);
    watch_for_traces();
    write_all(control, "R\n", 2);
    serving_inputs = true;
    serve_requests();
    return 0;
}
