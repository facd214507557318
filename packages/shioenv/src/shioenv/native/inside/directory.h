/* The start directory of a shell; see `directory.c`. */
#pragma once

/* Enter the start directory of a shell; -1 on failure. If the path contains a symbolic link, add `PWD` with that path to the
 * environment (which has room for one more entry), as from a shell that entered the directory by that path. */
int enter_directory(const char *directory, char **environment);

/* The path that `enter_directory` added to the environment, or NULL. */
const char *name_in_environment(void);
