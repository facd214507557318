/* The directory that a shell starts in; see `directory.c`. */
#pragma once

/* Enters the directory that a shell starts in; -1 where it cannot. Where a symbolic link leads there, the
 * environment, which has room for one more entry, gets `PWD` with the given name, as from a shell that is there by that name. */
int enter_directory(const char *directory, char **environment);

/* The name that `enter_directory` put into the environment, or NULL. */
const char *name_in_environment(void);
