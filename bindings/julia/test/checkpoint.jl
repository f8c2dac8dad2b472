# SPDX-License-Identifier: Apache-2.0
c = Context(threads = 1)
function training()
    r = Recipe(c, "fp8_delayed")
    values = reshape(Float32.(sin.(1:64*32)), 64, 32)
    w, o, s = weight(c, r, values), Optimizer(c, r), Scaler(c, r)
    param = add_param!(o, "w", w; init = values)
    l = Linear(c, r, w)
    set_linears!(o, [l])
    data, position = collect(Int32, 1:5), Ref(7.5)
    k = Checkpoint(c; keep = 2)
    add!(k, o)
    add!(k, s)
    add!(k, "layer", l)
    add!(k, "data", data)
    add!(k, "position", position)
    return (optimizer = o, param = param, layer = l, data = data, position = position, checkpoint = k)
end
function advance!(t)
    x, y = Float32.(cos.(reshape(1:64*8, 64, 8))), zeros(Float32, 32, 8)
    forward!(y, t.layer, x)
    backward!(t.layer, y; dw = grad(t.param))
    step!(t.optimizer)
end
mktempdir() do folder
    a = training()
    foreach(_ -> advance!(a), 1:3)
    a.data[1], a.position[] = 42, 1.25
    save(a.checkpoint, folder, 3; background = true)
    wait(a.checkpoint)
    @test MixedPrec.test(a.checkpoint)
    done = progress(a.checkpoint)
    @test done.done == done.total > 0
    foreach(_ -> advance!(a), 1:2)
    b = training()
    info = load!(b.checkpoint, folder; verify_all = true)
    @test info.step == 3 && inspect(folder).step == 3 && info.tensor_count > 0
    @test b.data == [42, 2, 3, 4, 5] && b.position[] == 1.25
    foreach(_ -> advance!(b), 1:2)
    @test read_state(a.param, :fp32_param) == read_state(b.param, :fp32_param)
    @test occursin("step 3", describe_checkpoint(folder))
    save(a.checkpoint, folder, 5)
    save(a.checkpoint, folder, 6)
    @test length(readdir(folder)) == 2 # keep
    export_weights(a.checkpoint, joinpath(folder, "weights.safetensors"))
    @test isfile(joinpath(folder, "weights.safetensors"))
    @test kind(() -> export_weights(a.checkpoint, joinpath(folder, "weights.safetensors"))) === :io_error
    @test kind(() -> load!(b.checkpoint, joinpath(folder, "none"))) === :io_error
    # Another recipe: refused, or converted with what it lost.
    r = Recipe(c, "bf16_mixed_dual")
    o = Optimizer(c, r)
    p = add_param!(o, "w", weight(c, r, 64, 32))
    k = Checkpoint(c)
    add!(k, o)
    add!(k, "data", zeros(Int32, 5))
    add!(k, "position", Ref(0.0))
    @test kind(() -> load!(k, folder)) !== :nothing_thrown
    info = load!(k, folder; convert = true)
    @test info.converted == 1 && keys(info.state_largest_error) == (:exp_avg, :exp_avg_sq)
    @test read_state(p, :fp32_param) == read_state(a.param, :fp32_param)
    @test kind(() -> add!(k, o)) === :bad_state
    @test kind(() -> add!(k, "", zeros(3))) === :invalid_argument
    @test kind(() -> add!(k, "x", Ref("text"))) === ArgumentError
    @test kind(() -> add!(k, "x", ["text"])) === :invalid_dtype
    @test kind(() -> save(k, folder, -1)) === :invalid_argument
    # A manifest that was changed
    newest = joinpath(folder, last(sort(filter(isdir ∘ (f -> joinpath(folder, f)), readdir(folder)))))
    for file in readdir(newest; join = true)
        endswith(file, ".safetensors") && open(io -> (seekend(io); skip(io, -1); write(io, 0xa5)), file, "r+")
    end
    @test kind(() -> load!(a.checkpoint, newest; verify_all = true)) === :corrupt_data
    foreach(x -> close(x.checkpoint), (a, b))
    close(k)
    @test kind(() -> save(k, folder, 1)) === :invalid_handle && kind(() -> progress(k)) === :invalid_handle
end
