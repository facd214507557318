/* The supervisor of a sandbox, which runs outside of it. It creates namespaces and mounts, makes the fork server run one input
 * at a time, enforces limits, finds the changes, and makes everything pristine again.
 *
 *   shioenv-sandbox keep FD UID GID INSTANT FORM [PLAIN]
 *                                         the peer on FD maps its user namespace, so that id 0 is the host's UID and GID;
 *                                         creates the mounts for all supervisors of a sandbox, and replies with the
 *                                         form of the lower layer and with both namespaces, which the peer keeps
 *   shioenv-sandbox share FD UID GID INSTANT FORM USER MOUNTS
 *                                         the same for another sandbox of a system, in the first one's user namespace
 *                                         and with its lower layer (given as descriptors)
 *   shioenv-sandbox run FD USER MOUNTS FORM OWNER
 *                                         in the kept namespaces, given as descriptors; then it is configured and used
 *                                         over FD; OWNER is an id that is unique in the user namespace
 *   shioenv-sandbox exec FD PROGRAM...    mapped like `keep`, then executes PROGRAM as id 0
 *
 * There are two user namespaces, so that inputs have no capabilities over objects of the supervisor:
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
#define OPEN_FILES 65536  /* per process; the host's own limit may be lower */

static void run_request(const struct request *request, const uint8_t *standard_input, int file)
{
    if (file >= 0) import_shell(request, file);
    else if (request->flags & REQUEST_SHELL) start_shell(request);
    else if (request->flags & REQUEST_FORK) fork_shell(request);
    else if (request->flags & REQUEST_LINE) run_line(request);
    else if (request->flags & REQUEST_MARK) mark_shell(request);
    else if (request->flags & REQUEST_LOOK) look_at_shell(request);
    else if (request->flags & REQUEST_ENTER) enter_machine(request);
    else if (request->flags & REQUEST_HAND) hand_ends();
    else if (request->flags & REQUEST_END) end_shell(request);
    else if (is_live()) run_beside(request, standard_input);
    else run(request, standard_input);
}

/* Receive a request, perhaps with a file (else -1); false if the peer is gone. */
static bool receive_request(struct request *request, int *file)
{
    int files[DESCRIPTORS];
    ssize_t n = receive_with(control, request, sizeof *request, files);
    *file = files[0];
    return n > 0 && read_all(control, (char *)request + n, sizeof *request - (size_t)n);
}

static void serve_requests(void)
{
    struct request request;
    int file;
    uint8_t *standard_input = NULL;  /* allocated on demand, so that process 1 does not have it */
    signal(SIGPIPE, SIG_IGN);  /* its reader may stop at any time */
    for (;;) {
        if (is_live()) await_request();
        if (!receive_request(&request, &file)) return;
        if (request.cwd_length >= CWD_MAX || request.input_length >= INPUT_MAX || request.stdin_length > STDIN_MAX)
            _exit(125);
        if (!read_all(control, shared->cwd, request.cwd_length)) return;
        shared->cwd[request.cwd_length] = 0;
        if (!read_all(control, shared->input, request.input_length)) return;
        shared->input_length = request.input_length;
        if (request.stdin_length && !standard_input && !(standard_input = malloc(STDIN_MAX))) _exit(125);
        if (!read_all(control, standard_input, request.stdin_length)) return;
        run_request(&request, standard_input, file);
        close_fd(&file);
    }
}

static void write_own(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, text, strlen(text)) < 0) errno = 0;  /* this user may not set it */
    close_fd(&fd);
}

/* Reset attributes that inputs inherit and reveal to those of a new login, as far as the host permits. An ordinary user can lower
 * neither its nice value nor the minimum OOM score set by root, nor raise a hard limit. Declared limits are set later
 * (`take_declared_limits`). */
static void forget_caller(void)
{
    bool is_root = !geteuid();
    setpriority(PRIO_PROCESS, 0, 0);
    /* The struct of sched_setattr(2), which the C library lacks: the default policy and time slices. */
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
    /* Each sandbox has separate limits. Those that would favour an input over others (priorities, locked memory) are not raised. */
    static const int raised[] = {
        RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_CORE, RLIMIT_RSS, RLIMIT_NPROC, RLIMIT_AS, RLIMIT_LOCKS,
        RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, RLIMIT_RTTIME,
    };
    struct rlimit limit;
    for (unsigned i = 0; is_root && i < sizeof raised / sizeof *raised; i++)
        if (!getrlimit(raised[i], &limit)) setrlimit(raised[i], &(struct rlimit){limit.rlim_cur, RLIM_INFINITY});
    /* Soft limits that could end the supervisor itself. */
    static const int own[] = {RLIMIT_RTTIME, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_AS};
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        if (!getrlimit(own[i], &limit)) setrlimit(own[i], &(struct rlimit){limit.rlim_max, limit.rlim_max});
    if (is_root) setrlimit(RLIMIT_NOFILE, &(struct rlimit){OPEN_FILES, OPEN_FILES});
}

/* Create the user namespace and the mounts for all supervisors of one sandbox, and pass them to the peer. The lower layer is new,
 * or shared with the sandbox of `user` and `mounts`, if given. */
static int keep(char **argv, const char *plain, int user, int mounts)
{
    bool shares = user >= 0;
    forget_caller();
    if (!geteuid()) make_device_nodes((uid_t)atol(argv[3]), (gid_t)atol(argv[4]));
    if (shares) join_user_namespace(user);
    else enter_user_namespace();
    end_with_caller();
    own_mounts();
    struct shared_parts parts = shares ? parts_of(mounts) : (struct shared_parts){-1, -1};
    int kept[] = {open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC), open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC)};
    if (kept[0] < 0 || kept[1] < 0) die("open own namespaces");
    struct timespec instant = {.tv_sec = atoll(argv[5])};
    const char *form = make_kept_mounts(argv[6], &instant, plain, parts);
    char line[64];
    snprintf(line, sizeof line, "%s %016llx\n", form, (unsigned long long)filled_sum);
    return send_with(control, line, strlen(line), kept, 2) ? 0 : 125;
}

/* Run a program in a user namespace, as its id 0 or (`own`) with the caller's ids and groups. */
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

/* Report the differences between the roots of each three layers: "S<errno> <truncated> <out of time> <bytes>\n", then the
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

/* Move a descriptor given by the peer to a low number, because some numbers are reserved (FD_GATEWAY, FD_CONTROL). */
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
    sigprocmask(SIG_SETMASK, &none, NULL);  /* the calling thread may have blocked signals */
    signal(SIGINT, SIG_IGN);  /* the Python side handles Ctrl-C */
    struct rlimit descriptors;  /* also the limit on descriptors in flight, such as output pipes on their way to the fork server */
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
    setpgid(0, 0);  /* Ctrl-Z must stop only the Python side; otherwise inputs would time out */
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
    /* The command line of process 1 in `ps`, which uses this memory. An area without a final NUL is shown up to its first NUL, so that
     * its length does not reveal the length of this program's path. */
    size_t room = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
    memset(argv[0], 0, room);
    strncpy(argv[0], "/sbin/init", room);
    argv[0][room] = ' ';
    int pair[2];  /* created before the inner network, which would list it */
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
