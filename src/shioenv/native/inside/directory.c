/* The directory that a shell starts in. */
#include "directory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_LENGTH = 4096 };

/* "PWD=", and the name of the directory that was entered. */
static char working_directory[PATH_LENGTH + 4];

/* Whether a name is absolute, and each part of it is the name of a file. */
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
    static char own[PATH_LENGTH];
    working_directory[0] = 0;
    if (chdir(directory)) return -1;
    if (!getcwd(own, sizeof own) || !strcmp(own, directory) || !is_plain(directory)) return 0;
    snprintf(working_directory, sizeof working_directory, "PWD=%s", directory);
    while (*environment && strncmp(*environment, "PWD=", 4)) environment++;
    *environment = working_directory;
    return 0;
}

const char *name_in_environment(void) { return working_directory[0] ? working_directory + 4 : NULL; }
