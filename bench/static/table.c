/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - static.json as the tables of docs/vendor-compilers.md: a row per target and precision.
 *
 * Registers are the most that a kernel of the kind takes; spills are said only where there are some. */
#include "bench/static/static.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns: what is alike in its needs stands together. */
static const struct {
    const char *title, *first, *last; /* kinds from `first` to `last` by the start of their names */
} columns[] = {{"matmul", "matmul", "matmul"}, {"attention", "attention", "attention"}, {"others", "tape", "scatter"}};
enum { COLUMNS = sizeof columns / sizeof *columns };

typedef struct cell {
    uint32_t kernels, spilling, private, failed;
    double registers, spills, private_most, matrix, shared, matrix_kernels;
} cell;

static double number(const cJSON *kernel, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(kernel, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static uint32_t column_of(const char *kind)
{
    for (uint32_t c = 0; c < COLUMNS; c++)
        if (strncmp(kind, columns[c].first, strlen(columns[c].first)) == 0) return c;
    return COLUMNS - 1;
}

static void add_kernel(cell *cells, const cJSON *kernel)
{
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(kernel, "kind"));
    cell *c = &cells[column_of(kind ? kind : "")];
    const double registers = number(kernel, "registers"), spills = number(kernel, "spills"),
                 shared = number(kernel, "shared"), matrix = number(kernel, "matrix"),
                 private = number(kernel, "private");
    c->kernels++;
    c->failed += cJSON_HasObjectItem(kernel, "error") != 0;
    c->spilling += spills > 0;
    c->private += private > 0;
    if (private > c->private_most) c->private_most = private;
    c->matrix_kernels += matrix > 0;
    c->matrix += matrix;
    if (registers > c->registers) c->registers = registers;
    if (spills > c->spills) c->spills = spills;
    if (shared > c->shared) c->shared = shared;
}

static void print_cell(FILE *out, const cell *c)
{
    fprintf(out, " %u, %.0f registers, %.0f KiB", c->kernels, c->registers, c->shared / 1024);
    if (c->matrix > 0) fprintf(out, ", %.0f matrix in %.0f", c->matrix, c->matrix_kernels);
    if (c->spilling) fprintf(out, ", **%u spill (%.0f B at most)**", c->spilling, c->spills);
    if (c->private) fprintf(out, ", %u with arrays in memory (%.0f B at most)", c->private, c->private_most);
    if (c->failed) fprintf(out, ", **%u not compiled**", c->failed);
    fprintf(out, " |");
}

static void print_rows(FILE *out, const cJSON *target)
{
    const cJSON *precision, *kernel;
    cJSON_ArrayForEach(precision, cJSON_GetObjectItem(target, "precisions"))
    {
        cell cells[COLUMNS] = {{0}};
        cJSON_ArrayForEach(kernel, cJSON_GetObjectItem(precision, "kernels")) add_kernel(cells, kernel);
        fprintf(out, "| %s | %s |", cJSON_GetStringValue(cJSON_GetObjectItem(target, "target")),
                cJSON_GetStringValue(cJSON_GetObjectItem(precision, "precision")));
        for (uint32_t c = 0; c < COLUMNS; c++) print_cell(out, &cells[c]);
        fprintf(out, "\n");
    }
}

tern_status static_table(const cJSON *all, char **out_text)
{
    size_t bytes = 0;
    const cJSON *target, *targets = cJSON_GetObjectItem(all, "targets");
    FILE *out = open_memstream(out_text, &bytes);
    if (!out) return tern_error_memory("a table", 4096);
    fprintf(out, "| target | cards | compiler |\n|---|---|---|\n");
    cJSON_ArrayForEach(target, targets)
        fprintf(out, "| %s | %s | %s |\n", cJSON_GetStringValue(cJSON_GetObjectItem(target, "target")),
                cJSON_GetStringValue(cJSON_GetObjectItem(target, "cards")),
                cJSON_GetStringValue(cJSON_GetObjectItem(target, "compiler")));
    fprintf(out, "\n| target | precision |");
    for (uint32_t c = 0; c < COLUMNS; c++) fprintf(out, " %s |", columns[c].title);
    fprintf(out, "\n|---|---|---|---|---|\n");
    cJSON_ArrayForEach(target, targets) print_rows(out, target);
    return fclose(out) == 0 ? TERN_OK : tern_error_memory("a table", bytes);
}
