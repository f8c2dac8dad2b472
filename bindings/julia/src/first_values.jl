# SPDX-License-Identifier: Apache-2.0
# First values of parameters, for the elements that a rank has. Collective where ranks share the optimizer, after shard!.

const INIT_KINDS = (constant = CAPI.MP_INIT_CONSTANT, uniform = CAPI.MP_INIT_UNIFORM, normal = CAPI.MP_INIT_NORMAL)

"""
    init_params!(rules; seed = 0, queue = nothing)

Give parameters their values by rules, pairs such as `w => (:normal, mean, deviation)`, `b => (:uniform, low, high)` and
`scale => (:constant, 1.0)`. Random numbers go by seed, the parameter's name and the element, in the library's order of
elements: the same for any number of ranks.
"""
function init_params!(rules; seed::Integer = 0, queue = nothing)
    pairs = collect(rules)
    o, indices = indices_of([param for (param, _) in pairs])
    inits = try
        map(indices, pairs) do index, (_, rule)
            CAPI.mp_param_init(index = index, kind = choice(INIT_KINDS, rule[1], "kind"), a = rule[2],
                               b = length(rule) > 2 ? rule[3] : 0.0)
        end
    catch
        CAPI.mp_optimizer_init_params(o, queue, seed, C_NULL, 1) # no rules, so that other ranks do not wait
        rethrow()
    end
    check(CAPI.mp_optimizer_init_params(o, queue, seed, inits, length(inits)))
end

"""
    load_params!(params, path; prefix = "", queue = nothing)

Give parameters the values that a model's files (safetensors, GGUF) have, by their names after `prefix`. Each rank reads what it
has.
"""
function load_params!(params, path::AbstractString; prefix::AbstractString = "", queue = nothing)
    o, indices = indices_of(params)
    model = Ref{Ptr{CAPI.mp_model_file}}(C_NULL)
    load() = CAPI.mp_optimizer_load_params(o, queue, model[], prefix, indices, length(indices))
    try
        check(CAPI.mp_model_file_open(path, 0, model))
    catch
        load() # without files, so that other ranks do not wait
        rethrow()
    end
    try
        check(load())
    finally
        CAPI.mp_model_file_destroy(model[])
    end
end
