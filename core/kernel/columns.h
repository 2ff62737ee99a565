/* SPDX-License-Identifier: Apache-2.0 */
/* columns.h - splits sums over many leading rows in two: chunks of 64 rows, then the chunks in order.
 *
 * The first half (COLUMN_SUMS) rides along in whatever kernel walks those rows anyway; no atomics, fixed order.
 * Also drops every node that no output and no assign needs. */
#ifndef TERN_KERNEL_COLUMNS_H
#define TERN_KERNEL_COLUMNS_H

#include "core/graph/graph.h"

/* A new graph with the same outputs; leaves keep their names, nodes their labels and passes. */
TERN_MUST_USE tern_status tern_split_columns(const tern_graph *graph, tern_graph **out_graph);

#endif
