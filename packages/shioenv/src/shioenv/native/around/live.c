#define _GNU_SOURCE
#include "live.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
#include "nodes.h"
#include "notices.h"
#include "processes.h"
#include "runs.h"
#include "sockets.h"
#include "traces.h"
#include "uptime.h"
#include "usage.h"

enum { IDLE_LOOK_MS = 250 };   /* between two samples of background processes between lines */
enum { ENTERING_MS = 60000 };  /* maximum wait for the shell to enter other mounts, on a heavily loaded host */
enum { CPU_KNOWN_MS = 500 };   /* maximum age of the value from which a line's processor time is counted */

static struct {
    bool open;
    bool entered;              /* the machine continues without a shell */
    int ends[3];               /* to be passed to the peer: the terminal, or input, output and errors of the last entered input */
    struct request bounds;     /* the request that started the shell */
    struct channel channels[2];
    struct watched waiting;    /* the shell between its lines; `shell` is -1 if it has ended */
    int terminal;              /* the supervisor's end of its terminal; -1: none */
    int start;                 /* the start directory of the first shell, named below; -1: none is kept */
    char directory[CWD_MAX];
    int status;                /* how the shell ended while it waited */
    unsigned noticed, meanwhile;  /* NOTICED_* since the start; since the last line */
    bool had_terminal;
    uint32_t left;             /* REPLY_* of all lines */
    int64_t started_ns;        /* real time */
    uint64_t cpu_ms;           /* processor time used so far by the living processes */
    int64_t cpu_known_ns;
} live = {.channels = {{.fd = -1}, {.fd = -1}}, .waiting = {.shell = -1}, .terminal = -1, .start = -1, .ends = {-1, -1, -1}};

static struct node nodes[MOST_NODES];
static unsigned n_nodes;
static char attributes[ATTRIBUTES];  /* of the first shell before its first line, and so of each copy */
static uint64_t processors;          /* of the newest shell before its first line */

bool is_live(void) { return live.open; }

static void close_channels(void)
{
    close_fd(&live.terminal);
    for (int i = 0; i < 2; i++) close_fd(&live.channels[i].fd);
}

static void close_ends(void)
{
    for (int i = 0; i < 3; i++) close_fd(&live.ends[i]);
}

static void forget_output(void)
{
    for (int i = 0; i < 2; i++) live.channels[i].kept.length = 0, live.channels[i].seen = 0;
}

static void set_cpu(uint64_t ms)
{
    live.cpu_ms = ms;
    live.cpu_known_ns = now_ns(CLOCK_MONOTONIC);
}

static void know_cpu(bool anew)
{
    if (anew || now_ns(CLOCK_MONOTONIC) - live.cpu_known_ns >= CPU_KNOWN_MS * 1000000ll) set_cpu(usage_now().cpu_ms);
}

/* Clean up after a shell that has ended, including its processes. */
static void clear_away(struct reply *reply)
{
    resident = (struct resident){0};
    watch_shell(0);
    close_channels();
    clear_survivors(reply);
}

/* Whether a process other than the shell is in the terminal's foreground. */
static bool is_busy(void)
{
    pid_t front = 0;
    return ioctl(live.terminal, TIOCGPGRP, &front) || front != resident.shell;
}

/* Whether the target of one of the shell's links in /proc has this prefix. */
static bool links_to(const char *name, const char *beginning)
{
    char path[64], target[256];
    snprintf(path, sizeof path, "%d/%s", (int)resident.shell, name);
    ssize_t length = readlinkat(host_proc, path, target, sizeof target - 1);
    if (length < 0) return false;
    target[length] = 0;
    return !strncmp(target, beginning, strlen(beginning));
}

/* Whether the shell has its input and outputs, and no other descriptor of the layer. */
static bool has_plain_descriptors(void)
{
    char path[64], name[300];
    snprintf(path, sizeof path, "%d/fd", (int)resident.shell);
    int fd = openat(host_proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        close_fd(&fd);
        return false;
    }
    bool plain = true;
    for (struct dirent *entry; plain && (entry = readdir(list));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "fd/%s", entry->d_name);
        plain = links_to(name, "pipe:[") || (!strcmp(entry->d_name, "0") && links_to(name, "/dev/null"));
    }
    closedir(list);
    return plain;
}

/* Whether the target of a link in /proc was removed, or has a name that looks so. (Overlay keeps the link count of a removed
 * directory.) */
static bool is_removed(const char *link)
{
    static const char mark[] = " (deleted)";
    static char target[PATH_MAX + sizeof mark];
    ssize_t length = readlinkat(host_proc, link, target, sizeof target - 1), name = length - (ssize_t)sizeof mark + 1;
    return length <= 0 || (name >= 0 && !memcmp(target + name, mark, sizeof mark - 1));
}

/* Whether the shell may enter other mounts. */
static bool may_enter_mounts(void)
{
    return is_capable(resident.shell, CAP_SYS_CHROOT) && is_capable(resident.shell, CAP_SYS_ADMIN);
}

/* Open the first shell's start directory, as seen in the shell's mounts. */
static int open_start(void)
{
    char path[64];
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    snprintf(path, sizeof path, "%d/root", (int)resident.shell);
    int root = openat(host_proc, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int start = root < 0 ? -1 : (int)syscall(SYS_openat2, root, live.directory, &how, sizeof how);
    close_fd(&root);
    return start;
}

static void keep_start(void) { live.start = open_start(); }

/* Whether the disk has room for another layer's directories, and the shell for one more descriptor. */
static bool has_room(void)
{
    enum { ENTRIES = 64, DESCRIPTORS_LEFT = 64 };
    struct disk_state disk = disk_state();
    struct rlimit descriptors;
    return disk.files >= ENTRIES && disk.blocks >= ENTRIES &&
           !prlimit(resident.shell, RLIMIT_NOFILE, NULL, &descriptors) && descriptors.rlim_cur >= DESCRIPTORS_LEFT;
}

/* Freeze the layer if finding changes took long, so that it is fast for later lines. This requires that the shell is the only
 * process and has only its working directory open in the layer. */
static void freeze(struct watched *line)
{
    struct reply *reply = line->reply;
    char path[64], here[64], start[64];
    snprintf(here, sizeof here, "%d/cwd", (int)resident.shell);
    snprintf(start, sizeof start, "self/fd/%d", live.start);
    bool may = line->stays && live.terminal < 0 && !reply->error && !(reply->flags & (REPLY_CHANGES_TRUNCATED | REPLY_SCAN)) &&
               !((live.noticed | live.meanwhile) & NOTICED_MOUNTS) && !has_company() && may_enter_mounts() &&
               has_room() && has_plain_descriptors() && links_to("cwd", "/") && !is_removed(here) &&
               (live.start < 0 || !is_removed(start));
    if (!may) return;
    close_fd(&live.start);  /* a directory of the previous mounts */
    int mounts = freeze_layer();
    if (mounts < 0) return;
    close_fd(&mounts_copy);
    mounts_copy = mounts;
    struct stat wanted, there;
    snprintf(path, sizeof path, "%d/ns/mnt", (int)resident.shell);
    if (answer_mounts(notices, mounts)) {
        struct pollfd watched[] = {{notices, POLLIN, 0}, {line->shell, POLLIN, 0}};
        int64_t last = now_ns(CLOCK_MONOTONIC) + ENTERING_MS * 1000000ll;
        while (!resident.call && !watched[1].revents && now_ns(CLOCK_MONOTONIC) < last)
            if (poll(watched, 2, 100) > 0 && watched[0].revents & POLLIN) live.meanwhile |= attend_notice(notices);
    }
    live.meanwhile &= ~(unsigned)NOTICED_LINE;
    bool entered = resident.call && !fstat(mounts, &wanted) && !fstatat(host_proc, path, &there, 0) &&
                   wanted.st_ino == there.st_ino;
    if (!entered) reply->error = ESTALE;  /* its present mounts are not scanned */
    else keep_start();
    reply->flags |= REPLY_FROZEN;
    live.left |= REPLY_FILES;
}

/* Report the effects of a finished line. */
static void tell(struct watched *line, unsigned noticed)
{
    struct reply *reply = line->reply;
    noticed |= live.meanwhile;
    live.meanwhile = 0;
    close_fd(&line->feed.fd);
    if (line->stays) {
        reply->flags |= REPLY_STAYS;
        if (live.terminal >= 0 && is_busy()) reply->flags |= REPLY_BUSY;
        reply->status = (int32_t)(shared->line_status & 0xff) << 8;
    } else clear_away(reply);
    reply->started_ns = live.started_ns;
    reply->ended_ns = now_ns(CLOCK_REALTIME);
    bool blind = line->request->flags & REQUEST_BLIND && line->stays;
    uint32_t dumped = shared->dumped;
    if (blind) {
        live.meanwhile = noticed;
        shared->dumped = 0;  /* reported with this answer */
        forget_changes();
    } else {
        find_changes(line->request, reply);
        reply->flags |= traces_of_line(noticed);
    }
    live.noticed |= noticed;
    live.left |= reply->flags;
    check_machine(noticed, reply);
    if (!blind && !n_nodes && is_better_frozen()) freeze(line);
    live.waiting = *line;
    live.waiting.request = &live.bounds;
    live.waiting.reply = NULL;
    if (live.had_terminal) shared->dumped = 0;  /* the dump of the shell that became the interactive one */
    answer(reply, live.channels, line->request->output_max);
    shared->dumped = dumped;
    forget_output();
}

/* Get the status of the ended shell. */
static void reap(struct reply *reply)
{
    live.waiting.reply = reply;
    await_shell(&live.waiting);
    end_survivors();
    live.status = hear_server().status;
    live.waiting.stays = false;
    clear_away(reply);
    live.left |= reply->flags;
}

/* Check whether the shell has ended meanwhile. */
static void see_shell(void)
{
    struct reply reply = {0};
    struct pollfd ended = {live.waiting.shell, POLLIN, 0};
    if (live.waiting.shell >= 0 && poll(&ended, 1, 0) > 0) reap(&reply);
}

/* Wait until the shell is inside, on its terminal, which is not read here. */
static void enter_terminal(struct watched *shell)
{
    while (!resident.shell && !shell->reply->error) hear(shell);
    struct pollfd ended = {shell->shell, POLLIN, 0};
    while (!shell->reply->error && !shared->taken && !poll(&ended, 1, 1)) {}
    close_fd(&shell->slave);
    live.terminal = live.channels[0].fd;
    live.channels[0].fd = -1;
    close_ends();
    live.ends[0] = fcntl(live.terminal, F_DUPFD_CLOEXEC, 0);  /* to be passed to the peer, even if the shell has ended by then */
    if (shell->reply->error) shell->stays = false;
}

/* From here on the machine is not made pristine before `end_shell`. */
static void open_machine(void)
{
    shared->uptime = !live.open && config.declared_clock ? config.uptime : 0;
    if (live.open) return;
    show_uptime(config.declared_clock);
    live.started_ns = now_ns(CLOCK_REALTIME);
    live.noticed = live.meanwhile = 0;
    live.had_terminal = false;
    live.left = 0;
    live.open = true;
    set_cpu(0);  /* there are no processes yet */
}

void start_shell(const struct request *request)
{
    struct reply reply = {0};
    if (live.waiting.shell >= 0) _exit(125);
    struct watched shell = {.request = request, .channels = live.channels, .shell = -1, .stays = true, .reply = &reply};
    bool on_terminal = request->flags & REQUEST_TERMINAL;
    shared->flags = (on_terminal ? 0 : RUN_LINES) | order_of(request);
    bool is_first = !live.open && !on_terminal;
    if (is_first) strcpy(live.directory, shared->cwd);
    open_machine();
    shared->taken = 0;
    live.had_terminal |= on_terminal;
    live.bounds = *request;
    start_run(&shell, SHELL_PID, RUN_STAYS, NULL);
    unsigned noticed = 0;
    if (on_terminal) enter_terminal(&shell);
    else noticed = watch(&shell);
    if (is_first && shell.stays) keep_start();
    if (shell.stays && !on_terminal) {
        read_attributes(resident.shell, attributes);
        processors = processors_of(resident.shell);
    }
    watch_shell(resident.shell);
    know_cpu(false);
    tell(&shell, noticed);
}

void run_line(const struct request *request)
{
    struct reply reply = {0};
    see_shell();
    if (live.waiting.shell < 0) {
        reply.stage = STAGE_OVER;
        reply.status = live.status;
        forget_changes();
        answer(&reply, live.channels, 0);
        return;
    }
    know_cpu(false);
    struct watched line = live.waiting;
    line.request = request;
    line.reply = &reply;
    line.cpu_before_ms = live.cpu_ms;
    shared->flags = RUN_LINES | order_of(request);
    shared->input[request->input_length] = 0;
    shared->held_until = 0;
    shared->dumped = 0;
    shared->state_length = 0;
    note_company(false);
    show_uptime(false);
    shared->call_answer = request->flags & REQUEST_LAST ? LINE_LAST : LINE_RUN;
    answer_line(notices);
    tell(&line, watch(&line));
}

/* Whether the machine has other changes than those of files, which no layer undoes. */
static bool is_machine_changed(void)
{
    unsigned noticed = live.noticed | live.meanwhile;
    live.left |= traces_left(noticed, live.had_terminal);
    return noticed & NOTICED_MOUNTS || !init_alive ||
           live.left & (REPLY_NETWORK | REPLY_IPC | REPLY_HOSTNAME | REPLY_INIT | REPLY_TRAFFIC | REPLY_MOUNTS | REPLY_SOCKETS);
}

/* Whether packets were sent, and nothing else was changed that no layer undoes. Copies get a new network, without traces of them. */
static bool has_traffic_alone(void)
{
    unsigned noticed = live.noticed | live.meanwhile;
    uint32_t others = REPLY_NETWORK | REPLY_IPC | REPLY_HOSTNAME | REPLY_INIT | REPLY_MOUNTS | REPLY_SOCKETS;
    return live.left & REPLY_TRAFFIC && !(live.left & others) && !(noticed & (NOTICED_MOUNTS | NOTICED_SETTINGS)) && init_alive &&
           sockets_stand();
}

/* Undo changes of the network. It was as at the start whenever a node was made, apart from traces of traffic. */
static void restore_network(void)
{
    enum { OF_NETWORK = REPLY_NETWORK | REPLY_TRAFFIC, NOTICED = NOTICED_SETTINGS | NOTICED_SOCKETS };
    if (!is_machine_changed() || !(live.left & OF_NETWORK) || live.left & NEEDS_NEW_SANDBOX || !init_alive) return;
    int network = renew_network();
    move_server(CLONE_NEWNET, network, "renew the network");
    close(network);
    live.noticed &= ~(unsigned)NOTICED;
    live.meanwhile &= ~(unsigned)NOTICED;
    live.left &= ~(uint32_t)OF_NETWORK;
}

/* Whether a descriptor of the shell is as `start_run` gave it. */
static bool is_stream(const char *name, int end)
{
    char target[32], path[64], text[128];
    struct stat pipe;
    unsigned flags = 0;
    if (end < 0) strcpy(target, "/dev/null");
    else if (fstat(end, &pipe)) return false;
    else snprintf(target, sizeof target, "pipe:[%llu]", (unsigned long long)pipe.st_ino);
    snprintf(path, sizeof path, "fd/%s", name);
    read_proc(text, sizeof text, "%d/fdinfo/%s", (int)resident.shell, name);
    const char *line = strstr(text, "flags:");
    return links_to(path, target) && line && sscanf(line, "flags: %o", &flags) == 1 &&
           !(flags & ~(unsigned)(O_ACCMODE | 0100000 /* O_LARGEFILE of the kernel */));
}

/* Whether the shell has its three streams and no other descriptor. */
static bool has_first_descriptors(void)
{
    char path[64];
    snprintf(path, sizeof path, "%d/fd", (int)resident.shell);
    int fd = openat(host_proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        close_fd(&fd);
        return false;
    }
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(list));) count += entry->d_name[0] != '.';
    closedir(list);
    bool separate = live.channels[1].fd >= 0;
    return count == 3 && is_stream("0", -1) && is_stream("1", live.channels[0].fd) && is_stream("2", live.channels[separate].fd);
}

/* Copy the waiting shell's working directory; false if no path leads there. */
static bool copy_directory(struct node *node)
{
    char link[64];
    snprintf(link, sizeof link, "%d/cwd", (int)resident.shell);
    ssize_t length = readlinkat(host_proc, link, node->directory, sizeof node->directory - 1);
    if (length <= 0) return false;
    node->directory[length] = 0;
    return node->directory[0] == '/' && !is_removed(link);
}

/* Fill a node, and return 0 or the NODE_* that prevents it. */
static int fill_node(struct node *node)
{
    char now[ATTRIBUTES];
    if (live.waiting.shell < 0 || live.terminal >= 0 || !resident.call) return NODE_ENDED;
    if (has_company()) return NODE_PROCESSES;
    if (is_machine_changed() && !has_traffic_alone()) return NODE_MACHINE;
    if (live.left & (REPLY_CHANGES_TRUNCATED | REPLY_SCAN) || config.plain || !has_room() || !copy_directory(node))
        return NODE_FILES;
    struct disk_state disk = disk_state();
    if (memcmp(&disk, &pristine_disk, sizeof disk) && !copy_layer(upper_root, &node->layer)) {
        forget_layer(&node->layer);  /* it is frozen instead */
        if (is_linked()) return NODE_FILES;
    }
    node->layer.gives_numbers = !frozen_layers();
    if (!has_first_descriptors()) return NODE_DESCRIPTORS;
    read_attributes(resident.shell, now);
    if (strcmp(now, attributes) || processors_of(resident.shell) != processors) return NODE_ATTRIBUTES;
    struct server_request number = {.op = SERVER_NUMBER, .flags = SHELL_PID};
    send_with(server_socket, &number, sizeof number, NULL, 0);
    node->last_number = SHELL_PID + hear_server().processes - 1;
    return copy_shell(node) ? 0 : NODE_MEMORY;
}

static void forget_nodes(void)
{
    while (n_nodes) forget_node(&nodes[--n_nodes]);
}

/* Whether the shell's start directory still has its name. */
static bool has_start(void)
{
    struct stat kept, now;
    int named = open_start();
    bool same = !fstat(live.start, &kept) && !fstat(named, &now) && kept.st_ino == now.st_ino && kept.st_dev == now.st_dev;
    close_fd(&named);
    return same;
}

/* Copy the waiting shell to a file for other machines, and return 0 or the NODE_* that prevents it. */
static int export_shell(struct node *node)
{
    int why = fill_node(node);
    struct disk_state disk = disk_state();
    bool has_files = memcmp(&disk, &pristine_disk, sizeof disk);
    if (why) return why;
    if (frozen_layers() || (has_files && !content_of(node)) || (live.start >= 0 && !has_start())) return NODE_FILES;
    node->origin = (struct origin){live.started_ns, config.declared_clock ? clock_of_shell() : 0, boot_shown(), live.start >= 0, ""};
    strcpy(node->origin.start, live.directory);
    close_ends();
    live.ends[0] = write_node(node);
    return live.ends[0] < 0 ? NODE_MEMORY : 0;
}

void mark_shell(const struct request *request)
{
    static struct node exported;
    struct reply reply = {0};
    see_shell();
    bool exports = request->flags & REQUEST_EXPORT, has_place = n_nodes < MOST_NODES;
    struct node *node = exports ? &exported : &nodes[has_place ? n_nodes : 0];
    int why = exports ? export_shell(node) : has_place ? fill_node(node) : NODE_MEMORY;
    if (why || exports) {
        reply.status = -why;
        if (exports || has_place) forget_node(node);
    } else {
        struct disk_state disk = disk_state();
        node->frozen = frozen_layers();
        if (memcmp(&disk, &pristine_disk, sizeof disk) && !content_of(node)) {
            struct reply ended = {0};
            reap(&ended);
            close_fd(&live.start);
            close_fd(&mounts_copy);
            unsigned layers = freeze_unused_layer();
            if (layers) {
                node->frozen = layers;
                reply.flags |= REPLY_FROZEN;
                live.left |= REPLY_FILES;
            }
        }
        reply.status = (int32_t)n_nodes++;
    }
    if (live.waiting.shell >= 0) reply.flags |= REPLY_STAYS;
    reply.flags |= live.left & REPLY_TRAFFIC;
    uint32_t dumped = shared->dumped;
    shared->dumped = 0;  /* reported with the line's answer */
    forget_changes();
    answer(&reply, live.channels, 0);
    if (live.waiting.shell >= 0) shared->dumped = dumped;
}

/* Start a shell in the machine, and make it continue from a node; false if it cannot. */
static bool start_copy(struct watched *shell, const struct node *node)
{
    static const char text[] = ". /dev/stdin";
    if (!is_layer(node->frozen, content_of(node))) {
        close_fd(&live.start);
        close_fd(&mounts_copy);
        roll_back_layer(node->frozen, content_of(node));
    }
    strcpy(shared->cwd, node->directory);
    memcpy(shared->input, text, sizeof text);
    shared->input_length = sizeof text - 1;
    shared->taken = 0;
    const struct request *request = shell->request;
    struct request start = *request;
    start.flags &= ~(uint32_t)REQUEST_LINE;  /* nothing is waited for */
    shell->request = &start;
    start_run(shell, SHELL_PID, RUN_STAYS, NULL);
    live.meanwhile |= watch(shell) & ~(unsigned)NOTICED_LINE;
    shell->request = request;
    watch_shell(resident.shell);
    if (!shell->stays || shell->reply->error) return false;
    processors = processors_of(resident.shell);
    return become_node(node);
}

/* End a copy that is not as its node, and report this. */
static void give_up(struct watched *shell, struct reply *reply)
{
    live.waiting = *shell;
    if (shell->shell >= 0) reap(reply);
    forget_changes();
    shared->dumped = 0;
    answer(reply, live.channels, 0);
}

/* Make a copy wait for its next line. */
static void settle_copy(struct watched *shell)
{
    struct reply *reply = shell->reply;
    if (!ask_shell(LINE_SETTLE)) {
        reply->error = ESTALE;
        give_up(shell, reply);
        return;
    }
    live.waiting = *shell;
    live.waiting.request = &live.bounds;
    live.waiting.reply = NULL;
    reply->flags |= REPLY_STAYS;
    reply->started_ns = live.started_ns;
    reply->ended_ns = now_ns(CLOCK_REALTIME);
    forget_changes();
    forget_output();
    uint32_t dumped = shared->dumped;
    shared->dumped = 0;  /* for the next look */
    answer(reply, live.channels, 0);
    shared->dumped = dumped;
}

void import_shell(const struct request *request, int file)
{
    static struct node node;
    struct reply reply = {0};
    struct mapping mapping = {.bytes = MAP_FAILED};
    if (live.open) _exit(125);
    live.bounds = *request;
    open_machine();
    bool read = map_node(file, &node, &mapping);
    if (read) {
        live.started_ns = node.origin.started_ns;
        show_boot(node.origin.booted);
        shared->clock = node.origin.clock;
        strcpy(live.directory, node.origin.start);
    }
    struct watched shell = {.request = request, .channels = live.channels, .shell = -1, .stays = true, .reply = &reply};
    shared->flags = RUN_LINES | RUN_COPY | order_of(request);
    bool copied = read && start_copy(&shell, &node);
    shared->clock = 0;
    if (content_of(&node)) live.left |= REPLY_FILES;
    if (mapping.bytes != MAP_FAILED) unmap_node(&mapping);
    if (!copied) {
        reply.status = -NODE_MEMORY;
        give_up(&shell, &reply);
        return;
    }
    if (node.origin.has_start) keep_start();
    read_attributes(resident.shell, attributes);
    know_cpu(true);
    settle_copy(&shell);
}

void fork_shell(const struct request *request)
{
    static char text[INPUT_MAX];
    struct reply reply = {0};
    memcpy(text, shared->input, request->input_length);
    text[request->input_length] = 0;
    see_shell();
    if (live.waiting.shell >= 0) {
        struct reply ended = {0};
        reap(&ended);
    }
    struct watched line = {.request = request, .channels = live.channels, .shell = -1, .stays = true, .reply = &reply};
    if (n_nodes) restore_network();
    shared->uptime = 0;
    bool may = request->node < n_nodes && !is_machine_changed();
    shared->flags = RUN_LINES | RUN_COPY | order_of(request);
    if (!may || !start_copy(&line, &nodes[request->node])) {
        if (!reply.error) reply.error = ESTALE;
        give_up(&line, &reply);
        return;
    }
    set_cpu(0);  /* of the living processes, which have just started */
    if (!(request->flags & REQUEST_LINE)) {
        settle_copy(&line);
        return;
    }
    strcpy(shared->input, text);
    shared->held_until = 0;
    shared->dumped = 0;
    shared->state_length = 0;
    note_company(false);
    show_uptime(false);
    shared->call_answer = request->flags & REQUEST_LAST ? LINE_CONTINUE_LAST : LINE_CONTINUE;
    answer_line(notices);
    tell(&line, watch(&line));
}

void look_at_shell(const struct request *request)
{
    struct reply reply = {0};
    see_shell();
    struct watched shell = live.waiting;
    shell.request = request;
    shell.reply = &reply;
    reply.status = live.status;  /* if it has ended */
    know_cpu(true);
    tell(&shell, 0);
}

void hand_ends(void)
{
    unsigned count = 0;
    while (count < 3 && live.ends[count] >= 0) count++;
    send_with(control, "", 1, live.ends, count);
    close_ends();
}

void enter_machine(const struct request *request)
{
    static struct channel channels[2] = {{.fd = -1}, {.fd = -1}};
    struct reply reply = {0};
    struct watched run = {.request = request, .channels = channels, .shell = -1, .beside = true, .reply = &reply};
    close_ends();
    uint32_t pid = live.open ? 0 : SHELL_PID;
    if (!live.open) live.bounds = *request;
    open_machine();
    live.entered = true;
    know_cpu(true);
    run.cpu_before_ms = live.cpu_ms;
    shared->flags = order_of(request);
    note_company(false);
    show_uptime(false);
    start_run(&run, pid, RUN_WITH_STDIN, NULL);
    live.ends[0] = run.feed.fd;
    run.feed.fd = -1;
    for (int i = 0; i < 2; i++) {
        live.ends[1 + i] = channels[i].fd;
        channels[i].fd = -1;
    }
    live.meanwhile |= watch(&run);
    if (reply.error) close_ends();
    shared->dumped = 0;
    reply.started_ns = live.started_ns;
    reply.ended_ns = now_ns(CLOCK_REALTIME);
    forget_changes();
    answer(&reply, channels, 0);
}

void run_beside(const struct request *request, const uint8_t *standard_input)
{
    static struct channel channels[2] = {{.fd = -1}, {.fd = -1}};
    struct reply reply = {.started_ns = live.started_ns};
    struct watched run = {.request = request, .channels = channels, .shell = -1, .beside = true, .start = live.start, .reply = &reply};
    shared->flags = order_of(request);
    shared->uptime = 0;
    note_company(true);
    show_uptime(false);
    uint32_t flags = RUN_BESIDE;
    if (request->flags & REQUEST_APART) flags |= RUN_APART;
    else if (live.start >= 0 && !strcmp(shared->cwd, live.directory)) flags |= RUN_WITH_START;
    start_run(&run, 0, flags, request->stdin_length ? standard_input : NULL);
    unsigned noticed = watch(&run);
    close_fd(&run.feed.fd);
    close_fd(&run.slave);
    for (int i = 0; i < 2; i++) close_fd(&channels[i].fd);
    end_newcomers();
    reply.ended_ns = now_ns(CLOCK_REALTIME);
    find_changes(request, &reply);
    reply.flags |= traces_of_line(noticed);
    live.noticed |= noticed;
    live.left |= reply.flags;
    answer(&reply, channels, request->output_max);
}

void end_shell(const struct request *request)
{
    struct reply reply = {0};
    if (live.waiting.shell >= 0) reap(&reply);
    else clear_survivors(&reply);
    close_ends();
    close_fd(&live.start);
    forget_nodes();
    struct disk_state disk = disk_state();
    if (memcmp(&disk, &pristine_disk, sizeof disk)) reply.flags |= REPLY_FILES;
    reply.flags |= live.left | traces_left(live.noticed | live.meanwhile, live.had_terminal);
    if (!init_alive) reply.error = ECHILD;
    forget_output();
    forget_changes();
    answer(&reply, live.channels, request->output_max);
    empty_shared_memory();
    make_pristine(reply.flags, reply.flags & REPLY_NETWORK, !reply.error);
    live.open = live.entered = false;
}

/* Whether background processes exceed a limit. */
static bool is_past_limits(void)
{
    struct usage used = usage_now();
    return used.cpu_ms > config.cpu_ms + live.cpu_ms || used.bytes > live.bounds.memory_max || host_is_short_of_memory() ||
           is_flood(live.channels, &live.bounds);
}

void await_request(void)
{
    static int64_t next_look; /* frequent requests do not postpone it */
    struct reply reply = {0};
    int64_t until = now_ns(CLOCK_MONOTONIC) + live.bounds.idle_ms * 1000000ll;
    while (live.waiting.shell >= 0 || live.entered) {
        struct pollfd watched[5] = {
            {control, POLLIN | POLLRDHUP, 0}, {notices, POLLIN, 0}, {live.channels[0].fd, POLLIN, 0},
            {live.channels[1].fd, POLLIN, 0}, {live.waiting.shell, POLLIN, 0},
        };
        bool company = has_company();
        int64_t now = now_ns(CLOCK_MONOTONIC), wake = until;
        bool past = false;
        if (company && now >= next_look) { /* even during constant events */
            past = is_past_limits();
            show_uptime(false);
            next_look = now + IDLE_LOOK_MS * 1000000ll;
        }
        if (company && next_look < wake) wake = next_look;
        int64_t left = (wake - now + 999999) / 1000000;
        poll(watched, 5, past || left < 0 ? 0 : (int)left);
        if (watched[0].revents && !past) return;
        if (watched[1].revents & POLLIN) live.meanwhile |= attend_notice(notices);
        if (watched[2].revents || watched[3].revents) read_channels(live.channels, &live.bounds);
        bool over = past || now_ns(CLOCK_MONOTONIC) >= until || is_flood(live.channels, &live.bounds);
        if (!over && !watched[4].revents) continue;
        if (live.waiting.shell >= 0) reap(&reply);
        else {
            end_survivors();
            know_cpu(true);
            until = now_ns(CLOCK_MONOTONIC) + live.bounds.idle_ms * 1000000ll;
        }
    }
}
