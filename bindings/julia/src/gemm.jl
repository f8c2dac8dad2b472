# SPDX-License-Identifier: Apache-2.0
# Planned matrix products.

@handle Gemm gemm """
    Gemm(context, m, n, k; a = Float32, b = a, d = Float32, transpose_a = false, transpose_b = false, alpha = 1,
         beta = 0, bias = nothing, gelu = false, batch = 1, lda = 0, ldb = 0, ldc = 0, ldd = 0, scale_a = nothing,
         scale_b = nothing, power_of_two_scales = false, fast_accumulation = false, implementation = nothing, quant_d = nothing)

The plan of D = gelu(alpha op(A) op(B) + beta C + bias) for Julia matrices: op(A) is `m x k`, op(B) `k x n`, C and D
`m x n`, and with `transpose_a` A is stored `k x m`. `a`, `b`, `d` and `bias` are element types; the bias has `m`
elements and is added to every column. Leading dimensions are Julia's. `scale_a = (T, rows, columns)` gives operands
of fp8 scales of type `T` (`Float32` or `E8M0`) for blocks of `rows x columns` of the matrix as stored, 0 for all.
`quant_d` is the `Quant` that a quantized D was made with: the product becomes its codes and scales.

The library is row-major, so it computes the transpose of this from the same memory, without a copy.
"""

function Gemm(c::Context, m::Integer, n::Integer, k::Integer; a::Type = Float32, b::Type = a, d = Float32,
              transpose_a = false, transpose_b = false, alpha = 1, beta = 0, bias = nothing, gelu = false, batch = 1,
              lda = 0, ldb = 0, ldc = 0, ldd = 0, scale_a = nothing, scale_b = nothing, power_of_two_scales = false,
              fast_accumulation = false, implementation = nothing, quant_d = nothing)
    name = implementation === nothing ? nothing : c_text(implementation)
    # D' = op(B)' op(A)': the library's A is Julia's B.
    first, second = scale_block(scale_b), scale_block(scale_a)
    quant = quant_d === nothing ? nothing : Ref(quant_d.desc)
    desc = CAPI.mp_gemm_desc(
        flags = flags(CAPI.MP_GEMM_TRANS_A => transpose_b, CAPI.MP_GEMM_TRANS_B => transpose_a,
                      CAPI.MP_GEMM_BIAS => bias !== nothing, CAPI.MP_GEMM_GELU => gelu, CAPI.MP_GEMM_HAS_ALPHA => true,
                      CAPI.MP_GEMM_POWER_OF_TWO_SCALES => power_of_two_scales,
                      CAPI.MP_GEMM_FAST_ACCUMULATION => fast_accumulation),
        m = n, n = m, k = k, lda = ldb, ldb = lda, ldc = ldc, ldd = ldd, batch_count = batch, alpha = alpha,
        beta = beta,
        dtype_a = dtype_number(b), dtype_b = dtype_number(a), dtype_d = code_number(d),
        dtype_bias = dtype_number(bias), scale_a_dtype = first[1], scale_a_rows = first[2], scale_a_columns = first[3],
        scale_b_dtype = second[1], scale_b_rows = second[2], scale_b_columns = second[3],
        implementation = name === nothing ? C_NULL : pointer(name),
        quant_d = quant === nothing ? C_NULL : Base.unsafe_convert(Ptr{CAPI.mp_quant_desc}, quant))
    GC.@preserve name quant return Gemm(made(out -> CAPI.mp_gemm_create(c, Ref(desc), out), CAPI.mp_gemm), c)
end

# Type, rows and columns of a block in the library's order.
scale_block(::Nothing) = (CAPI.MP_DTYPE_NONE, 0, 0)
scale_block((type, rows, columns)) = (dtype_number(type), columns, rows)

"""
    gemm!(plan, D, A, B; bias = nothing, C = nothing, scale_a = nothing, scale_b = nothing, multiply_d = nothing,
          amax_d = nothing, queue = nothing)

Compute the product into `D`. All are tensors or arrays of the plan's types. Scales of quantized tensors are theirs;
`multiply_d` and `amax_d` (one `Float32` each) belong to a `D` of fp8.
"""
function gemm!(g::Gemm, D, A, B; bias = nothing, C = nothing, scale_a = nothing, scale_b = nothing,
               multiply_d = nothing, amax_d = nothing, queue = nothing)
    operands = (D, A, B, bias, C === D ? nothing : C, scale_a, scale_b, multiply_d, amax_d)
    given(context(g), operands...) do d, a, b, v, c, sa, sb, by, top
        args = CAPI.mp_gemm_args(a = optional(b), b = optional(a), bias = optional(v),
                                 c = C === nothing ? C_NULL : C === D ? optional(d) : optional(c), d = optional(d),
                                 scale_a = optional(sb), scale_b = optional(sa), multiply_d = optional(by),
                                 amax_d = optional(top))
        GC.@preserve a b v c d sa sb by top check(CAPI.mp_gemm_run_scaled(g, queue, Ref(args)))
    end
    return D
end

describe(g::Gemm) = text_of((b, n, needed) -> CAPI.mp_gemm_describe(g, b, n, needed))
