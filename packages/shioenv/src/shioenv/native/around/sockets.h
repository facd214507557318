/* The sockets of the declared processes, in the inputs' network. Some listen, some are connected to a host that does not
 * exist. The supervisor keeps them open for the lifetime of the network. */
#pragma once

#include <stdbool.h>

/* Create the declared sockets in this process's network, and close those of the previous network. */
void open_sockets(void);

/* The number of these sockets. */
int sockets_held(void);

/* Whether all of them are still intact; an input may close them by force. */
bool sockets_stand(void);

/* Get descriptors and banners of the listening sockets; return their number. */
int listening_sockets(int fds[], const char *banners[]);
