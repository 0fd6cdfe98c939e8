/* One request after the other on one connection, timed without an interpreter on the client's side, and the least that
 * a server can do for it.
 *
 *     round_trip client PORT FRAME_FILE REQUESTS REPLY_BYTES   sends the file's bytes REQUESTS times, each when the
 *                                                              answer to the one before is there; times in
 *                                                              nanoseconds, one a line
 *     round_trip echo FRAME_BYTES REPLY_BYTES                  prints its port, then answers every FRAME_BYTES that it
 *                                                              receives with REPLY_BYTES, until the peer goes
 *
 * The client blocks in `recv`, as clients do. The server is an epoll loop: the least for one that serves many.
 * `benchmarks/round_trip.py` compiles and runs it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROOM_BYTES (1 << 20)
#define EVENTS_MAX 16

static char room[ROOM_BYTES];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void send_all(int connection, const char *data, size_t length) {
    while (length) {
        ssize_t sent = send(connection, data, length, MSG_NOSIGNAL);
        if (sent <= 0)
            fail("send");
        data += sent;
        length -= sent;
    }
}

static void set_no_delay(int connection) {
    int on = 1;
    if (setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
        fail("setsockopt");
}

static struct sockaddr_in address_of(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int client(int port, const char *frame_file, int requests, size_t reply_bytes) {
    static char frame[ROOM_BYTES];
    FILE *file = fopen(frame_file, "rb");
    if (!file)
        fail(frame_file);
    size_t frame_bytes = fread(frame, 1, sizeof frame, file);
    fclose(file);
    struct sockaddr_in address = address_of(port);
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    set_no_delay(connection);
    long long *times = malloc(sizeof *times * requests);
    if (!times || reply_bytes > sizeof room)
        fail("memory");
    for (int index = 0; index < requests; index++) {
        long long began = now_ns();
        send_all(connection, frame, frame_bytes);
        for (size_t received = 0; received < reply_bytes;) {
            ssize_t count = recv(connection, room + received, reply_bytes - received, 0);
            if (count <= 0)
                fail("recv");
            received += count;
        }
        times[index] = now_ns() - began;
    }
    /* An answer that is longer than the others leaves bytes behind. */
    if (recv(connection, room, 1, MSG_DONTWAIT) > 0) {
        fprintf(stderr, "an answer was longer than expected\n");
        return 1;
    }
    for (int index = 0; index < requests; index++)
        printf("%lld\n", times[index]);
    return 0;
}

static void echo(size_t frame_bytes, size_t reply_bytes) {
    static char reply[ROOM_BYTES];
    struct sockaddr_in address = address_of(0);
    socklen_t length = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    if (listening < 0 || bind(listening, (struct sockaddr *)&address, length) || listen(listening, 8) ||
        getsockname(listening, (struct sockaddr *)&address, &length) || reply_bytes > sizeof reply)
        fail("listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, ready[EVENTS_MAX];
    epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event);
    size_t received = 0;
    for (;;) {
        int count = epoll_wait(poll, ready, EVENTS_MAX, -1);
        for (int index = 0; index < count; index++) {
            int connection = ready[index].data.fd;
            if (connection == listening) {
                connection = accept(listening, NULL, NULL);
                set_no_delay(connection);
                event.data.fd = connection;
                epoll_ctl(poll, EPOLL_CTL_ADD, connection, &event);
                received = 0;
                continue;
            }
            ssize_t part = recv(connection, room, sizeof room, 0);
            if (part <= 0) {
                close(connection);
                continue;
            }
            for (received += part; received >= frame_bytes; received -= frame_bytes)
                send_all(connection, reply, reply_bytes);
        }
    }
}

int main(int count, char **arguments) {
    if (count == 6 && !strcmp(arguments[1], "client"))
        return client(atoi(arguments[2]), arguments[3], atoi(arguments[4]), atol(arguments[5]));
    if (count == 4 && !strcmp(arguments[1], "echo"))
        echo(atol(arguments[2]), atol(arguments[3]));
    fprintf(stderr, "round_trip client PORT FRAME_FILE REQUESTS REPLY_BYTES | echo FRAME_BYTES REPLY_BYTES\n");
    return 2;
}
