# SPDX-License-Identifier: Apache-2.0
# Optimizers whose states ranks share: `Optimizer(context, recipe; comm, stage, ...)`.

const SHARD_KINDS = (flat = CAPI.MP_SHARD_FLAT, per_parameter = CAPI.MP_SHARD_PER_PARAMETER,
                     greedy = CAPI.MP_SHARD_GREEDY)

function sharding_desc(; stage = 1, kind::Symbol = :flat, bucket_elements = 0, wire_dtype = nothing,
                       wire_scale::Symbol = :default, order::Symbol = :rank, slots = 0, shard_ranks = 0, node_ranks = 0,
                       check_every = 0, sum_gradients = false, progress_thread = true)
    return CAPI.mp_sharding_desc(
        flags = flags(CAPI.MP_SHARDING_SUM_GRADIENTS => sum_gradients,
                      CAPI.MP_SHARDING_NO_PROGRESS_THREAD => !progress_thread),
        stage = stage == 0 ? CAPI.MP_SHARDING_STAGE_0 : stage, kind = choice(SHARD_KINDS, kind, "kind"),
        bucket_elements = bucket_elements,
        wire_dtype = dtype_number(wire_dtype), wire_scale = choice(WIRE_SCALES, wire_scale, "wire_scale"),
        order = choice(ORDERS, order, "order"), slots = slots, shard_ranks = shard_ranks, check_every = check_every,
        node_ranks = node_ranks)
end

"Cut the parameters among the ranks now; the first step does it otherwise. None can be added after it."
shard!(o::Optimizer; queue = nothing) = check(CAPI.mp_optimizer_shard(o, queue))

"The gradient of this parameter is complete, and may travel; every rank says it in the same order."
grad_ready!(p::Param; queue = nothing) = check(CAPI.mp_optimizer_grad_ready(p.optimizer, queue, p.index))

"All gradients of one slot are there, where a rank has several."
end_microbatch!(o::Optimizer; queue = nothing) = check(CAPI.mp_optimizer_end_microbatch(o, queue))

"Stages 2 and 3: give a gradient its memory, of zeros, where it has none."
acquire_grad!(p::Param; queue = nothing) = check(CAPI.mp_optimizer_acquire_grad(p.optimizer, queue, p.index))

# The one optimizer of these parameters, and their numbers.
function indices_of(params)
    isempty(params) && throw(ArgumentError("there are no parameters"))
    o = first(params).optimizer
    all(p -> p.optimizer === o, params) || throw(ArgumentError("the parameters are of several optimizers"))
    return o, Int32[p.index for p in params]
end

"""
    gather_begin!(params); gather_wait!(params); gather_free!(params)

Stage 3: give parameters memory and begin to fetch them, return when they are whole, give their memory back. A step
frees all. Every rank names the same ones in the same order.
"""
function gather_begin!(params; queue = nothing)
    o, indices = indices_of(params)
    check(CAPI.mp_optimizer_gather_begin(o, queue, indices, length(indices)))
end
function gather_wait!(params; queue = nothing)
    o, indices = indices_of(params)
    check(CAPI.mp_optimizer_gather_wait(o, queue, indices, length(indices)))
end
function gather_free!(params; queue = nothing)
    o, indices = indices_of(params)
    check(CAPI.mp_optimizer_gather_free(o, queue, indices, length(indices)))
end
@doc (@doc gather_begin!) gather_wait!
@doc (@doc gather_begin!) gather_free!

const PASSES = (forward = CAPI.MP_PASS_FORWARD, backward = CAPI.MP_PASS_BACKWARD,
                accumulate = CAPI.MP_PASS_ACCUMULATE)

"""
    set_layer_params!(optimizer, layers; prefetch = 1)

Which parameters each layer of the model uses, in the order of its forward pass: `[[embedding], [w, b], ...]`. Weights are
fetched `prefetch` layers ahead, see `layer_begin!`. A parameter may belong to several. The same on every rank.
"""
function set_layer_params!(o::Optimizer, layers; prefetch = 1)
    all(p -> p.optimizer === o, Iterators.flatten(layers)) ||
        throw(ArgumentError("the layers have parameters of another optimizer"))
    counts, indices = Int32[length(layer) for layer in layers], Int32[p.index for layer in layers for p in layer]
    check(CAPI.mp_optimizer_set_layer_params(o, length(counts), counts, indices, prefetch))
end

"""
    layer_begin!(optimizer, layer; pass = :forward, queue = nothing)
    layer_end!(optimizer, layer; pass = :forward, queue = nothing)

Around a pass of a layer, `layers[layer]` of `set_layer_params!`: `:forward`, `:backward`, or `:accumulate`, which is
backward where another micro-batch adds to the gradients. Stage 3: the weights are whole in between, and those of the next
layers are on their way. From stage 2 on gradients have memory from the begin of backward on; its end has them leave. Every
rank does it in the same order. In messages layers count from 0.
"""
layer_begin!(o::Optimizer, layer::Integer; pass::Symbol = :forward, queue = nothing) =
    check(CAPI.mp_optimizer_layer_begin(o, queue, layer - 1, choice(PASSES, pass, "pass")))
layer_end!(o::Optimizer, layer::Integer; pass::Symbol = :forward, queue = nothing) =
    check(CAPI.mp_optimizer_layer_end(o, queue, layer - 1, choice(PASSES, pass, "pass")))
@doc (@doc layer_begin!) layer_end!

"Which elements of a parameter a rank owns, as a range (from 1) in the order of memory."
function slice(p::Param, rank::Integer)
    start, count = Ref{Int64}(0), Ref{Int64}(0)
    check(CAPI.mp_optimizer_get_slice(p.optimizer, p.index, rank, start, count))
    return start[]+1:start[]+count[]
end

"""
    progress(optimizer)
    progress(checkpoint)

What moves between the calls of a sharded optimizer; or the bytes that a save or load has done and has to, as
`(done, total)`.
"""
function progress(o::Optimizer)
    p = filled(box -> CAPI.mp_optimizer_get_progress(o, box), CAPI.mp_sharding_progress())
    return (has_thread = p.has_thread != 0, begun = p.begun, finished = p.finished,
            finished_by_thread = p.finished_by_thread, reason = p.reason == C_NULL ? "" : unsafe_string(p.reason))
end

"FP8-LM's factor mu of a gradient that is reduced under a shared scale; 0 where it has none."
grad_mu(p::Param) = filled(box -> CAPI.mp_optimizer_get_grad_mu(p.optimizer, p.index, box), 0.0)

traffic(o::Optimizer) = named(filled(box -> CAPI.mp_optimizer_get_traffic(o, box), CAPI.mp_comm_traffic()))
