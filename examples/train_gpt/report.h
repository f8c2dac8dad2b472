/* SPDX-License-Identifier: Apache-2.0
 * What the runs came to: a table, and files for --out. */
#ifndef TRAIN_GPT_REPORT_H
#define TRAIN_GPT_REPORT_H

#include <stdio.h>

#include "run.h"

/* The run that the others are compared with: the first finished one of recipe "fp32", or NULL. */
const Run* report_baseline(const Run* runs, int count);

void report_table(const Run* runs, int count);
void report_samples(const Run* runs, int count);

/* Makes the folder if it is not there and is able to take files; false after printing why not. */
bool report_prepare_folder(const char* folder);
/* A file in that folder, opened as fopen does; NULL after printing why not. */
FILE* report_open(const char* folder, const char* name, const char* mode);
/* Closes it; false after printing that it could not be written. */
bool report_close(FILE* file, const char* folder, const char* name);
/* losses.csv, losses.svg, results.json and, with --monitor, monitor.svg. */
bool report_files(const Run* runs, int count, const Options* options);

/* The plots themselves. (svg.c, monitor_svg.c) */
void svg_write(FILE* file, const Run* runs, int count);
void monitor_svg_write(FILE* file, const Run* runs, int count);

#endif
