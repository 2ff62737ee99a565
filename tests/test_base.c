/* SPDX-License-Identifier: Apache-2.0 */
/* test_base.c - status, log, hash, philox, dtypes, clock, jit. */
#include "tests/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/dtype.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/jit.h"
#include "core/base/log.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/base/time.h"

static void *other_thread(void *out)
{
    strcpy(out, tern_error_message());
    (void)tern_error(TERN_ERROR_IO, "other");
    return NULL;
}

static void test_status(void **state)
{
    (void)state;
    char other[64] = "unset";
    pthread_t thread;
    assert_int_equal(tern_error(TERN_ERROR_IO, "file %s has %d bytes", "a", 3), TERN_ERROR_IO);
    assert_string_equal(tern_error_message(), "file a has 3 bytes");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(other, "");
    assert_string_equal(tern_error_message(), "file a has 3 bytes");
    assert_int_equal(tern_error_prefix(TERN_ERROR_IO, "read %d", 7), TERN_ERROR_IO);
    assert_string_equal(tern_error_message(), "read 7: file a has 3 bytes");
    (void)tern_error(TERN_ERROR_IO, "again: %s", tern_error_message());
    assert_string_equal(tern_error_message(), "again: read 7: file a has 3 bytes");
}

static void test_long_sentence(void **state)
{
    (void)state;
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    (void)tern_error(TERN_ERROR_KERNEL, "%s", text);
    size_t length = strlen(tern_error_message());
    assert_true(length > 1000 && length < sizeof text - 1);
    assert_string_equal(tern_error_message() + length - 4, "x...");
    for (size_t prefix = length - 8; prefix <= length + 4; prefix++) { /* around the end of the buffer */
        (void)tern_error(TERN_ERROR_KERNEL, "y");
        (void)tern_error_prefix(TERN_ERROR_KERNEL, "%.*s", (int)prefix, text);
        assert_true(strlen(tern_error_message()) <= length);
        assert_memory_equal(tern_error_message(), text, length - 8);
    }
}

const char *test_version_from_cpp(void); /* header.cpp */

static void test_status_names(void **state)
{
    (void)state;
    assert_string_equal(tern_status_name(TERN_OK), "ok");
    assert_string_equal(tern_status_name(TERN_ERROR_DEVICE_LOST), "device lost");
    assert_string_equal(tern_status_name((tern_status)-99), "unknown status");
    assert_string_equal(tern_version(), "0.1.0");
    assert_string_equal(test_version_from_cpp(), "0.1.0");
    assert_int_equal(tern_error_memory("a test", 17), TERN_ERROR_MEMORY);
    assert_non_null(strstr(tern_error_message(), "17 bytes for a test"));
}

/* --------------------------------------------------------------------- log */

static void keep_line(void *context, int32_t level, const char *message)
{
    snprintf(context, 64, "%d %s", level, message);
}

static void test_log(void **state)
{
    (void)state;
    char line[64] = "";
    tern_log_write(TERN_LOG_ERROR, "nobody hears this");
    tern_log_set(keep_line, line);
    tern_log_write(TERN_LOG_WARNING, "%d of %s", 3, "four");
    assert_string_equal(line, "1 3 of four");
    tern_log_set(NULL, NULL);
    tern_log_write(TERN_LOG_ERROR, "nor this");
    assert_string_equal(line, "1 3 of four");
}

/* ---------------------------------------------------------- hash and philox */

static void test_hash(void **state)
{
    (void)state; /* the test vectors of the FNV draft */
    assert_true(tern_hash(TERN_HASH_START, "", 0) == 0xcbf29ce484222325ull);
    assert_true(tern_hash(TERN_HASH_START, "a", 1) == 0xaf63dc4c8601ec8cull);
    assert_true(tern_hash(TERN_HASH_START, "foobar", 6) == 0x85944171f73967e8ull);
    assert_true(tern_hash(tern_hash(TERN_HASH_START, "foo", 3), "bar", 3) == 0x85944171f73967e8ull);
    assert_int_equal(tern_hash_label(""), 0x811c9dc5u);
    assert_int_equal(tern_hash_label("a"), 0xe40c292cu);
    assert_int_equal(tern_hash_label("foobar"), 0xbf9cf968u);
}

static void test_philox(void **state)
{
    (void)state; /* kat_vectors of Random123: philox4x32 10 */
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    uint32_t out[4], key[2];
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        tern_philox(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].out, sizeof out);
    }
    tern_philox_step_key(0, 0, key);
    assert_memory_equal(key, vectors[0].out, sizeof key);
    const uint32_t counter[4] = {5, 1, 0, 0}, seed[2] = {7, 9};
    tern_philox(counter, seed, out);
    tern_philox_step_key(9ull << 32 | 7, 1ull << 32 | 5, key);
    assert_memory_equal(key, out, sizeof key);
}

/* ------------------------------------------------------------------ dtypes */

static void test_dtype_sizes(void **state)
{
    (void)state;
    assert_string_equal(tern_dtype(TERN_BF16)->name, "bf16");
    assert_true(tern_dtype(TERN_F16)->is_float && !tern_dtype(TERN_U32)->is_float);
    assert_null(tern_dtype(0));
    assert_null(tern_dtype(TERN_U32 + 1));
    assert_null(tern_dtype(-1));
    assert_true(tern_dtype_bytes(TERN_F32, 1ull << 40) == 1ull << 42);
    assert_int_equal(tern_dtype_bytes(TERN_U8, 3), 3);
    assert_int_equal(tern_dtype_bytes(99, 3), 0);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The value of 16 bits in double, straight from the definition. exponent_bits: 5 for f16, 8 for bf16. */
static double value_of(uint16_t bits, int exponent_bits)
{
    const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1),
              mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

typedef struct narrow_type {
    int exponent_bits;
    uint16_t infinity;
    uint16_t (*narrow)(float value);
    float (*widen)(uint16_t bits);
} narrow_type;

static const narrow_type f16 = {5, 0x7c00, tern_f32_to_f16, tern_f16_to_f32};
static const narrow_type bf16 = {8, 0x7f80, tern_f32_to_bf16, tern_bf16_to_f32};

/* Every one of the 65,536 patterns: widening is exact, and narrowing gives the pattern back. */
static void check_round_trip(const narrow_type *type)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const float wide = type->widen((uint16_t)bits);
        const double value = value_of((uint16_t)bits, type->exponent_bits);
        const uint16_t back = type->narrow(wide);
        if (isnan(value)) {
            assert_true(isnan(wide) && isnan(value_of(back, type->exponent_bits)));
            assert_int_equal(back >> 15, bits >> 15);
        } else {
            assert_true((double)wide == value && !signbit(wide) == !signbit(value));
            assert_int_equal(back, bits);
        }
    }
}

/* Between every two neighbours: below the middle goes down, above goes up, the middle itself to the even one. The
 * middle of the largest number and the next power of two is where infinity begins. */
static void check_rounding(const narrow_type *type)
{
    for (uint16_t low = 0; low < type->infinity; low++) {
        const uint16_t high = (uint16_t)(low + 1);
        const double a = value_of(low, type->exponent_bits);
        const double b = high == type->infinity
                             ? 2 * value_of((uint16_t)(high - (1 << (15 - type->exponent_bits))), type->exponent_bits)
                             : value_of(high, type->exponent_bits);
        const float middle = (float)((a + b) / 2); /* exact: one bit more, and f32 has at least eight */
        const uint32_t bits = bits_of(middle);
        assert_true((double)middle == (a + b) / 2);
        assert_int_equal(type->narrow(middle), low & 1 ? high : low);
        assert_int_equal(type->narrow(float_of(bits - 1)), low);
        assert_int_equal(type->narrow(float_of(bits + 1)), high);
        assert_int_equal(type->narrow(-middle), 0x8000 | (low & 1 ? high : low));
        assert_int_equal(type->narrow(float_of(0x80000000u | (bits + 1))), 0x8000 | high);
    }
}

static void test_f16_round_trip(void **state)
{
    (void)state;
    check_round_trip(&f16);
    check_rounding(&f16);
    assert_int_equal(tern_f32_to_f16(65504.0f), 0x7bff);
    assert_int_equal(tern_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(tern_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(tern_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(tern_f32_to_f16(float_of(0xff800001u)) & 0xfe00,
                     0xfe00); /* payload in the low bits only: still NaN */
    assert_int_equal(tern_f32_to_f16(1e-42f), 0);
}

static void test_bf16_round_trip(void **state)
{
    (void)state;
    check_round_trip(&bf16);
    check_rounding(&bf16);
    assert_int_equal(tern_f32_to_bf16(float_of(0x7f7fffffu)), 0x7f80); /* the largest f32 rounds to infinity */
    assert_int_equal(tern_f32_to_bf16(float_of(0x7f800001u)) & 0x7fc0, 0x7fc0);
}

static void test_clock(void **state)
{
    (void)state;
    const uint64_t start = tern_time_ns();
    tern_sleep_ns(3000000);
    const uint64_t passed = tern_time_ns() - start;
    assert_true(passed >= 3000000 && passed < 10000000000ull);
}

/* A user's own setting stays; without one it appears exactly where the CPU has the instructions in question. */
static void test_jit_prepare(void **state)
{
    (void)state;
    static const char *const name = "GALLIUM_OVERRIDE_CPU_CAPS";
    char *flags = NULL;
    size_t bytes = 0;
    TEST_OK(tern_file_read("/proc/cpuinfo", 0, &flags, &bytes));
    const bool wanted = strstr(flags, "avx512vl") != NULL;
    free(flags);
    setenv(name, "sse4.1", 1);
    tern_jit_prepare();
    assert_string_equal(getenv(name), "sse4.1");
    unsetenv(name);
    tern_jit_prepare();
    assert_int_equal(getenv(name) != NULL, wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_long_sentence),
        cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_dtype_sizes),
        cmocka_unit_test(test_f16_round_trip),
        cmocka_unit_test(test_bf16_round_trip),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_jit_prepare),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
