#define _GNU_SOURCE
#include "sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"
#include "configuration.h"

enum { WAITING = 128 };  /* backlog of pending connections, as sshd's */

static int held[MOST_SOCKETS] = {[0 ... MOST_SOCKETS - 1] = -1};

union address { struct sockaddr any; struct sockaddr_in four; struct sockaddr_in6 six; };

static socklen_t to_address(const struct declared_socket *declared, const uint8_t *bytes, uint32_t port, union address *to)
{
    memset(to, 0, sizeof *to);
    if (declared->family == AF_INET6) {
        to->six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        memcpy(&to->six.sin6_addr, bytes, sizeof to->six.sin6_addr);
        return sizeof to->six;
    }
    to->four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    memcpy(&to->four.sin_addr, bytes, sizeof to->four.sin_addr);
    return sizeof to->four;
}

static void set(int fd, int level, int option)
{
    int on = 1;
    CHECK(setsockopt(fd, level, option, &on, sizeof on), "set option %d of a socket", option);
}

void open_sockets(void)
{
    union address address;
    for (uint32_t i = 0; i < config.n_sockets; i++) {
        const struct declared_socket *declared = &config.sockets[i];
        close_fd(&held[i]);
        held[i] = socket((int)declared->family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(held[i], "socket");
        set(held[i], SOL_SOCKET, SO_REUSEADDR);  /* one port is used by a listener and a connection */
        if (declared->family == AF_INET6) set(held[i], IPPROTO_IPV6, IPV6_V6ONLY);
        socklen_t length = to_address(declared, declared->address, declared->port, &address);
        CHECK(bind(held[i], &address.any, length), "bind port %u", declared->port);
    }
    /* connected only in name: no peer is involved, and nothing is sent */
    for (uint32_t i = 0; i < config.n_sockets; i++) {
        const struct declared_socket *declared = &config.sockets[i];
        if (!declared->peer_port) continue;
        set(held[i], IPPROTO_TCP, TCP_REPAIR);
        socklen_t length = to_address(declared, declared->peer, declared->peer_port, &address);
        CHECK(connect(held[i], &address.any, length), "connect port %u", declared->port);
    }
    for (uint32_t i = 0; i < config.n_sockets; i++)
        if (!config.sockets[i].peer_port) CHECK(listen(held[i], WAITING), "listen to port %u", config.sockets[i].port);
}

int sockets_held(void) { return (int)config.n_sockets; }

bool sockets_stand(void)
{
    for (uint32_t i = 0; i < config.n_sockets; i++) {
        struct tcp_info info = {0};
        socklen_t length = sizeof info;
        if (getsockopt(held[i], IPPROTO_TCP, TCP_INFO, &info, &length)) return false;
        if (info.tcpi_state != (config.sockets[i].peer_port ? TCP_ESTABLISHED : TCP_LISTEN)) return false;
    }
    return true;
}

int listening_sockets(int fds[], const char *banners[])
{
    int n = 0;
    for (uint32_t i = 0; i < config.n_sockets; i++)
        if (!config.sockets[i].peer_port) fds[n] = held[i], banners[n++] = config.sockets[i].banner;
    return n;
}
