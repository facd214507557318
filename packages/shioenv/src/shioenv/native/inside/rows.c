/* Rows typed one after the other in one shell, and rows run beside it. bash's own functions, called as C functions, run them. So
 * running a row involves no names that an earlier row could define, disable or alias, and each row is parsed separately. Rows are
 * in the shared memory, because reading that changes no counter of the kernel.
 *
 * The actual input is `. /dev/stdin`; this code replaces that builtin once.
 */
#define _GNU_SOURCE
#include "rows.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "directory.h"
#include "server.h"

enum { SEVAL_NOHIST = 4, SEVAL_RESETLINE = 16, EXITPROG = 3 };  /* builtins/common.h, bashjmp.h: since 4.0 */
enum { ASIDE = 240 };  /* lowest descriptor hidden from rows */

/* builtins.h, unchanged since 2.0 */
typedef int (*builtin)(void *);
struct builtin_entry { char *name; builtin function; int flags; char *const *long_doc; const char *short_doc, *handle; };

static struct builtin_entry *const *builtins;
static const int *builtin_count;
static builtin source_builtin;
static int (*parse_and_execute)(char *, const char *, int), *last_command_exit_value, *nesting;
static int *parsing_level;  /* of `parse_and_execute`; in the outermost call, bash replaces itself by the last command */
static void (*jump_to_top_level)(int);
static FILE **standard_output;
static char **initial_environment;
static const char *initial_directory;
static struct rlimit initial_limits[RLIM_NLIMITS];

/* Replace the function of `.`. Its place is looked up each time, because a starting bash sorts its builtins. */
static int replace_source(builtin now, builtin other)
{
    for (int i = 0; i < *builtin_count; i++)
        if ((*builtins)[i].function == now && !strcmp((*builtins)[i].name, ".")) {
            (*builtins)[i].function = other;
            return 1;
        }
    return 0;
}

static int silence = -1, outputs[2] = {-1, -1};  /* /dev/null; the saved outputs of the shell while it is silenced */
static int first_directory = -1;  /* the shell's start directory, even if a row removes or moves it */

static void print_to(int out, int errors)
{
    fflush(*standard_output);
    dup2(out, 1);
    dup2(errors, 2);
}

/* Like `eval ROW`, with the status of a shell that reads the row itself. */
static void run_here(const char *row)
{
    parse_and_execute(strdup(row), "-c", SEVAL_NOHIST | SEVAL_RESETLINE);
    if (*last_command_exit_value > 255) *last_command_exit_value = 2;  /* the status for syntax errors in builtins */
}

/* Fork a process without the knowledge of bash; SIGCHLD is blocked until it is reaped. */
static pid_t start_process(sigset_t *before)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, before);
    pid_t child = fork();
    if (!child) sigprocmask(SIG_SETMASK, before, NULL);
    return child;
}

static int end_of_process(pid_t child, const sigset_t *before)
{
    int status = 125 << 8;
    if (child > 0) while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    sigprocmask(SIG_SETMASK, before, NULL);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Run a row in an independent bash. It starts at this one's start path if that exists, else in the start directory itself. */
__attribute__((cold)) static int run_beside(const char *row, int out, int errors)
{
    sigset_t before;
    pid_t child = start_process(&before);
    if (!child) {
        print_to(out, errors);
        close(0);
        openat(AT_FDCWD, "/dev/null", O_RDONLY);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        for (unsigned i = 0; i < RLIM_NLIMITS; i++) syscall(SYS_prlimit64, 0, i, &initial_limits[i], NULL);
        umask(022);
        bool started = initial_directory && !enter_directory(initial_directory, initial_environment);
        if (!started && syscall(SYS_fchdir, first_directory)) _exit(125);
        exec_bash(row, initial_environment);
        _exit(125);
    }
    return end_of_process(child, &before);
}

/* List the ids of the visible processes except this one; -1 on failure. */
enum { PROCESSES = 4096 };

__attribute__((cold)) static int processes(int found[PROCESSES])
{
    static char entries[32768];
    struct statfs kind;
    int count = 0, own = (int)syscall(SYS_getpid);
    int fd = openat(AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    if (syscall(SYS_fstatfs, fd, &kind) || kind.f_type != PROC_SUPER_MAGIC) count = -1;
    for (long length; count >= 0 && (length = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
        for (long at = 0; at < length; at += ((struct dirent64 *)(entries + at))->d_reclen) {
            int number = 0;
            for (const char *digit = ((struct dirent64 *)(entries + at))->d_name; *digit >= '0' && *digit <= '9'; digit++)
                number = number * 10 + (*digit - '0');
            if (number && number != own && count < PROCESSES) found[count++] = number;
        }
    }
    close(fd);
    return count;
}

static int first_processes[PROCESSES], first_count;
static uint32_t background_ms;  /* saved before the first row, which may overwrite the shared memory */

static int is_alone(void)
{
    static int now[PROCESSES];
    int count = processes(now);
    for (int i = 0; i < count; i++) {
        int known = 0;
        for (int j = 0; j < first_count && !known; j++) known = first_processes[j] == now[i];
        if (!known) return 0;
    }
    return count >= 0;
}

/* Wait for background processes of a row, as the supervisor does after the last row. They get the same time, so that their effects
 * in it precede the next row. */
static void await_processes(void)
{
    struct timespec now = {0};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    int64_t until = now.tv_sec * 1000ll + now.tv_nsec / 1000000 + background_ms;
    while (now.tv_sec * 1000ll + now.tv_nsec / 1000000 < until && !is_alone()) {  /* a signal may interrupt a sleep */
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    }
}

/* Replaces `. /dev/stdin`. The shell ends with the last row and does not return to the caller. A row is not read before all
 * earlier rows have ended. */
__attribute__((cold)) static int run_rows(void *nothing)
{
    (void)nothing;
    replace_source(run_rows, source_builtin);
    for (unsigned i = 0; i < RLIM_NLIMITS; i++) syscall(SYS_prlimit64, 0, i, NULL, &initial_limits[i]);
    const char *rows = shared->rows;
    if (nesting) --*nesting;  /* visible in the output of `set -x` */
    int null = openat(AT_FDCWD, "/dev/null", O_WRONLY);
    silence = fcntl(null, F_DUPFD_CLOEXEC, ASIDE);
    close(null);
    for (int i = 0; i < 2; i++) outputs[i] = fcntl(1 + i, F_DUPFD_CLOEXEC, ASIDE);
    int here = openat(AT_FDCWD, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    first_directory = fcntl(here, F_DUPFD_CLOEXEC, ASIDE);
    close(here);
    if (shared->typed_rows) {
        sigset_t before;
        pid_t child = start_process(&before);
        if (child) {
            end_of_process(child, &before);
            syscall(SYS_kill, -1, SIGKILL);
            rows += shared->typed_rows;
        }
    }
    background_ms = shared->background_ms;
    first_count = processes(first_processes);
    for (const char *row = rows; *row; row += strlen(row) + 1) {
        if (row > rows) await_processes();
        switch (*row) {
        case ROW_END: jump_to_top_level(EXITPROG);
            break;
        case ROW_TYPED:
            print_to(outputs[0], outputs[1]);
            for (int i = 0; i < 2; i++) close(outputs[i]);  /* the last row needs no saved outputs */
            close(silence);
            close(first_directory);
            run_here(row + 1);
            break;
        case ROW_AGAIN:
            print_to(silence, silence);
            run_here(row + 1);
            break;
        case ROW_BESIDE:
            *last_command_exit_value = run_beside(row + 1, outputs[0], outputs[1]);
            break;
        case ROW_BESIDE_AGAIN: run_beside(row + 1, silence, silence);
        }
    }
    jump_to_top_level(EXITPROG);
    return 0;
}

/* Enter other mounts, keeping the working directory and standard input. The supervisor checks whether this succeeded. */
static void enter_mounts(int mounts)
{
    char here[CWD_MAX];
    if (getcwd(here, sizeof here) && !setns(mounts, CLONE_NEWNS)) {
        int null = openat(AT_FDCWD, "/dev/null", O_RDONLY);
        if (chdir(here) || null < 0 || dup2(null, 0) < 0) _exit(125);
        close(null);
    }
    close(mounts);
}

/* Describe the kernel state of this shell in the shared memory. */
__attribute__((cold)) static void describe_node(void)
{
    struct node_state *node = &shared->node;
    for (unsigned i = 0; i < NODE_SIGNALS; i++) syscall(SYS_rt_sigaction, i + 1, NULL, node->actions[i], 8);
    for (unsigned i = 0; i < NODE_LIMITS; i++) syscall(SYS_prlimit64, 0, i, NULL, node->limits[i]);
    node->mask = (uint32_t)syscall(SYS_umask, 0);
    syscall(SYS_umask, node->mask);
}

/* Take the kernel state in the shared memory, and map what the memory of another shell needs. */
__attribute__((cold)) static void prepare_node(void)
{
    const struct node_state *node = &shared->node;
    for (unsigned i = 0; i < NODE_SIGNALS; i++) syscall(SYS_rt_sigaction, i + 1, node->actions[i], NULL, 8);
    for (unsigned i = 0; i < NODE_LIMITS; i++) syscall(SYS_prlimit64, 0, i, node->limits[i], NULL);
    syscall(SYS_umask, node->mask);
    if (node->heap_end) syscall(SYS_brk, node->heap_end);
    for (unsigned i = 0; i < node->n_areas && i < NODE_AREAS; i++) {
        if (!node->areas[i].mapped) syscall(SYS_munmap, node->areas[i].start, node->areas[i].length);
        else syscall(SYS_mmap, node->areas[i].start, node->areas[i].length, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
}

static jmp_buf waiting;  /* the shell in its newest call */
enum { RUNS = 1, WAITS };  /* what a shell does with another one's memory */

/* Wait for a line. A shell that continues with another one's memory returns from the other one's call. Both are in the same call of
 * this function, at the same place of the same stack. */
__attribute__((cold)) static long await_line(void)
{
    switch (_setjmp(waiting)) {
    case RUNS: return 0;
    case WAITS:
        dump_state();
        shared->line_status = (uint32_t)*last_command_exit_value;
    }
    for (;;) {
        long answer = syscall(SYS_prctl, LINE_CALL, 0, 0, 0, 0);
        if (answer > 0) enter_mounts((int)answer);
        else if (answer || shared->call_answer <= LINE_LAST) return answer;
        else if (shared->call_answer >= LINE_CONTINUE) {
            shared->call_answer -= LINE_CONTINUE;
            longjmp(waiting, RUNS);
        }
        else if (shared->call_answer == LINE_SETTLE) longjmp(waiting, WAITS);
        else if (shared->call_answer == LINE_PREPARE) prepare_node();
        else describe_node();
    }
}

/* Show all lines so far as the shell's input. A line may begin with the newlines of the lines before it. */
__attribute__((cold)) static void show_lines(const char *line)
{
    static char *text;
    static size_t length, above;
    size_t newlines = strspn(line, "\n");
    if (newlines >= above) line += above;
    size_t more = strlen(line) + 1;
    if (length + more > INPUT_MAX) length = 0;
    char *longer = realloc(text, length + more);
    if (!longer) return;
    text = longer;
    memcpy(text + length, line, more);
    show_input(text);
    length += more;
    text[length - 1] = '\n';
    for (const char *at = line; at; at = strchr(at, '\n'), at += at != NULL) above++;
}

/* Replaces `. /dev/stdin`, once. */
__attribute__((cold)) static int run_lines(void *nothing)
{
    (void)nothing;
    replace_source(run_lines, source_builtin);
    if (nesting) --*nesting;
    bool is_copy = shared->flags & RUN_COPY;
    for (;; is_copy = false) {
        if (!is_copy) dump_state();
        shared->line_status = (uint32_t)*last_command_exit_value;
        if (await_line()) break;
        shared->input[INPUT_MAX - 1] = 0;
        show_lines((const char *)shared->input);
        bool last = shared->call_answer == LINE_LAST;
        if (last && parsing_level) *parsing_level = 0;
        run_here((const char *)shared->input);
        if (last) break;
        fflush(*standard_output);
    }
    jump_to_top_level(EXITPROG);
    return 0;
}

/* Make `. /dev/stdin` call another function, once. */
static void take(builtin what)
{
    builtins = dlsym(RTLD_DEFAULT, "shell_builtins");
    builtin_count = dlsym(RTLD_DEFAULT, "num_shell_builtins");
    source_builtin = (builtin)dlsym(RTLD_DEFAULT, "source_builtin");
    parse_and_execute = (int (*)(char *, const char *, int))dlsym(RTLD_DEFAULT, "parse_and_execute");
    jump_to_top_level = (void (*)(int))dlsym(RTLD_DEFAULT, "jump_to_top_level");
    last_command_exit_value = dlsym(RTLD_DEFAULT, "last_command_exit_value");
    nesting = dlsym(RTLD_DEFAULT, "indirection_level");
    parsing_level = dlsym(RTLD_DEFAULT, "parse_and_execute_level");
    standard_output = dlsym(RTLD_DEFAULT, "stdout");
    bool known = builtins && builtin_count && parse_and_execute && jump_to_top_level && last_command_exit_value;
    if (!known || !replace_source(source_builtin, what)) _exit(125);
}

void take_rows(char **environment)
{
    initial_environment = environment;
    initial_directory = strdup(shared->cwd);
    take(run_rows);
}

void take_lines(void) { take(run_lines); }
