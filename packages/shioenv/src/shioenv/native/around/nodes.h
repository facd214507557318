/* Nodes: the memory and kernel state of a persistent shell between two lines, from which other shells continue. A shell is copied
 * into a new child of the fork server. That child has the same memory layout and process id, and waits at the same place. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../inside/server.h"
#include "layer_copy.h"

enum { MOST_NODES = 32 };

struct node {
    struct node_state state;
    struct areas *areas;      /* the shell's memory map */
    uint8_t *bytes;           /* content of its writable areas */
    size_t length;
    uint64_t stack, place;    /* its stack pointer and instruction in the call in which it waits */
    uint32_t last_number;     /* the last process id given in the machine */
    unsigned frozen;          /* layers that were frozen */
    struct layer_copy layer;  /* the content of the layer over them, unless there is none */
    char directory[CWD_MAX];
    struct origin { int64_t started_ns, clock, booted; bool has_start; char start[CWD_MAX]; } origin;  /* of its machine, in a file */
};

/* A file of a node in this process's memory. */
struct mapping { uint8_t *bytes; size_t length; };

/* Attributes of a process that a copy does not get: they have to be those of the start. */
enum { ATTRIBUTES = 4096 };
void read_attributes(pid_t shell, char text[ATTRIBUTES]);

/* Return a hash of the processors on which a shell may run. */
uint64_t processors_of(pid_t shell);

/* Make a waiting shell do one of LINE_* and wait again; false if it does not. */
bool ask_shell(uint32_t what);

/* Copy the state of the waiting shell; false if a copy could not continue with it. */
bool copy_shell(struct node *node);

/* The layer's content; NULL if there is none. */
const struct layer_copy *content_of(const struct node *node);

/* Give a node's memory and kernel state to the waiting shell, which continues there after the next answer; false on failure, after
 * which the shell is not usable. */
bool become_node(const struct node *node);
void forget_node(struct node *node);

/* Write a node to a file in memory and return its descriptor; -1 on failure. */
int write_node(const struct node *node);

/* Map a node of such a file, which is to be unmapped; false if it has none. */
bool map_node(int file, struct node *node, struct mapping *mapping);
void unmap_node(struct mapping *mapping);
