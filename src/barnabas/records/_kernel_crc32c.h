/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78).
 *
 * With SSE 4.2 (asked at run time) three streams are computed side by side, because the instruction takes three cycles but
 * one can start every cycle; the streams are joined by tables that advance a checksum over a fixed count of zero bytes.
 * Anywhere else eight bytes at a time go through tables. `bk_crc32c_prepare` fills all tables and must run before the
 * first use.
 */
#ifndef BARNABAS_KERNEL_CRC32C_H
#define BARNABAS_KERNEL_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BK_CRC32C_POLYNOMIAL 0x82f63b78u
#define BK_CRC32C_LONG_BYTES 4096
#define BK_CRC32C_SHORT_BYTES 256

static uint32_t bk_crc32c_tables[8][256];

static void bk_crc32c_prepare_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? BK_CRC32C_POLYNOMIAL : 0);
        bk_crc32c_tables[0][byte] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t previous = bk_crc32c_tables[row - 1][byte];
            bk_crc32c_tables[row][byte] = previous >> 8 ^ bk_crc32c_tables[0][previous & 0xff];
        }
}

static uint32_t bk_crc32c_portable(uint32_t crc, const uint8_t *at, size_t length) {
    crc = ~crc;
    for (; length >= 8; at += 8, length -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = bk_crc32c_tables[7][low & 0xff] ^ bk_crc32c_tables[6][low >> 8 & 0xff] ^
              bk_crc32c_tables[5][low >> 16 & 0xff] ^ bk_crc32c_tables[4][low >> 24] ^ bk_crc32c_tables[3][at[4]] ^
              bk_crc32c_tables[2][at[5]] ^ bk_crc32c_tables[1][at[6]] ^ bk_crc32c_tables[0][at[7]];
    }
    for (; length; at++, length--) crc = crc >> 8 ^ bk_crc32c_tables[0][(crc ^ *at) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>

static uint32_t bk_crc32c_long_zeros[4][256], bk_crc32c_short_zeros[4][256];

/* A checksum is linear: advancing it over zeros is the sum of advancing each of its bits. */
static void bk_crc32c_prepare_zeros(uint32_t zeros[4][256], int zero_bytes) {
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (int i = 0; i < zero_bytes; i++) crc = crc >> 8 ^ bk_crc32c_tables[0][crc & 0xff];
        zeros[bit / 8][1 << bit % 8] = crc;
    }
    for (int row = 0; row < 4; row++) {
        zeros[row][0] = 0;
        for (int byte = 1; byte < 256; byte++) zeros[row][byte] = zeros[row][byte & (byte - 1)] ^ zeros[row][byte & -byte];
    }
}

static inline uint64_t bk_crc32c_advance(uint32_t zeros[4][256], uint64_t crc) {
    return zeros[0][crc & 0xff] ^ zeros[1][crc >> 8 & 0xff] ^ zeros[2][crc >> 16 & 0xff] ^ zeros[3][crc >> 24 & 0xff];
}

static inline uint64_t bk_crc32c_word(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Three streams of `block` bytes each, as often as they fit. */
#define BK_CRC32C_THREE_STREAMS(block, zeros)                                                           \
    while (length >= 3 * (block)) {                                                                     \
        uint64_t second = 0, third = 0;                                                                 \
        const uint8_t *stop = at + (block);                                                             \
        for (; at < stop; at += 8) {                                                                    \
            first = _mm_crc32_u64(first, bk_crc32c_word(at));                                           \
            second = _mm_crc32_u64(second, bk_crc32c_word(at + (block)));                               \
            third = _mm_crc32_u64(third, bk_crc32c_word(at + 2 * (block)));                             \
        }                                                                                               \
        first = bk_crc32c_advance(zeros, bk_crc32c_advance(zeros, first) ^ second) ^ third;             \
        at += 2 * (block);                                                                              \
        length -= 3 * (block);                                                                          \
    }

__attribute__((target("sse4.2"))) static uint32_t bk_crc32c_sse42(uint32_t crc, const uint8_t *at, size_t length) {
    uint64_t first = ~crc;
    BK_CRC32C_THREE_STREAMS(BK_CRC32C_LONG_BYTES, bk_crc32c_long_zeros)
    BK_CRC32C_THREE_STREAMS(BK_CRC32C_SHORT_BYTES, bk_crc32c_short_zeros)
    for (; length >= 8; at += 8, length -= 8) first = _mm_crc32_u64(first, bk_crc32c_word(at));
    for (; length; at++, length--) first = _mm_crc32_u8((uint32_t)first, *at);
    return ~(uint32_t)first;
}
#endif

static uint32_t (*bk_crc32c_compute)(uint32_t crc, const uint8_t *at, size_t length) = bk_crc32c_portable;

static void bk_crc32c_prepare(void) {
    bk_crc32c_prepare_tables();
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) {
        bk_crc32c_prepare_zeros(bk_crc32c_long_zeros, BK_CRC32C_LONG_BYTES);
        bk_crc32c_prepare_zeros(bk_crc32c_short_zeros, BK_CRC32C_SHORT_BYTES);
        bk_crc32c_compute = bk_crc32c_sse42;
    }
#endif
}

#endif
