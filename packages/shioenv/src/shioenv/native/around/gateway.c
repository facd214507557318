#define _GNU_SOURCE
#include "gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST_MAX = 16384, PATIENCE_MS = 2000 };

static const char *content_type(const char *path)
{
    static const char *const types[][2] = {
        {".html", "text/html"}, {".txt", "text/plain"}, {".csv", "text/csv"}, {".json", "application/json"},
        {".css", "text/css"}, {".js", "application/javascript"}, {".svg", "image/svg+xml"},
        {".gz", "application/gzip"}, {".png", "image/png"},
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
        if (!strcmp(dot, types[i][0])) return types[i][1];
    return "application/octet-stream";
}

/* Read the request's head, NUL-terminated; false if it does not arrive or is too long. */
static bool read_head(int peer, char *head)
{
    size_t length = 0;
    head[0] = 0;
    while (length < REQUEST_MAX - 1) {
        struct pollfd ready = {peer, POLLIN, 0};
        if (poll(&ready, 1, PATIENCE_MS) <= 0) return false;
        ssize_t n = recv(peer, head + length, REQUEST_MAX - 1 - length, 0);
        if (n <= 0) return false;
        length += (size_t)n;
        head[length] = 0;
        if (strstr(head, "\r\n\r\n")) return true;
    }
    return false;
}

/* Find the value of a header, which ends at the next "\r\n"; or NULL. */
static const char *header(const char *head, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, length) && line[2 + length] == ':') {
            line += 3 + length;
            while (*line == ' ') line++;
            return line;
        }
    return NULL;
}

static void send_all(int peer, const char *bytes, size_t length)
{
    while (length) {
        struct pollfd ready = {peer, POLLOUT, 0};
        if (poll(&ready, 1, PATIENCE_MS) <= 0) return;
        ssize_t n = send(peer, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) return;
        bytes += n;
        length -= (size_t)n;
    }
}

static void __attribute__((format(printf, 4, 5)))
send_head(int peer, const char *status, const char *date, const char *format, ...)
{
    char text[2048];
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 %s\r\nServer: nginx/1.22.1\r\nDate: %s\r\nConnection: close\r\n", status, date);
    va_list more;
    va_start(more, format);
    length += vsnprintf(text + length, sizeof text - (size_t)length, format, more);
    va_end(more);
    send_all(peer, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

static void send_error(int peer, const char *status, const char *date, const char *extra, bool body)
{
    char page[512];
    int length = snprintf(page, sizeof page,
                          "<html>\r\n<head><title>%s</title></head>\r\n<body>\r\n<center><h1>%s</h1></center>\r\n"
                          "<hr><center>nginx/1.22.1</center>\r\n</body>\r\n</html>\r\n", status, status);
    send_head(peer, status, date, "%sContent-Type: text/html\r\nContent-Length: %d\r\n\r\n", extra, length);
    if (body) send_all(peer, page, (size_t)length);
}

/* Parse a decimal number, capped at the maximum; false if there is none. */
static bool parse_number(const char **text, off_t *number)
{
    const char *digit = *text;
    enum { TEN = 10 };
    for (*number = 0; *digit >= '0' && *digit <= '9'; digit++)
        *number = *number > (INT64_MAX - TEN) / TEN ? INT64_MAX : *number * TEN + (*digit - '0');
    bool any = digit > *text;
    *text = digit;
    return any;
}

/* Parse "bytes=A-B", "bytes=A-" or "bytes=-N" as first and last byte; false, with both unchanged, for anything else. */
static bool parse_range(const char *text, off_t size, off_t *first, off_t *last)
{
    if (!text || strncmp(text, "bytes=", 6)) return false;
    text += 6;
    off_t from, to;
    bool suffix = !parse_number(&text, &from);
    if (*text++ != '-') return false;
    bool open_ended = !parse_number(&text, &to);
    if (*text != '\r' || (suffix && open_ended)) return false;
    *first = !suffix ? from : to < size ? size - to : 0;
    *last = suffix || open_ended || to >= size ? size - 1 : to;
    return true;
}

static void send_file(int peer, int file, const char *path, const char *date, const char *head, bool body)
{
    struct stat status;
    char modified[64];
    struct tm when;
    fstat(file, &status);
    gmtime_r(&status.st_mtime, &when);
    strftime(modified, sizeof modified, "%a, %d %b %Y %H:%M:%S GMT", &when);
    const char *since = header(head, "If-Modified-Since"), *range = header(head, "Range");
    if (since && !strncmp(since, modified, strlen(modified))) {
        send_head(peer, "304 Not Modified", date, "Last-Modified: %s\r\n\r\n", modified);
        return;
    }
    off_t first = 0, last = status.st_size - 1;
    bool partial = parse_range(range, status.st_size, &first, &last);
    if (partial && (first > last || first >= status.st_size)) {
        char extra[64];
        snprintf(extra, sizeof extra, "Content-Range: bytes */%lld\r\n", (long long)status.st_size);
        send_error(peer, "416 Range Not Satisfiable", date, extra, body);
        return;
    }
    char extra[96] = "";
    if (partial)
        snprintf(extra, sizeof extra, "Content-Range: bytes %lld-%lld/%lld\r\n", (long long)first,
                 (long long)last, (long long)status.st_size);
    send_head(peer, partial ? "206 Partial Content" : "200 OK", date,
              "Content-Type: %s\r\nContent-Length: %lld\r\nLast-Modified: %s\r\nETag: \"%llx-%llx\"\r\n"
              "%sAccept-Ranges: bytes\r\n\r\n",
              content_type(path), (long long)(last - first + 1), modified, (unsigned long long)status.st_mtime,
              (unsigned long long)status.st_size, extra);
    static char bytes[1 << 16];
    while (body && first <= last) {
        size_t want = last - first + 1 < (off_t)sizeof bytes ? (size_t)(last - first + 1) : sizeof bytes;
        ssize_t n = pread(file, bytes, want, first);
        if (n <= 0) return;
        send_all(peer, bytes, (size_t)n);
        first += n;
    }
}

static void answer(int peer, int root, const char *date)
{
    static char head[REQUEST_MAX];
    if (!read_head(peer, head)) return;
    char method[16] = "", path[2048] = "";
    if (sscanf(head, "%15s /%2047[^ ?#\r\n]", method, path) < 1) {
        send_error(peer, "400 Bad Request", date, "", true);
        return;
    }
    bool body = strcmp(method, "HEAD") != 0;
    if (body && strcmp(method, "GET") != 0) {
        send_error(peer, "405 Method Not Allowed", date, "Allow: GET, HEAD\r\n", true);
        return;
    }
    if (!strcmp(path, "moved")) {
        send_error(peer, "301 Moved Permanently", date, "Location: /index.html\r\n", body);
        return;
    }
    if (!strcmp(path, "private")) {
        send_error(peer, "401 Unauthorized", date, "WWW-Authenticate: Basic realm=\"private\"\r\n", body);
        return;
    }
    if (!path[0]) strcpy(path, "index.html");
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int file = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    struct stat status;
    if (file < 0 || fstat(file, &status) || !S_ISREG(status.st_mode)) send_error(peer, "404 Not Found", date, "", body);
    else send_file(peer, file, path, date, head, body);
    if (file >= 0) close(file);
}

/* Read what the peer still sends; otherwise closing would discard the answer. */
static void hang_up(int peer)
{
    shutdown(peer, SHUT_WR);
    char rest[4096];
    struct pollfd ready = {peer, POLLIN, 0};
    for (int i = 0; i < 64 && poll(&ready, 1, 100) > 0 && recv(peer, rest, sizeof rest, 0) > 0; i++) {}
    close(peer);
}

void answer_all(const struct listener listeners[], int n, int root, const char *date)
{
    struct pollfd ready[MOST_LISTENERS];
    for (int i = 0; i < n; i++) ready[i] = (struct pollfd){listeners[i].fd, POLLIN, 0};
    for (;;) {
        if (poll(ready, (nfds_t)n, -1) < 0 && errno != EINTR) _exit(0);
        for (int i = 0; i < n; i++) {
            if (!ready[i].revents) continue;
            int peer = accept4(listeners[i].fd, NULL, NULL, SOCK_CLOEXEC);
            if (peer < 0) {
                if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN) continue;
                if (errno != EINVAL) _exit(0);
                ready[i].fd = -1;  /* an input closed it (`ss -K`): the network is created anew after the run */
                continue;
            }
            const char *banner = listeners[i].banner;
            if (!banner) answer(peer, root, date);
            else if (*banner) send_all(peer, banner, strlen(banner)), send_all(peer, "\r\n", 2);
            hang_up(peer);
        }
    }
}
