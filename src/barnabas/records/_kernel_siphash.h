/* SipHash-2-4 with a 128-bit result: a keyed hash whose collisions nobody can prepare without the secret. */
#ifndef BARNABAS_KERNEL_SIPHASH_H
#define BARNABAS_KERNEL_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct bk_siphash {
    uint64_t low;
    uint64_t high;
};

static inline uint64_t bk_siphash_rotate(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static inline uint64_t bk_siphash_load(const uint8_t *at, size_t bytes) {
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; i++) word |= (uint64_t)at[i] << 8 * i;
    return word;
}

static inline void bk_siphash_rounds(uint64_t v[4], int rounds) {
    while (rounds--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = bk_siphash_rotate(v[1], 13) ^ v[0];
        v[3] = bk_siphash_rotate(v[3], 16) ^ v[2];
        v[0] = bk_siphash_rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = bk_siphash_rotate(v[1], 17) ^ v[2];
        v[3] = bk_siphash_rotate(v[3], 21) ^ v[0];
        v[2] = bk_siphash_rotate(v[2], 32);
    }
}

static inline struct bk_siphash bk_siphash_compute(const uint64_t secret[2], const uint8_t *at, size_t length) {
    uint64_t v[4] = {
        secret[0] ^ 0x736f6d6570736575ull,
        secret[1] ^ 0x646f72616e646f6dull ^ 0xee,
        secret[0] ^ 0x6c7967656e657261ull,
        secret[1] ^ 0x7465646279746573ull,
    };
    const uint64_t last_bits = (uint64_t)length << 56;
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word = bk_siphash_load(at, 8);
        v[3] ^= word;
        bk_siphash_rounds(v, 2);
        v[0] ^= word;
    }
    uint64_t word = last_bits | bk_siphash_load(at, length);
    v[3] ^= word;
    bk_siphash_rounds(v, 2);
    v[0] ^= word;
    struct bk_siphash hash;
    v[2] ^= 0xee;
    bk_siphash_rounds(v, 4);
    hash.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    bk_siphash_rounds(v, 4);
    hash.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    return hash;
}

#endif
