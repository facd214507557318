/* The library loaded into the system's own bash. It stops bash before its first command, and forks one child per input from there.
 * Each child continues exactly like `bash --norc --noprofile -c INPUT`.
 *
 * SHIOENV_SERVER selects the place to stop. "main" is before main() runs, and correct by construction. "late" is after bash's own
 * initialisation (when it opens BASH_ENV). It is faster, but the child needs the values that a fresh shell would have determined
 * itself. The probe suite decides which one a bash supports.
 *
 * When the shell ends (exit, execve, a fatal signal to itself), bash's own builtins dump its state. They are called as C functions,
 * so names that an input redefines or disables, and descriptors that it closes, have no effect.
 *
 * The library is compiled on the host, and uses the system's C library, which may be older. So it is linked without a C library,
 * without symbol versions, and calls only the functions in `imports.txt`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "directory.h"
#include "rows.h"
#include "server.h"

/* The function behind atexit(3), which itself is not in the shared C library. */
int __cxa_atexit(void (*function)(void *), void *argument, void *library);

#define LATE_FILE "/.shioenv-late"
#define STATE_GROUPS 256

typedef int (*main_function)(int, char **, char **);

static main_function bash_main;
static int serving, late, armed;
pid_t shell_pid;
static int saved_argc;
static char **saved_argv, **saved_environment;
static struct prctl_mm_map memory_map;

/* bash's data structures for a builtin's argument list (command.h, stable since 2.0). */
typedef struct { char *word; int flags; } word_desc;
typedef struct word_list { struct word_list *next; word_desc *word; } word_list;
typedef int (*builtin)(word_list *);
typedef struct { char *name, *value; } shell_variable;

/* ---- the state dump ---------------------------------------------------------------------------- */

static const struct { const char *section, *symbol, *argument; } sections[] = {
    {"declare -p", "declare_builtin", "-p"}, {"shopt -p", "shopt_builtin", "-p"},     {"set +o", "set_builtin", "+o"},
    {"ulimit -a", "ulimit_builtin", "-a"},   {"alias -p", "alias_builtin", "-p"},
    {"umask", "umask_builtin", NULL},        {"trap -p", "trap_builtin", "-p"},
};
enum { N_SECTIONS = sizeof sections / sizeof sections[0] };
static builtin builtins[N_SECTIONS];
static shell_variable **(*visible_functions)(void);
static shell_variable *(*find_variable)(const char *);
static FILE **standard_output, **standard_error;  /* the C library's variables, which some headers do not permit to set */
static char ***script_arguments;  /* bash's variable: NULL until it restarts as a script */

/* Dump each function in a separate section, because a here-document may contain anything, including text that looks like a
 * function. */
static void dump_functions(FILE *out)
{
    shell_variable **functions = visible_functions && builtins[0] ? visible_functions() : NULL;
    for (int i = 0; functions && functions[i]; i++) {
        word_desc option = {"-pf", 0}, name = {functions[i]->name, 0};
        word_list last = {NULL, &name}, list = {&last, &option};
        fputc(0, out);
        fputs("function\n", out);
        builtins[0](&list);
    }
    free(functions);
}

/* Get the former path of the working directory. If the directory was not removed, its path is too long. */
__attribute__((cold)) static int name_of_removed_directory(char cwd[CWD_MAX])
{
    static const char mark[] = " (deleted)";
    ssize_t length = readlink("/proc/self/cwd", cwd, CWD_MAX), name = length - (ssize_t)sizeof mark + 1;
    if (name <= 0 || length >= CWD_MAX || strncmp(cwd + name, mark, sizeof mark - 1)) return 0;
    cwd[name] = 0;
    return 1;
}

static void dump_sections(FILE *out)
{
    for (unsigned i = 0; i < N_SECTIONS; i++) {
        word_desc word = {(char *)sections[i].argument, 0};
        word_list list = {NULL, &word};
        fputc(0, out);
        fprintf(out, "%s\n", sections[i].section);
        if (builtins[i]) builtins[i](sections[i].argument ? &list : NULL);
    }
    dump_functions(out);
    static gid_t groups[STATE_GROUPS];
    int n = getgroups(STATE_GROUPS, groups);
    fputc(0, out);
    fprintf(out, "groups\n%u", (unsigned)getegid());
    for (int i = 0; i < n; i++) fprintf(out, " %u", (unsigned)groups[i]);
    fputc(0, out);
    fprintf(out, "cwd\n");
    static char cwd[CWD_MAX];
    if (getcwd(cwd, sizeof cwd) || name_of_removed_directory(cwd)) fputs(cwd, out);
}

/* The write function of a stream on the state; data that does not fit is an error of the stream. */
static size_t state_length;

static ssize_t keep(void *nothing, const char *text, size_t length)
{
    (void)nothing;
    if (length > STATE_MAX - state_length) length = STATE_MAX - state_length;
    memcpy(shared->state + state_length, text, length);
    state_length += length;
    return (ssize_t)length;
}

/* If the kernel refuses to execute a script without a `#!` line, bash restarts as that script in the same process. The shell has
 * then ended, as with any execve. */
static int is_script(void) { return script_arguments && *script_arguments; }

void dump_state(void)
{
    if (!armed || syscall(SYS_getpid) != shell_pid) return;
    if (is_script()) {
        shared->dumped = 1;  /* before its execve */
        return;
    }
    int error = errno;
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    fflush(*standard_output);
    state_length = shared->state_length = 0;
    FILE *standard = *standard_output, *errors = *standard_error;
    FILE *out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = keep});
    if (out) {
        /* bash reports an overlong state as an error, which must not reach the input's output */
        *standard_output = *standard_error = out;
        dump_sections(out);
        fflush(out);
        *standard_output = standard;
        *standard_error = errors;
        shared->state_length = (uint32_t)state_length;
        shared->dumped = 1;
        fclose(out);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
}

static void dump_at_exit(void *nothing)
{
    (void)nothing;
    dump_state();
}

/* The shell continues after all, so the dumped state is not its final one. */
static int not_the_end(long result)
{
    if (armed && syscall(SYS_getpid) == shell_pid && !is_script()) shared->dumped = 0;
    return (int)result;
}

int execve(const char *path, char *const arguments[], char *const environment[])
{
    dump_state();
    return not_the_end(syscall(SYS_execve, path, arguments, environment));
}

int kill(pid_t pid, int signal_number)
{
    if (!signal_number || (pid != shell_pid && pid > 0)) return (int)syscall(SYS_kill, pid, signal_number);
    dump_state();
    return not_the_end(syscall(SYS_kill, pid, signal_number));
}

/* ---- becoming `bash -c INPUT` ------------------------------------------------------------------ */

/* Set /proc/PID/cmdline and environ: a new memory area with exactly the data that execve would have put on the stack. */
static void show_arguments(const char *input)
{
    static char *former;
    static size_t former_room;
    size_t room = strlen(input) + 1;
    for (int i = 0; i < saved_argc - 1; i++) room += strlen(saved_argv[i]) + 1;
    for (char **e = saved_environment; *e; e++) room += strlen(*e) + 1;
    char *area = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return;
    struct prctl_mm_map map = memory_map;
    char *at = area;
    map.arg_start = (uintptr_t)at;
    for (int i = 0; i < saved_argc; i++) at = stpcpy(at, i == saved_argc - 1 ? input : saved_argv[i]) + 1;
    map.arg_end = map.env_start = (uintptr_t)at;
    for (char **e = saved_environment; *e; e++) at = stpcpy(at, *e) + 1;
    map.env_end = (uintptr_t)at;
    map.brk = (uintptr_t)sbrk(0);
    if (map.brk < map.start_brk) map.brk = map.start_brk;
    map.auxv = NULL;
    map.auxv_size = 0;
    map.exe_fd = (uint32_t)-1;
    prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0);
    if (former) syscall(SYS_munmap, former, former_room);
    former = area;
    former_room = room;
}

/* Read the memory layout that PR_SET_MM_MAP requires from the host's /proc/self/stat, because this process is not in the pid
 * namespace of the mounted /proc. */
__attribute__((cold)) static void read_memory_map(void)
{
    char text[4096];
    int fd = openat(FD_PROC, "self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (length <= 0) return;
    text[length] = 0;
    char *at = strrchr(text, ')');
    unsigned long fields[53] = {0};
    for (int i = 3; at && i < 53; i++) {
        at = strchr(at, ' ');
        if (!at) break;
        at++;
        for (const char *digit = at; *digit >= '0' && *digit <= '9'; digit++)
            fields[i] = fields[i] * 10 + (unsigned long)(*digit - '0');
    }
    memory_map.start_code = fields[26];
    memory_map.end_code = fields[27];
    memory_map.start_stack = fields[28];
    memory_map.start_data = fields[45];
    memory_map.end_data = fields[46];
    memory_map.start_brk = fields[47];
    memory_map.brk = fields[47];
}

/* bash's variables that a child sets, looked up once by the server. */
static struct {
    pid_t *dollar_dollar, *group, *original_group;
    char **execution_string;
    time_t *start;
    void (*reseed[2])(void);
    void (*set_directory)(char *);
    shell_variable *(*bind)(const char *, char *, int);
    shell_variable *input, *directory;
} bash;

static void *symbol(const char *name) { return dlsym(RTLD_DEFAULT, name); }

/* In the server, once bash is initialised: reset variables that depend on BASH_ENV and on this process's ids, and find those that
 * each child must set. */
__attribute__((cold)) static void prepare_late_state(void)
{
    shell_variable *(*find)(const char *) = find_variable;
    int (*unbind)(const char *) = symbol("unbind_variable");
    void (*flush)(void *) = symbol("array_flush");
    int *argv_ready = symbol("bash_argv_initialized");
    bash.dollar_dollar = symbol("dollar_dollar_pid");
    bash.group = symbol("shell_pgrp");
    bash.original_group = symbol("original_pgrp");
    bash.execution_string = symbol("command_execution_string");
    bash.start = symbol("shell_start_time");
    bash.reseed[0] = symbol("seedrand");
    bash.reseed[1] = symbol("seedrand32");
    bash.set_directory = symbol("set_working_directory");
    bash.bind = symbol("bind_variable");
    if (!find || !bash.bind || !unbind) return;
    shell_variable *parent = find("PPID");
    if (parent) {
        /* allocated, because bash frees it when it restarts as a script without a `#!` line */
        char number[16];
        snprintf(number, sizeof number, "%d", (int)syscall(SYS_getpid));
        free(parent->value);
        parent->value = strdup(number);
    }
    unbind("BASH_ENV");
    static const char *const argument_stacks[] = {"BASH_ARGC", "BASH_ARGV"};
    for (int i = 0; i < 2; i++) {
        shell_variable *stack = find(argument_stacks[i]);
        if (stack && stack->value && flush) flush(stack->value);
    }
    if (argv_ready) *argv_ready = 0;
    bash.input = bash.bind("BASH_EXECUTION_STRING", "", 0);
    bash.directory = find("PWD");
}

/* Set the variables that a starting bash derives from its own process. */
static void repair_late_state(char *input)
{
    if (bash.dollar_dollar) *bash.dollar_dollar = shell_pid;
    if (bash.execution_string) *bash.execution_string = input;
    if (bash.group) *bash.group = shell_pid;
    if (bash.original_group && *bash.original_group > 0) *bash.original_group = shell_pid;
    if (bash.start) *bash.start = time(NULL);
    for (int i = 0; i < 2; i++) if (bash.reseed[i]) bash.reseed[i]();
    if (bash.input) bash.input->value = strdup(input);
    char own[CWD_MAX];
    const char *cwd = name_in_environment();
    if (!cwd) cwd = getcwd(own, sizeof own);
    if (bash.directory && cwd && strcmp(cwd, bash.directory->value)) {
        bash.bind("PWD", (char *)(uintptr_t)cwd, 0);
        if (bash.set_directory) bash.set_directory((char *)(uintptr_t)cwd);
    }
}

/* Set the arguments of `bash -c INPUT`. An input that looks like an option is not treated as one. */
static void take_arguments(char *input)
{
    static char *arguments[8];
    if ((*input == '-' || *input == '+') && saved_argc < 7 && saved_argv != arguments) {
        for (int i = 0; i < saved_argc - 1; i++) arguments[i] = saved_argv[i];
        arguments[saved_argc++ - 1] = "--";
        saved_argv = arguments;
    }
    show_arguments(input);
    saved_argv[saved_argc - 1] = input;
}

__attribute__((cold)) void show_input(const char *text)
{
    const char *before = saved_argv[saved_argc - 1];
    char *input = strdup(text), *variable = strdup(text);
    if (!input || !variable) return;
    shell_variable *shown = find_variable ? find_variable("BASH_EXECUTION_STRING") : NULL;
    if (shown && shown->value && !strcmp(shown->value, before)) {  /* else a line set or removed it */
        free(shown->value);
        shown->value = variable;
    } else free(variable);
    if (bash.execution_string) *bash.execution_string = input;
    take_arguments(input);
}

/* In the child: become the input's shell. */
static void become_shell(void)
{
    size_t length = shared->input_length < INPUT_MAX ? shared->input_length : INPUT_MAX - 1;
    char *input = malloc(length + 1);
    memcpy(input, shared->input, length);
    input[length] = 0;
    shared->taken = 1;
    if (shared->flags & RUN_FRESH) exec_fresh(saved_environment);
    if (shared->flags & RUN_ROWS) take_rows(saved_environment);
    if (shared->flags & RUN_LINES) take_lines();
    shell_pid = (pid_t)syscall(SYS_getpid);
    take_arguments(input);
    if (late) repair_late_state(input);
    else signal(SIGCHLD, SIG_DFL);
    __cxa_atexit(dump_at_exit, NULL, NULL);
    armed = 1;
}

/* Remove this library's variables, so that neither bash nor the input sees them. */
__attribute__((cold)) static void read_environment(char **environment)
{
    char **kept = environment;
    for (char **e = environment; *e; e++) {
        if (!strncmp(*e, "LD_PRELOAD=", 11) || !strncmp(*e, "LD_BIND_NOW=", 12)) continue;
        if (!strncmp(*e, "SHIOENV_SERVER=", 15)) {
            serving = 1;
            late = !strcmp(*e + 15, "late");
            continue;
        }
        *kept++ = *e;
    }
    *kept = NULL;
}

static int preloaded_main(int argc, char **argv, char **environment)
{
    read_environment(environment);
    if (!serving) return bash_main(argc, argv, environment);
    saved_argc = argc;
    saved_argv = argv;
    saved_environment = calloc(4096, sizeof *saved_environment);
    for (int i = 0, n = 0; environment[i] && n < 4095; i++)
        if (strncmp(environment[i], "BASH_ENV=", 9)) saved_environment[n++] = environment[i];
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, FD_SHARED, 0);
    if (shared == MAP_FAILED) _exit(125);
    close(FD_SHARED);
    for (unsigned i = 0; i < N_SECTIONS; i++) builtins[i] = (builtin)symbol(sections[i].symbol);
    visible_functions = (shell_variable **(*)(void))symbol("all_visible_functions");
    script_arguments = symbol("subshell_argv");
    find_variable = (shell_variable *(*)(const char *))symbol("find_variable");
    standard_output = symbol("stdout");
    standard_error = symbol("stderr");
    read_memory_map();
    syscall(SYS_personality, 0);  /* programs have random addresses (start_server) */
    prctl(PR_SET_DUMPABLE, 0);
    if (late) return bash_main(argc, argv, environment);
    serve(saved_environment);
    become_shell();
    return bash_main(saved_argc, saved_argv, saved_environment);
}

int __libc_start_main(main_function program, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end)
{
    int (*real)(main_function, int, char **, void (*)(void), void (*)(void), void (*)(void), void *) =
        dlsym(RTLD_NEXT, "__libc_start_main");
    bash_main = program;
    return real(preloaded_main, argc, argv, init, fini, loader_fini, stack_end);
}

/* Intercepts open(2). Once initialised, bash opens the file in BASH_ENV, which is the late stop. When bash opens the script as which
 * it restarts, the shell's final state is known. */
int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned mode = va_arg(more, unsigned);
    va_end(more);
    if (late && !armed && !strcmp(path, LATE_FILE)) {
        prepare_late_state();
        serve(saved_environment);
        become_shell();
        errno = ENOENT;
        return -1;
    }
    if (is_script()) dump_state();
    return openat(AT_FDCWD, path, flags, mode);
}
