# SPDX-License-Identifier: Apache-2.0
#
# Only the optimizer and the loss scaler, on arrays of the program's own: AdamW moves p to a target. Gradients overflow
# at step 20: the scaler skips that step and halves its scale. Prints what the same program prints in every language.
using MixedPrec
using Printf

function main()
    context = Context()
    scaler = Scaler(context)
    p, grad, exp_avg, exp_avg_sq = (zeros(Float32, 1000) for _ in 1:4)
    target = Float32.(mod.(0:999, 7) .- 3)
    slot = Slot(p, grad, exp_avg, exp_avg_sq)
    t = 1
    for i in 1:100
        grad .= (p .- target) .* Float32(scale(scaler))
        i == 20 && (grad[6] = Inf32)
        result = step!(context, slot; step = t, lr = 0.1, scaler = scaler)
        result.found_inf || (t += 1)
        update_scale!(scaler)
    end
    @printf("steps %d  skipped %d  scale %.0f  sum %.9f  p[1] %.9f\n", t - 1, 100 - (t - 1), scale(scaler),
            foldl((sum, x) -> sum + abs(Float64(x)), p; init = 0.0), p[2])
end

main()
