# SPDX-License-Identifier: Apache-2.0
#
# A small language model on bytes, the same in every language: same text, same seed, same losses to the last digit.
#
#   julia train.jl TEXT [RECIPE [STEPS [FOLDER]]]    recipe bf16_mixed, 60 steps; FOLDER: resume from there, save there
#
# Model: the last 8 bytes, each by an embedding of 16 -> linear 128 -> 128, bias, relu -> linear 128 -> 256, bias ->
# softmax. The two products are the library's, in the recipe's dtypes; what is between them is here, in fp32, the
# loss in double. Random numbers: s = 48271 s mod (2^31 - 1). Arrays are features x rows: a column is one example.
using MixedPrec
using Printf

const CONTEXT, EMBED, HIDDEN, BYTES, BATCH = 8, 16, 128, 256, 32
const IN = CONTEXT * EMBED

# ---- Random numbers

const random_state = Ref{Int64}(1234)

next_random() = random_state[] = random_state[] * 48271 % 2147483647

# The order is that of memory.
function uniform(bound, dims...)
    values = Float32[(2.0 * (next_random() / 2147483647.0) - 1.0) * bound for _ in 1:prod(dims)]
    return reshape(values, dims)
end

# ---- Loss of one row of logits; its gradient times `factor` goes into `gradient`.

function cross_entropy!(gradient, row, target, factor)
    largest = Float64(maximum(row))
    e = exp.(row .- largest)
    total = foldl(+, e) # from left to right: the same bits in every language
    gradient .= (e ./ total .- (axes(row, 1) .== target)) .* factor
    return log(total) - (row[target] - largest)
end

function main(path, name = "bf16_mixed", steps = "60", folder = nothing)
    text = read(path)
    context = Context()
    recipe = Recipe(context, name)
    scaler = Scaler(context, recipe)
    optimizer = Optimizer(context, recipe)
    group = add_group!(optimizer; lr = 1e-2, weight_decay = 0.01)

    embed, embed_grad = uniform(1.0, EMBED, BYTES), zeros(Float32, EMBED, BYTES)
    values1, values2 = uniform(sqrt(1.0 / IN), IN, HIDDEN), uniform(sqrt(1.0 / HIDDEN), HIDDEN, BYTES)
    b1, db1, b2, db2 = zeros(Float32, HIDDEN), zeros(Float32, HIDDEN), zeros(Float32, BYTES), zeros(Float32, BYTES)
    w1, w2 = weight(context, recipe, values1), weight(context, recipe, values2)

    add_param!(group, "embed", embed; grad = embed_grad)
    dw1 = grad(add_param!(group, "w1", w1; init = values1))
    add_param!(group, "b1", b1; grad = db1)
    dw2 = grad(add_param!(group, "w2", w2; init = values2))
    add_param!(group, "b2", b2; grad = db2)
    linear1, linear2 = Linear(context, recipe, w1, b1), Linear(context, recipe, w2, b2)
    set_linears!(optimizer, [linear1, linear2])

    x, dx = zeros(Float32, IN, BATCH), zeros(Float32, IN, BATCH)
    h, dh = zeros(Float32, HIDDEN, BATCH), zeros(Float32, HIDDEN, BATCH)
    logits, dlogits = zeros(Float32, BYTES, BATCH), zeros(Float32, BYTES, BATCH)

    step, checkpoint = 0, nothing
    if folder !== nothing
        checkpoint = Checkpoint(context)
        add!(checkpoint, optimizer)
        add!(checkpoint, scaler)
        add!(checkpoint, "linear1", linear1)
        add!(checkpoint, "linear2", linear2)
        add!(checkpoint, "random", random_state)
        if isdir(folder)
            step = load!(checkpoint, folder).step
            println("resumed at step ", step)
        end
    end

    while step < parse(Int, steps)
        factor = scale(scaler)
        rows = map(1:BATCH) do r
            position = next_random() % (length(text) - CONTEXT)
            bytes = @view text[position+1:position+CONTEXT]
            x[:, r] .= vec(embed[:, bytes.+1])
            (bytes = bytes, target = text[position+CONTEXT+1] + 1)
        end

        forward!(h, linear1, x)
        h .= max.(h, 0.0f0)
        forward!(logits, linear2, h)
        loss = foldl(enumerate(rows); init = 0.0) do sum, (r, row)
            sum + cross_entropy!(view(dlogits, :, r), view(logits, :, r), row.target, factor / BATCH)
        end

        backward!(linear2, dlogits; dx = dh, dw = dw2, dbias = db2)
        dh .= ifelse.(h .> 0, dh, 0.0f0)
        backward!(linear1, dh; dx = dx, dw = dw1, dbias = db1)
        embed_grad .= 0
        for (r, row) in enumerate(rows), (c, byte) in enumerate(row.bytes)
            embed_grad[:, byte+1] .+= dx[(c-1)*EMBED+1:c*EMBED, r]
        end
        step!(optimizer; scaler = scaler)
        update_scale!(scaler)

        step += 1
        step % 10 == 0 && @printf("step %3d  loss %.9f  scale %.0f\n", step, loss / BATCH, factor)
    end
    if checkpoint !== nothing
        save(checkpoint, folder, step)
        close(checkpoint)
    end
end

1 <= length(ARGS) <= 4 || (println(stderr, "usage: train.jl TEXT [RECIPE [STEPS [FOLDER]]]"); exit(2))
main(ARGS...)
