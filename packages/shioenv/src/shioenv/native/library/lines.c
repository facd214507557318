#include "kept_limits.h"
#include "lines.h"

#ifdef __x86_64__

static const char *after_line(const char *at)
{
    while (*at && *at++ != '\n') {}
    return at;
}

/* ---- lines with a name --------------------------------------------------------------------------- */

enum { ALWAYS, NEVER, ONE_PROCESSOR };

/* Lines of `status` to replace or omit, by their start. `value` is written after the name and a tab, preceded by empty `groups` of
 * 32 memory nodes each, since Debian's kernel supports 1,024 nodes. NEVER: lines that the declared kernel, 6.1, does not have.
 * ALWAYS: lines that would reveal the sandbox's filters or the host. */
static const struct { char name[28]; uint8_t when, groups; char value[22]; } status_lines[] = {
    {"Kthread:", NEVER, 0, ""},              /* since 6.8 */
    {"untag_mask:", NEVER, 0, ""},           /* since 6.4 */
    {"x86_Thread_features", NEVER, 0, ""},   /* since 6.6; also x86_Thread_features_locked */
    {"Seccomp:", ALWAYS, 0, "0"},
    {"Seccomp_filters:", ALWAYS, 0, "0"},
    {"Speculation_Store_Bypass:", ALWAYS, 0, "thread vulnerable"},
    {"SpeculationIndirectBranch:", ALWAYS, 0, "conditional enabled"},
    {"Cpus_allowed:", ONE_PROCESSOR, 0, "1"},
    {"Cpus_allowed_list:", ONE_PROCESSOR, 0, "0"},
    {"Mems_allowed:", ALWAYS, 31, "00000001"},
};

/* Return the row that applies to a line, or a negative number if the line stays as it is. */
static int row_of(const char *line)
{
    int row = sizeof status_lines / sizeof *status_lines;
    while (--row >= 0)
        if (begins(line, status_lines[row].name) && (status_lines[row].when != ONE_PROCESSOR || facts.processors == 1)) break;
    return row;
}

void show_status(struct output *shown, const char *text)
{
    for (const char *end; *text; text = end) {
        end = after_line(text);
        int row = row_of(text);
        if (row < 0) show_until(shown, text, end);
        if (row < 0 || status_lines[row].when == NEVER) continue;
        show(shown, status_lines[row].name), show(shown, "\t");
        for (int i = 0; i < status_lines[row].groups; i++) show(shown, "00000000,");
        show(shown, status_lines[row].value), show(shown, "\n");
    }
}

/* ---- limits in columns --------------------------------------------------------------------------- */

enum { NAME_COLUMNS = 26, VALUE_COLUMNS = 21 };
enum value { SAME, UNLIMITED, NO_CORE, SOFT_FILES, HARD_FILES };

/* Limits with other values; `where_kept`: only if the limit of file locks stores the declared limits of open files. */
static const struct { char name[20]; bool where_kept; uint8_t values[2]; } limits[] = {
    {"Max core file size", false, {NO_CORE, SAME}},
    {"Max open files", true, {SOFT_FILES, HARD_FILES}},
    {"Max file locks", true, {UNLIMITED, SAME}},
};

/* Show a value instead of the kernel's at `at`; return the text after it. */
static const char *show_limit(struct output *shown, enum value value, uint64_t kept, const char *at, const char *end)
{
    const char *next = end - at > VALUE_COLUMNS ? at + VALUE_COLUMNS : end;
    size_t until = shown->length + VALUE_COLUMNS;
    if (value == NO_CORE && !begins(at, "1 ")) value = SAME;  /* 1 represents 0: a crash then starts no handler of the host */
    if (value == SAME) return show_until(shown, at, next), next;
    if (value == UNLIMITED) show(shown, "unlimited");
    else show_number(shown, value == NO_CORE ? 0 : value == SOFT_FILES ? KEPT_SOFT(kept) : KEPT_HARD(kept));
    do show(shown, " ");
    while (shown->length < until && shown->length < SHOWN);
    return next;
}

void show_limits(struct output *shown, const char *text)
{
    const char *locks = find(text, "Max file locks");
    uint64_t kept = locks ? (locks += NAME_COLUMNS, number(&locks)) : 0;
    for (const char *end; *text; text = end) {
        end = after_line(text);
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            if (!begins(text, limits[i].name) || end - text < NAME_COLUMNS || (limits[i].where_kept && !IS_KEPT(kept))) continue;
            show_until(shown, text, text + NAME_COLUMNS);
            text += NAME_COLUMNS;
            for (int value = 0; value < 2; value++) text = show_limit(shown, limits[i].values[value], kept, text, end);
        }
        show_until(shown, text, end);
    }
}

/* ---- words of a line ----------------------------------------------------------------------------- */

/* A word of a line to replace, by its number. */
struct change { int word; const char *value; };

static const char *word_of(const char *at)
{
    while (*at == ' ') at++;
    return at;
}

static const char *after_word(const char *at)
{
    at = word_of(at);
    while (*at > ' ') at++;
    return at;
}

/* Show the words of a line after `at`, the first of which has the number `first`, up to the last that changes. Return its end.
 * The changes are in ascending order. */
static const char *show_words(struct output *shown, const char *at, int first, const struct change *changes, int n)
{
    for (int i = 0, number = first; i < n && *word_of(at) > ' '; number++) {
        const char *word = word_of(at), *end = after_word(at);
        show_until(shown, at, word);
        if (number == changes[i].word) show(shown, changes[i++].value);
        else show_until(shown, word, end);
        at = end;
    }
    return at;
}

void show_stat(struct output *shown, const char *text)
{
    const char *name_end = text;  /* the name is in parentheses and may contain any character */
    for (const char *at = text; *at; at++)
        if (*at == ')') name_end = at + 1;
    show_until(shown, text, name_end);
    const struct change processor = {37, "0"};
    show(shown, show_words(shown, name_end, 1, &processor, facts.processors == 1));
}

/* ---- sockets ------------------------------------------------------------------------------------- */

uint64_t declared_inode(int family, uint64_t port, uint64_t peer_port)
{
    for (const char *row = text_behind(3); *row;) {
        uint64_t found[4];
        for (int i = 0; i < 4; i++) found[i] = number(&row), row += *row != 0;
        if (found[0] == (uint64_t)family && found[1] == port && found[2] == peer_port) return found[3];
    }
    return 0;
}

/* Parse the port after the colon of an address in hexadecimal digits, and advance past it. */
static uint64_t port_of(const char **text)
{
    while (**text && **text != ' ' && **text != ':') ++*text;
    uint64_t value = 0;
    for (*text += **text == ':'; **text > ' '; ++*text)
        value = value * 16 + (uint64_t)(**text <= '9' ? **text - '0' : **text - 'A' + 10);
    return value;
}

/* Show a socket's line with another inode number; the kernel pads some lines with spaces to a fixed width. */
static void show_socket(struct output *shown, const char *line, const char *end, uint64_t inode)
{
    char digits[DIGITS];
    const struct change changes[] = {{9, decimal(inode, digits)}, {11, "0000000000000000"}};  /* inode number, address in memory */
    bool filled = end - line > 2 && end[-2] == ' ';
    size_t until = shown->length + (size_t)(end - line) - 1;
    const char *at = show_words(shown, line, 0, changes, 2);
    const char *last = end;
    while (filled && last > at && (last[-1] == ' ' || last[-1] == '\n')) last--;
    show_until(shown, at, last);
    while (filled && shown->length < until && shown->length < SHOWN) show(shown, " ");
    if (filled) show(shown, "\n");
}

void show_sockets(struct output *shown, const char *text, int family)
{
    for (const char *end; *text; text = end) {
        end = after_line(text);
        const char *local = word_of(after_word(text));
        uint64_t port = port_of(&local);
        const char *peer = word_of(local);
        uint64_t inode = declared_inode(family, port, port_of(&peer));
        if (inode) show_socket(shown, text, end, inode);
        else show_until(shown, text, end);
    }
}
#endif
