#include "sha256.h"

#include <string.h>
#if defined __x86_64__ && !defined SHIOENV_PORTABLE
#define HAS_INSTRUCTIONS
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

#ifdef HAS_INSTRUCTIONS
/* Process one block with the SHA extensions of the processor (Intel's manual), ten times as fast. */
__attribute__((target("sha,sse4.1"))) static void compress_by_instructions(uint32_t state[8], const uint8_t *block)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i w[4], cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    const __m128i abef_before = _mm_alignr_epi8(cdab, efgh, 8), cdgh_before = _mm_blend_epi16(efgh, cdab, 0xf0);
    __m128i abef = abef_before, cdgh = cdgh_before;
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {  /* four rounds each */
        __m128i *now = &w[i % 4], before = w[(i + 3) % 4];
        if (i < 4)
            *now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)block + i), big_endian);
        else
            *now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(*now, w[(i + 1) % 4]),
                                                      _mm_alignr_epi8(before, w[(i + 2) % 4], 4)), before);
        __m128i sum = _mm_add_epi32(*now, _mm_loadu_si128((const __m128i *)constants + i));
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static int has_instructions(void)
{
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1;
}
#endif

static void compress(uint32_t state[8], const uint8_t *block)
{
#ifdef HAS_INSTRUCTIONS
    static int known, fast;
    if (!known) {
        fast = has_instructions();
        known = 1;
    }
    if (fast) {
        compress_by_instructions(state, block);
        return;
    }
#endif
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
        uint32_t t1 = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + w[i];
        uint32_t a = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        uint32_t t2 = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void sha256_start(struct sha256 *hash)
{
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, initial, sizeof initial);
    hash->length = 0;
}

void sha256_add(struct sha256 *hash, const void *data, size_t length)
{
    const uint8_t *at = data;
    size_t filled = hash->length % 64;
    hash->length += length;
    if (filled) {
        size_t take = 64 - filled < length ? 64 - filled : length;
        memcpy(hash->block + filled, at, take);
        at += take;
        length -= take;
        if (filled + take < 64) return;
        compress(hash->state, hash->block);
    }
    for (; length >= 64; at += 64, length -= 64) compress(hash->state, at);
    memcpy(hash->block, at, length);
}

void sha256_end(struct sha256 *hash, uint8_t digest[32])
{
    uint64_t bits = hash->length * 8;
    static const uint8_t padding[64] = {0x80};
    sha256_add(hash, padding, 1 + (119 - hash->length % 64) % 64);
    uint8_t size[8];
    for (int i = 0; i < 8; i++) size[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(hash, size, 8);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}
