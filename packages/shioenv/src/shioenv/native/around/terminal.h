/* Pseudo-terminals that stand in for a run's pipes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A pseudo-terminal of the sandbox, of 80 columns and 24 rows: ends[0] is the supervisor's, ends[1] the
 * shell's. With `nobody_types`, who reads from it finds the end of the file, as in /dev/null. */
bool open_terminal(int ends[2], bool nobody_types);
void offer_ends_of_file(int master, size_t n);

/* Sets back the times that using terminals moves. */
void settle_terminals(void);
