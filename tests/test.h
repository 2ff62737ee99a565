/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - what every test includes: cmocka and a few checks that fail on NaN and say the values.
 *
 * main of each test returns the number of failed tests (cmocka_run_group_tests does). A skip says why. */
#ifndef TERN_TESTS_TEST_H
#define TERN_TESTS_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/tern.h"

/* Skips the running test, saying why (printf form). */
#define TEST_SKIP(...)                                                                                                 \
    do {                                                                                                               \
        print_message("skipped: " __VA_ARGS__);                                                                        \
        print_message("\n");                                                                                           \
        skip();                                                                                                        \
    } while (0)

/* The expression must be TERN_OK; its error sentence is shown if not. */
#define TEST_OK(expression)                                                                                            \
    do {                                                                                                               \
        tern_status test_status_ = (expression);                                                                       \
        if (test_status_ != TERN_OK)                                                                                   \
            fail_msg("%s: %s (%s)", #expression, tern_status_name(test_status_), tern_error_message());                \
    } while (0)

/* The expression must be `expected`, with a sentence that contains `part`. */
#define TEST_ERROR(expression, expected, part)                                                                         \
    do {                                                                                                               \
        tern_status test_status_ = (expression);                                                                       \
        if (test_status_ != (expected))                                                                                \
            fail_msg("%s: %s, wanted %s (%s)", #expression, tern_status_name(test_status_),                            \
                     tern_status_name(expected), tern_error_message());                                                \
        if (!strstr(tern_error_message(), (part)))                                                                     \
            fail_msg("%s: sentence lacks \"%s\": %s", #expression, (part), tern_error_message());                      \
    } while (0)

/* A row of a CMUnitTest table: the test, with the backend's name as its state. */
#define TEST_ON(test, backend)                                                                                         \
    {                                                                                                                  \
#test " on " backend, test, NULL, NULL, (void *)(uintptr_t)backend                                             \
    }

/* |value - expected| <= tolerance; NaN fails. */
#define TEST_NEAR(value, expected, tolerance)                                                                          \
    do {                                                                                                               \
        double test_value_ = (double)(value), test_expected_ = (double)(expected);                                     \
        if (!(fabs(test_value_ - test_expected_) <= (tolerance)))                                                      \
            fail_msg("%s = %.9g, wanted %.9g within %.3g", #value, test_value_, test_expected_, (double)(tolerance));  \
    } while (0)

/* Relative error of an array in the 2-norm, ||value - expected|| / max(||expected||, floor); NaN if any value is. */
static inline double test_relative_error(const float *value, const double *expected, size_t count, double floor)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)value[i] - expected[i];
        difference += d * d;
        norm += expected[i] * expected[i];
    }
    norm = sqrt(norm);
    return sqrt(difference) / (norm > floor ? norm : floor);
}

/* An array against the reference: !(error <= tolerance) fails, so NaN does. */
#define TEST_CLOSE(value, expected, count, tolerance)                                                                  \
    do {                                                                                                               \
        double test_error_ = test_relative_error((value), (expected), (count), 1e-30);                                 \
        if (!(test_error_ <= (tolerance)))                                                                             \
            fail_msg("%s differs from %s by %.3g of its norm, allowed %.3g", #value, #expected, test_error_,           \
                     (double)(tolerance));                                                                             \
    } while (0)

#endif
