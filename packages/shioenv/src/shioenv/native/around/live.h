/* The persistent shell: it runs a line, dumps its state, and waits for the next line, while its processes continue. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol.h"

/* Whether the machine belongs to a persistent shell or was entered; true until `end_shell`. */
bool is_live(void);

void start_shell(const struct request *request);
void run_line(const struct request *request);

/* Report the changes without running anything. */
void look_at_shell(const struct request *request);

/* Keep the waiting shell's state and the layer as a node, and run a line in a copy of a node. */
void mark_shell(const struct request *request);
void fork_shell(const struct request *request);

/* Continue a node of another machine, which is in this file. */
void import_shell(const struct request *request, int file);

/* Run an input in the machine without a persistent shell. Its background processes continue. */
void enter_machine(const struct request *request);

/* Pass the peer the other end of the shell's terminal, or of the last entered input's streams. */
void hand_ends(void);

/* Run an input in a second shell in the same machine. */
void run_beside(const struct request *request, const uint8_t *standard_input);
void end_shell(const struct request *request);

/* Monitor the machine until the peer sends a request. */
void await_request(void);
