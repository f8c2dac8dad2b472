/* SPDX-License-Identifier: Apache-2.0
 * --monitor N: every N steps, what became of the numbers that the layers quantized. Each layer's operands go to
 * monitor.csv; their sums over all layers are kept for monitor.svg; what the library advises is printed at the end.
 * Only fp8 operands are counted: recipes without fp8 products have no rows. */
#ifndef TRAIN_GPT_MONITOR_H
#define TRAIN_GPT_MONITOR_H

#include <stdio.h>

#include "network.h"

/* One class of operands (MP_OPERAND_*) over all layers, since the point before. */
typedef struct {
    int64_t elements, saturated, underflowed;
    double amax;
} MonitorCounts;

typedef struct {
    int64_t step;
    MonitorCounts operands[MP_OPERAND_COUNT];
} MonitorPoint;

/* One piece of advice about one operand of one layer, however often it was given. */
typedef struct {
    char layer[32];
    int32_t operand;
    int64_t times;
    char text[256]; /* the latest: its figures change */
} MonitorAdvice;

typedef struct {
    const char* recipe;
    int64_t step;
    FILE* csv;
    MonitorPoint* points;
    int64_t point_count, point_capacity;
    MonitorAdvice* advice;
    int64_t advice_count, advice_capacity;
    bool out_of_memory;
} Monitor;

/* Writes the first line of monitor.csv. */
bool monitor_prepare_file(const Options* options);

/* Has the layers report. Nothing happens without --monitor. After a failure too, monitor_stop. */
bool monitor_start(Monitor* m, const Options* options, const char* recipe, const Network* net);
/* Prints the advice. False when monitor.csv could not be written. */
bool monitor_finish(Monitor* m);
/* Hands over what was collected: the caller frees it. */
MonitorPoint* monitor_points(Monitor* m, int64_t* count);
void monitor_stop(Monitor* m);

#endif
