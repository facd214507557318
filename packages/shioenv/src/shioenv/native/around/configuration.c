#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "configuration.h"
#include "protocol.h"

struct configuration config;

static void copy_text(char *to, size_t room, const char *from, uint32_t length)
{
    if (length >= room) { errno = ENAMETOOLONG; die("configuration text of %u bytes", length); }
    memcpy(to, from, length);
    to[length] = 0;
}

void read_configuration(void)
{
    struct record record;
    for (;;) {
        if (!read_all(control, &record, sizeof record)) _exit(0);
        if (record.kind == CONFIG_END) return;
        char *value = calloc(1, record.length + 1), *value_end;
        if (!value || !read_all(control, value, record.length)) _exit(0);
        switch (record.kind) {
        case CONFIG_ENVIRONMENT:
            if (config.n_environment < 250) config.environment[config.n_environment++] = value;
            continue;  /* still used */
        case CONFIG_HOSTNAME: copy_text(config.hostname, sizeof config.hostname, value, record.length); break;
        case CONFIG_DOMAINNAME: copy_text(config.domainname, sizeof config.domainname, value, record.length); break;
        case CONFIG_UPTIME:
            config.uptime = strtoll(value, &value_end, 10);
            config.idle = strtoll(value_end, NULL, 10);
            break;
        case CONFIG_CLOCK: config.declared_clock = !strcmp(value, "declared"); break;
        case CONFIG_PROCESSORS: config.processors = (uint32_t)atol(value); break;
        case CONFIG_USAGE:
            config.cpu_ms = strtoull(value, &value_end, 10);
            config.processes = strtoull(value_end, NULL, 10);
            break;
        case CONFIG_DISK: copy_text(config.disk, sizeof config.disk, value, record.length); break;
        case CONFIG_SHELL: copy_text(config.shell_mode, sizeof config.shell_mode, value, record.length); break;
        case CONFIG_WEB_DATE: copy_text(config.web_date, sizeof config.web_date, value, record.length); break;
        case CONFIG_DEVICE: copy_text(config.device, sizeof config.device, value, record.length); break;
        case CONFIG_PLAIN: config.plain = *value; break;
        case CONFIG_DIRECTORY: copy_text(config.directory, sizeof config.directory, value, record.length); break;
        case CONFIG_NETLINK:
            config.netlink = (struct bytes){(uint8_t *)value, record.length};
            continue;
        case CONFIG_GATEWAY:
            config.gateway = (struct bytes){(uint8_t *)value, record.length};
            continue;
        case CONFIG_PRELOAD:
            config.preload = (struct bytes){(uint8_t *)value, record.length};
            continue;
        case CONFIG_COVER: {
            size_t name = strlen(value) + 1;
            if (config.n_covers == 8 || name > record.length) { errno = E2BIG; die("cover %s", value); }
            config.covers[config.n_covers].name = value;
            config.covers[config.n_covers++].content =
                (struct bytes){(uint8_t *)value + name, record.length - (uint32_t)name};
            continue;
        }
        case CONFIG_SECCOMP:
            config.seccomp.filter = (struct sock_filter *)value;
            config.seccomp.len = (unsigned short)(record.length / sizeof(struct sock_filter));
            continue;
        case CONFIG_RLIMITS:
            config.n_rlimits = record.length / sizeof *config.rlimits;
            if (config.n_rlimits > 16) { errno = E2BIG; die("%u resource limits", config.n_rlimits); }
            memcpy(config.rlimits, value, config.n_rlimits * sizeof *config.rlimits);
            break;
        case CONFIG_PARENT: config.parent = (uint32_t)atol(value); break;
        case CONFIG_PROCESSES:
            config.n_processes = record.length / sizeof *config.processes_declared;
            if (config.n_processes > MOST_PROCESSES) { errno = E2BIG; die("%u processes", config.n_processes); }
            memcpy(config.processes_declared, value, config.n_processes * sizeof *config.processes_declared);
            break;
        case CONFIG_SOCKETS:
            config.n_sockets = record.length / sizeof *config.sockets;
            if (config.n_sockets > MOST_SOCKETS) { errno = E2BIG; die("%u sockets", config.n_sockets); }
            memcpy(config.sockets, value, config.n_sockets * sizeof *config.sockets);
            break;
        default: errno = EINVAL; die("configuration record %u", record.kind);
        }
        free(value);
    }
}

