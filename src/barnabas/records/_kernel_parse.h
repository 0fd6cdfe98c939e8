/* Reading and writing single records. Every read of bytes that someone else wrote happens here, against an end pointer.
 *
 * A record: varint length, then that many bytes: attributes (1 byte), varlong timestamp delta, varint offset delta,
 * varint key length and key, varint value length and value, varint header count, then per header varint key length and
 * key, varint value length and value. Varints are zigzag-encoded; a negative length means null.
 *
 * As in Apache Kafka a varint has at most 5 bytes (varlong: 10), bits beyond 32 (64) are dropped, any negative key or
 * value length is null, record attributes are ignored, and timestamps wrap around like Java's long.
 */
#ifndef BARNABAS_KERNEL_PARSE_H
#define BARNABAS_KERNEL_PARSE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum bk_problem {
    BK_FINE = 0,
    BK_BAD_VARINT,
    BK_BAD_LENGTH,
    BK_BAD_HEADER_COUNT,
    BK_BAD_HEADER,
    BK_LENGTH_MISMATCH,
    BK_NOT_CONSECUTIVE,
    BK_NOT_INCREASING,
    BK_BEYOND_LAST_OFFSET,
    BK_NEGATIVE_COUNT,
    BK_LEFT_OVER,
    BK_TOO_FEW,
    BK_MISSING_KEYS,
    BK_NO_MEMORY,
    BK_BAD_CRC,
    BK_BAD_MAGIC,
    BK_BAD_BATCH_LENGTH,
    BK_NEGATIVE_LAST_OFFSET,
    BK_BAD_OFFSETS,
    BK_INCOMPLETE,
    BK_BAD_COLUMNS
};

struct bk_record {
    const uint8_t *start;           /* the length varint */
    const uint8_t *body;            /* the attributes byte */
    const uint8_t *after_timestamp; /* the offset delta varint */
    const uint8_t *key;             /* NULL for a null key */
    const uint8_t *value;           /* NULL for a null value */
    const uint8_t *headers;
    const uint8_t *end;
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_length;
    int32_t value_length;
    int32_t header_count;
};

struct bk_header {
    const uint8_t *key;
    const uint8_t *value; /* NULL for a null value */
    int32_t key_length;
    int32_t value_length;
};

static inline int64_t bk_wrapping_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t bk_wrapping_subtract(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

static inline int32_t bk_unzigzag32(uint32_t v) { return (int32_t)((v >> 1) ^ (0u - (v & 1))); }
static inline int64_t bk_unzigzag64(uint64_t v) { return (int64_t)((v >> 1) ^ (0ull - (v & 1))); }
static inline uint64_t bk_zigzag64(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v < 0 ? -1 : 0); }

/* The readers return where the varint ends, or NULL when it does not end before `end` or is too long.
 * One and two bytes are what nearly every varint has, so they are read without a loop. */
static const uint8_t *bk_read_long_varint(const uint8_t *at, const uint8_t *end, int bytes_max, uint64_t *bits) {
    *bits = 0;
    for (int shift = 0; shift < 7 * bytes_max; shift += 7) {
        if (at == end) return NULL;
        uint8_t byte = *at++;
        *bits |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return at;
    }
    return NULL;
}

static inline const uint8_t *bk_read_varint(const uint8_t *at, const uint8_t *end, int32_t *value) {
    uint64_t bits;
    if (end - at >= 2) {
        uint32_t first = at[0], second = at[1];
        if (first < 0x80) {
            *value = bk_unzigzag32(first);
            return at + 1;
        }
        if (second < 0x80) {
            *value = bk_unzigzag32((first & 0x7f) | second << 7);
            return at + 2;
        }
    }
    at = bk_read_long_varint(at, end, 5, &bits);
    *value = bk_unzigzag32((uint32_t)bits);
    return at;
}

static inline const uint8_t *bk_read_varlong(const uint8_t *at, const uint8_t *end, int64_t *value) {
    uint64_t bits;
    if (end - at >= 2) {
        uint32_t first = at[0], second = at[1];
        if (first < 0x80) {
            *value = bk_unzigzag32(first);
            return at + 1;
        }
        if (second < 0x80) {
            *value = bk_unzigzag32((first & 0x7f) | second << 7);
            return at + 2;
        }
    }
    at = bk_read_long_varint(at, end, 10, &bits);
    *value = bk_unzigzag64(bits);
    return at;
}

static inline int64_t bk_varint_bytes(int64_t value) {
    uint64_t bits = bk_zigzag64(value);
    int64_t bytes = 1;
    while (bits >= 0x80) {
        bits >>= 7;
        bytes++;
    }
    return bytes;
}

static inline uint8_t *bk_write_varint(uint8_t *at, int64_t value) {
    uint64_t bits = bk_zigzag64(value);
    while (bits >= 0x80) {
        *at++ = (uint8_t)(bits | 0x80);
        bits >>= 7;
    }
    *at++ = (uint8_t)bits;
    return at;
}

/* A length and that many bytes, which must lie before `end`; *data is NULL when the length is negative. */
static inline const uint8_t *bk_read_bytes(
    const uint8_t *at, const uint8_t *end, const uint8_t **data, int32_t *length) {
    at = bk_read_varint(at, end, length);
    if (at == NULL) return NULL;
    if (*length < 0) {
        *data = NULL;
        return at;
    }
    if (*length > end - at) return NULL;
    *data = at;
    return at + *length;
}

static inline const uint8_t *bk_read_record_header(const uint8_t *at, const uint8_t *end, struct bk_header *header) {
    at = bk_read_bytes(at, end, &header->key, &header->key_length);
    if (at == NULL || header->key == NULL) return NULL;
    return bk_read_bytes(at, end, &header->value, &header->value_length);
}

/* Reads a record of `length` bytes at `at`, of which all have been proved to be there, and checks its structure. */
static inline int bk_parse_record_body(const uint8_t *at, int32_t length, struct bk_record *record) {
    const uint8_t *end = at + length;
    record->body = at;
    record->end = end;
    at = bk_read_varlong(at + 1, end, &record->timestamp_delta);
    if (at == NULL) return BK_BAD_VARINT;
    record->after_timestamp = at;
    at = bk_read_varint(at, end, &record->offset_delta);
    if (at == NULL) return BK_BAD_VARINT;
    at = bk_read_bytes(at, end, &record->key, &record->key_length);
    if (at == NULL) return BK_BAD_LENGTH;
    at = bk_read_bytes(at, end, &record->value, &record->value_length);
    if (at == NULL) return BK_BAD_LENGTH;
    at = bk_read_varint(at, end, &record->header_count);
    if (at == NULL) return BK_BAD_VARINT;
    if (record->header_count < 0 || record->header_count > (end - at) / 2) return BK_BAD_HEADER_COUNT;
    record->headers = at;
    for (int32_t i = 0; i < record->header_count; i++) {
        struct bk_header header;
        at = bk_read_record_header(at, end, &header);
        if (at == NULL) return BK_BAD_HEADER;
    }
    return at == end ? BK_FINE : BK_LENGTH_MISMATCH;
}

/* Reads the record at `at` and checks all of its structure and that it lies in [at, end). */
static inline int bk_parse_record(const uint8_t *at, const uint8_t *end, struct bk_record *record) {
    int32_t length;
    record->start = at;
    at = bk_read_varint(at, end, &length);
    if (at == NULL) return BK_BAD_VARINT;
    if (length < 1 || length > end - at) return BK_BAD_LENGTH;
    return bk_parse_record_body(at, length, record);
}

/* What a walk over records keeps from one to the next. */
struct bk_progress {
    int64_t index;
    int64_t next_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t max_timestamp_delta;
    int64_t min_timestamp;
};

#define BK_USUAL_FIELDS_BYTES_MAX 16

/* A varint of at most three bytes, all of which can be read; a longer one leaves the loop. */
#define BK_READ_SHORT_VARINT(at, value)                                                         \
    do {                                                                                        \
        uint32_t bits_ = (at)[0];                                                               \
        if (bits_ < 0x80) {                                                                     \
            (at) += 1;                                                                          \
        } else if ((at)[1] < 0x80) {                                                            \
            bits_ = (bits_ & 0x7f) | (uint32_t)(at)[1] << 7;                                    \
            (at) += 2;                                                                          \
        } else if ((at)[2] < 0x80) {                                                            \
            bits_ = (bits_ & 0x7f) | (uint32_t)((at)[1] & 0x7f) << 7 | (uint32_t)(at)[2] << 14; \
            (at) += 3;                                                                          \
        } else {                                                                                \
            goto unusual;                                                                       \
        }                                                                                       \
        (value) = bk_unzigzag32(bits_);                                                         \
    } while (0)

/* Walks over records as long as they are of the usual kind: well-formed, short varints, each offset delta one more than
 * the last, no headers, a key where one is required, and not the last bytes before `end`. Returns where the first other
 * one begins, which need not be wrong: `bk_parse_record_body` tells. Most records of most batches pass here, in a third
 * of the time. */
static const uint8_t *bk_walk_usual_records(
    const uint8_t *at, const uint8_t *end, int64_t count, int64_t last_delta, int requires_keys,
    struct bk_progress *progress) {
    struct bk_progress now = *progress;
    const uint8_t *start = at;
    while (now.index < count && now.next_delta <= last_delta && end - at >= BK_USUAL_FIELDS_BYTES_MAX) {
        int32_t length, timestamp_delta, offset_delta, key_length, value_length;
        BK_READ_SHORT_VARINT(at, length);
        if (length < 1 || length > end - at) break;
        const uint8_t *stop = at + length;
        at += 1;
        BK_READ_SHORT_VARINT(at, timestamp_delta);
        BK_READ_SHORT_VARINT(at, offset_delta);
        BK_READ_SHORT_VARINT(at, key_length);
        if (offset_delta != now.next_delta || (key_length < 0 && requires_keys)) break;
        if (key_length > 0) {
            if (key_length > stop - at) break;
            at += key_length;
        }
        if (end - at < BK_USUAL_FIELDS_BYTES_MAX) break;
        BK_READ_SHORT_VARINT(at, value_length);
        if (value_length > 0) {
            if (value_length >= stop - at) break;
            at += value_length;
        }
        if (stop - at != 1 || *at != 0) break;
        int64_t timestamp = bk_wrapping_add(now.base_timestamp, timestamp_delta);
        if (timestamp > now.max_timestamp || now.index == 0) {
            now.max_timestamp = timestamp;
            now.max_timestamp_delta = offset_delta;
        }
        if (timestamp < now.min_timestamp && timestamp != -1) now.min_timestamp = timestamp;
        now.index++;
        now.next_delta++;
        start = at = stop;
    }
unusual:
    *progress = now;
    return start;
}

/* Memory that grows without the GIL. */
struct bk_growing {
    uint8_t *data;
    size_t size;
    size_t capacity;
};

#define BK_HUGE_PAGES_BYTES (4u << 20)

/* Touching fresh memory page by page costs more than filling it, so large columns ask for huge pages. */
static inline void bk_ask_for_huge_pages(uint8_t *data, size_t capacity) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page_bytes = 4096;
    uintptr_t start = ((uintptr_t)data + page_bytes - 1) & ~(page_bytes - 1);
    uintptr_t end = ((uintptr_t)data + capacity) & ~(page_bytes - 1);
    if (capacity >= BK_HUGE_PAGES_BYTES) (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
#endif
}

static inline int bk_reserve(struct bk_growing *memory, size_t extra) {
    if (memory->capacity - memory->size >= extra) return BK_FINE;
    if (extra > (size_t)PTRDIFF_MAX / 2 - memory->size) return BK_NO_MEMORY;
    size_t capacity = memory->size + extra;
    if (capacity < memory->capacity + memory->capacity / 2) capacity = memory->capacity + memory->capacity / 2;
    if (capacity < 64) capacity = 64;
    uint8_t *data = (uint8_t *)realloc(memory->data, capacity);
    if (data == NULL) return BK_NO_MEMORY;
    memory->data = data;
    memory->capacity = capacity;
    bk_ask_for_huge_pages(data, capacity);
    return BK_FINE;
}

/* The room for these has been reserved. */
static inline void bk_put_int64(struct bk_growing *memory, int64_t value) {
    memcpy(memory->data + memory->size, &value, sizeof value);
    memory->size += sizeof value;
}

static inline void bk_put_int32(struct bk_growing *memory, int32_t value) {
    memcpy(memory->data + memory->size, &value, sizeof value);
    memory->size += sizeof value;
}

static inline void bk_put_bytes(struct bk_growing *memory, const uint8_t *data, size_t length) {
    if (length) memcpy(memory->data + memory->size, data, length);
    memory->size += length;
}

static inline int64_t bk_load_int64(const uint8_t *at) {
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline int32_t bk_load_int32(const uint8_t *at) {
    int32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void bk_store_big_endian(uint8_t *at, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, value >>= 8) at[i] = (uint8_t)value;
}

static inline uint64_t bk_load_big_endian(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | at[i];
    return value;
}

#endif
