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
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "configuration.h"
#include "forkserver.h"
#include "live.h"
#include "mounts.h"
#include "namespaces.h"
#include "processes.h"
#include "protocol.h"
#include "runs.h"
#include "scan.h"
#include "traces.h"
#include "tree.h"

#define USUAL_SLACK_NS 50000
#define OPEN_FILES 65536  /* of a process; the host's own bound may be lower */

static void run_request(const struct request *request, const uint8_t *standard_input)
{
    if (request->flags & REQUEST_SHELL) start_shell(request);
    else if (request->flags & REQUEST_LINE) run_line(request);
    else if (request->flags & REQUEST_LOOK) look_at_shell(request);
    else if (request->flags & REQUEST_ENTER) enter_machine(request);
    else if (request->flags & REQUEST_HAND) hand_ends();
    else if (request->flags & REQUEST_END) end_shell(request);
    else if (is_live()) run_beside(request, standard_input);
    else run(request, standard_input);
}

static void serve_requests(void)
{
    struct request request;
    uint8_t *standard_input = NULL;  /* made when it is needed: process 1 does not have it */
    signal(SIGPIPE, SIG_IGN);  /* who reads it may stop at any time */
    for (;;) {
        if (is_live()) await_request();
        if (!read_all(control, &request, sizeof request)) return;
        if (request.cwd_length >= CWD_MAX || request.input_length >= INPUT_MAX || request.stdin_length > STDIN_MAX)
            _exit(125);
        if (!read_all(control, shared->cwd, request.cwd_length)) return;
        shared->cwd[request.cwd_length] = 0;
        if (!read_all(control, shared->input, request.input_length)) return;
        shared->input_length = request.input_length;
        if (request.stdin_length && !standard_input && !(standard_input = malloc(STDIN_MAX))) _exit(125);
        if (!read_all(control, standard_input, request.stdin_length)) return;
        run_request(&request, standard_input);
    }
}

static void write_own(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, text, strlen(text)) < 0) errno = 0;  /* it is not this user's to set */
    close_fd(&fd);
}

/* Sets what inputs inherit, and show, to what a new login has, as far as the host lets this user: an ordinary one may lower
 * neither its nice value nor what root has set as its lowest OOM score, nor raise a hard limit. Limits that the machine
 * declares are set later (`take_declared_limits`). */
static void forget_caller(void)
{
    bool is_root = !geteuid();
    setpriority(PRIO_PROCESS, 0, 0);
    /* sched_setattr(2)'s, which the C library has not: the usual policy, and slices of the usual length. */
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; }
        normal = {.size = sizeof normal, .policy = SCHED_OTHER, .nice = getpriority(PRIO_PROCESS, 0)};
    syscall(SYS_sched_setattr, 0, &normal, 0u);
    syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, 0);
    personality(PER_LINUX);
    prctl(PR_SET_TIMERSLACK, USUAL_SLACK_NS);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_DEFAULT, 0, 0);  /* PR_MCE_KILL_CLEAR keeps one of its two flags */
    write_own("/proc/self/coredump_filter", "0x33");
    write_own("/proc/self/oom_score_adj", "0");
    /* Each sandbox has bounds of its own. What would let an input rise above others (priorities, locked memory) is not raised. */
    static const int raised[] = {
        RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_CORE, RLIMIT_RSS, RLIMIT_NPROC, RLIMIT_AS, RLIMIT_LOCKS,
        RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, RLIMIT_RTTIME,
    };
    struct rlimit limit;
    for (unsigned i = 0; is_root && i < sizeof raised / sizeof *raised; i++)
        if (!getrlimit(raised[i], &limit)) setrlimit(raised[i], &(struct rlimit){limit.rlim_cur, RLIM_INFINITY});
    /* Soft limits that would end the supervisor itself. */
    static const int own[] = {RLIMIT_RTTIME, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_AS};
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        if (!getrlimit(own[i], &limit)) setrlimit(own[i], &(struct rlimit){limit.rlim_max, limit.rlim_max});
    if (is_root) setrlimit(RLIMIT_NOFILE, &(struct rlimit){OPEN_FILES, OPEN_FILES});
}

/* Makes the user namespace and the mounts of all supervisors of one sandbox, and hands them over: with a lower layer of
 * its own, or, where `user` and `mounts` are those of another sandbox, with that one's. */
static int keep(char **argv, const char *plain, int user, int mounts)
{
    bool shares = user >= 0;
    forget_caller();
    if (!geteuid()) make_device_nodes((uid_t)atol(argv[3]), (gid_t)atol(argv[4]));
    if (shares) join_user_namespace(user);
    else enter_user_namespace();
    end_with_caller();
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

/* Runs a program in a user namespace: as its id 0, or (`own`) as whoever calls, in the groups of whoever calls. */
static int execute(char **argv, bool own)
{
    if (own) enter_unmapped_namespace();
    else enter_user_namespace();
    close(control);
    signal(SIGINT, SIG_DFL);
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    return 127;
}

/* Tells what differs between the roots of each three layers: "S<errno> <truncated> <out of time> <bytes>\n", then the
 * records. */
static int scan(int argc, char **argv)
{
    for (int at = 4; at + 2 < argc; at += 3) {
        struct buffer records = {0};
        int lower = atoi(argv[at]), upper = atoi(argv[at + 1]), merged = atoi(argv[at + 2]);
        struct scan_end end = scan_changes(lower, upper, merged, (uint32_t)atol(argv[3]), &records);
        char line[64];
        int length = snprintf(line, sizeof line, "S%d %d %d %zu\n", end.error, end.truncated, end.out_of_time,
                              records.length);
        write_all(control, line, (size_t)length);
        write_all(control, records.bytes, records.length);
        free(records.bytes);
    }
    return 0;
}

/* A descriptor that the peer named, under a low number: some numbers mean something (FD_GATEWAY, FD_CONTROL). */
static int take(const char *number)
{
    int given = atoi(number), fd = fcntl(given, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) _exit(125);
    close(given);
    return fd;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s keep FD UID GID INSTANT FORM [PLAIN] | share FD UID GID INSTANT FORM USER MOUNTS | "
                        "run FD USER MOUNTS FORM OWNER | exec FD PROGRAM [ARGUMENT...] | "
                        "own FD PROGRAM [ARGUMENT...] | scan FD MILLISECONDS [LOWER UPPER MERGED]...\n", argv[0]);
        return 2;
    }
    control = take(argv[2]);
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);  /* the caller's thread may have blocked some */
    signal(SIGINT, SIG_IGN);  /* Ctrl-C is the Python side's to handle */
    struct rlimit descriptors;  /* as many may be in flight: the outputs' pipes travel to the fork server */
    if (!getrlimit(RLIMIT_NOFILE, &descriptors)) {
        descriptors.rlim_cur = descriptors.rlim_max;
        setrlimit(RLIMIT_NOFILE, &descriptors);
    }
    if (!strcmp(argv[1], "keep")) return argc < 7 ? 2 : keep(argv, argv[7], -1, -1);
    if (!strcmp(argv[1], "share")) return argc < 9 ? 2 : keep(argv, NULL, take(argv[7]), take(argv[8]));
    if (!strcmp(argv[1], "exec")) return argc < 4 ? 2 : execute(argv, false);
    if (!strcmp(argv[1], "own")) return argc < 4 ? 2 : execute(argv, true);
    if (!strcmp(argv[1], "scan")) return argc < 4 ? 2 : scan(argc, argv);
    if (argc != 7) return 2;
    setpgid(0, 0);  /* Ctrl-Z stops the Python side alone: meanwhile inputs would run out of time */
    end_with_caller();
    forget_caller();
    int user = take(argv[3]), mounts = take(argv[4]);
    join_user_namespace(user);
    end_with_caller();
    close(user);
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
    end_with_caller();
    write_all(control, "R\n", 2);
    serving_inputs = true;
    serve_requests();
    return 0;
}
