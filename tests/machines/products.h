/* SPDX-License-Identifier: Apache-2.0
 * Products as numbers with a bound, for products.c and layers.c. */
#ifndef MACHINES_PRODUCTS_H
#define MACHINES_PRODUCTS_H

#include "bits.h"

/* A matrix as it is multiplied: element (i, j) is at[i * row + j * column]. */
typedef struct View {
    const float* at;
    int64_t row, column;
    int is_rounded; /* the product rounds or quantizes these numbers first */
} View;

typedef struct Product {
    const char* name;
    int64_t m, n, k;
    View a, b;
    double added; /* largest magnitude of what is added to the sum */
    double times; /* so many products have been accumulated */
    int is_gelu;
} Product;

/* Where products are wanted: "product NAME DTYPE VALUES", the values as the bytes of fp32 in hexadecimal; where bounds are,
 * too: "bounds NAME BOUNDS", as the bytes of doubles, each that of an element before its last rounding. */
void write_product(Bits* bits, const Product* product, const mp_tensor* result);

#endif /* MACHINES_PRODUCTS_H */
