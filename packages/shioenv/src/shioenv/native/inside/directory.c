/* The start directory of a shell. */
#include "directory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_LENGTH = 4096 };

/* The path in the environment, after "PWD="; or NULL. */
static const char *working_directory;

/* Whether a path is absolute, without empty, `.` or `..` components. */
static bool is_plain(const char *name)
{
    if (*name != '/') return false;
    while (name) {
        const char *part = name + 1;
        name = strchr(part, '/');
        size_t length = name ? (size_t)(name - part) : strlen(part);
        if (!length || (length <= 2 && !strncmp(part, "..", length))) return false;
    }
    return true;
}

int enter_directory(const char *directory, char **environment)
{
    char own[PATH_LENGTH];
    working_directory = NULL;
    if (chdir(directory)) return -1;
    if (!getcwd(own, sizeof own) || !strcmp(own, directory) || !is_plain(directory)) return 0;
    char *entry = malloc(strlen(directory) + sizeof "PWD=");  /* a static buffer would enlarge every shell */
    if (!entry) return -1;
    working_directory = stpcpy(entry, "PWD=");
    memcpy(entry + 4, directory, strlen(directory) + 1);
    while (*environment && strncmp(*environment, "PWD=", 4)) environment++;
    *environment = entry;
    return 0;
}

const char *name_in_environment(void) { return working_directory; }
