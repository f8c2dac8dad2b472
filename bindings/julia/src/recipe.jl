# SPDX-License-Identifier: Apache-2.0
# Recipes.

@handle Recipe recipe """
    Recipe(context, name; key = value, ...)
    Recipe(context; json = text)
    Recipe(context; file = path)

Which dtype every class of tensor has, how it is rounded, how the loss is scaled. `name` is one of `presets()`,
`"auto"` or `"auto_fp8"`. Keys (see `recipe_keys()`) are read and set by `recipe["weight.dtype"] = "bf16"`, until
something uses the recipe; `copy(recipe)` can be changed again.
"""
Recipe(c::Context, name::AbstractString) =
    Recipe(made(out -> CAPI.mp_recipe_create(c, c_text(name), out), CAPI.mp_recipe), c, ReentrantLock())

function Recipe(c::Context; json = nothing, file = nothing)
    (json === nothing) == (file === nothing) && throw(ArgumentError("Recipe wants a name, json = ... or file = ..."))
    make = json === nothing ? out -> CAPI.mp_recipe_create_from_file(c, c_text(file), out) :
           out -> CAPI.mp_recipe_create_from_json(c, String(json), sizeof(String(json)), out)
    return Recipe(made(make, CAPI.mp_recipe), c, ReentrantLock())
end

# A recipe that may still change is for one thread at a time.
locked(f, r::Recipe) = lock(f, r.kept[2]::ReentrantLock)

function Base.setindex!(r::Recipe, value::AbstractString, key::AbstractString)
    locked(() -> check(CAPI.mp_recipe_set_string(r, c_text(key), c_text(value))), r)
    return r
end
function Base.setindex!(r::Recipe, value::Real, key::AbstractString)
    text = c_text(key)
    locked(r) do
        if key_type(text) == CAPI.MP_RECIPE_TYPE_INT && isinteger(value)
            check(CAPI.mp_recipe_set_int(r, text, Int64(value)))
        else
            check(CAPI.mp_recipe_set_float(r, text, value))
        end
    end
    return r
end

function Base.getindex(r::Recipe, key::AbstractString)
    text, type = c_text(key), key_type(key)
    return locked(r) do
        if type == CAPI.MP_RECIPE_TYPE_INT
            filled(box -> CAPI.mp_recipe_get_int(r, text, box), Int64(0))
        elseif type == CAPI.MP_RECIPE_TYPE_FLOAT
            filled(box -> CAPI.mp_recipe_get_float(r, text, box), 0.0)
        else # also where there is no such key: the library names the nearest
            unsafe_string(filled(box -> CAPI.mp_recipe_get_string(r, text, box), Ptr{UInt8}(C_NULL)))
        end
    end
end

key_desc(index) = filled(box -> CAPI.mp_recipe_get_key_info(index, box), CAPI.mp_recipe_key_desc())

function key_type(key)
    for i in 0:CAPI.mp_recipe_key_count()-1
        desc = key_desc(i)
        unsafe_string(desc.name) == key && return desc.type
    end
    return CAPI.MP_RECIPE_TYPE_STRING
end

"Names of all presets, each with a line that describes it."
function presets()
    return map(0:CAPI.mp_recipe_preset_count()-1) do i
        name, text = Ref(Ptr{UInt8}(C_NULL)), Ref(Ptr{UInt8}(C_NULL))
        check(CAPI.mp_recipe_get_preset_info(i, name, text))
        unsafe_string(name[]) => unsafe_string(text[])
    end
end

"All keys of a recipe: name, type, allowed values, meaning, and value in the preset fp32."
function recipe_keys()
    types = Dict(CAPI.MP_RECIPE_TYPE_STRING => String, CAPI.MP_RECIPE_TYPE_FLOAT => Float64,
                 CAPI.MP_RECIPE_TYPE_INT => Int64)
    return map(0:CAPI.mp_recipe_key_count()-1) do i
        d = key_desc(i)
        (name = unsafe_string(d.name), type = types[d.type], allowed = unsafe_string(d.allowed),
         text = unsafe_string(d.text), fp32_value = unsafe_string(d.fp32_value))
    end
end

"The recipe as JSON with every key; `Recipe(context; json)` reads it back."
to_json(r::Recipe) = locked(() -> text_of((b, n, needed) -> CAPI.mp_recipe_to_json(r, b, n, needed)), r)

"Check the combination of keys; throws with all problems at once. Advice is a warning."
validate(r::Recipe) = locked(() -> check(CAPI.mp_recipe_validate(r)), r)

"A copy that can be changed, also of a recipe in use."
Base.copy(r::Recipe) =
    locked(() -> Recipe(made(out -> CAPI.mp_recipe_clone(r, out), CAPI.mp_recipe), r.kept[1], ReentrantLock()), r)

"The recipe as a layer of this name has it: the rules of key \"layers\" resolved."
for_layer(r::Recipe, name) =
    locked(r) do
        Recipe(made(out -> CAPI.mp_recipe_clone_for_layer(r, c_text(name), out), CAPI.mp_recipe), r.kept[1], ReentrantLock())
    end

"Likewise as a parameter of this name has it."
for_param(r::Recipe, name) =
    locked(r) do
        Recipe(made(out -> CAPI.mp_recipe_clone_for_param(r, c_text(name), out), CAPI.mp_recipe), r.kept[1], ReentrantLock())
    end

"Whether something uses the recipe, so that it can no longer change."
frozen(r::Recipe) = filled(box -> CAPI.mp_recipe_get_frozen(r, box), Int32(0)) != 0

"Why `\"auto\"` chose this preset; empty for other recipes."
reason(r::Recipe) = locked(() -> text_of((b, n, needed) -> CAPI.mp_recipe_get_reason(r, b, n, needed)), r)

summary_of(r::Recipe) = frozen(r) ? "frozen" : "not frozen"

# The optimizer's rules as the library knows them: their numbers, states and hyperparameters.
const RULES = Ref{Any}(nothing)
rule_info(number) = filled(box -> CAPI.mp_rule_get_info(number, box), CAPI.mp_rule_info())
rule_text(name) = Symbol(unsafe_string(name))

function rules()
    RULES[] === nothing || return RULES[]
    numbers = Tuple(Int32(0):(filled(CAPI.mp_rule_get_count, Int32(0)) - Int32(1)))
    return RULES[] = NamedTuple{map(number -> rule_text(rule_info(number).name), numbers)}(numbers)
end

rule_number(rule::Symbol) = choice(rules(), rule, "rule")

# (exp_avg = 1, ...): the states that a rule keeps, and their places in its order.
function rule_states(number)
    places = Tuple(1:rule_info(number).state_count)
    state(k) = filled(box -> CAPI.mp_rule_get_state(number, k - 1, box), CAPI.mp_rule_state())
    return NamedTuple{map(k -> rule_text(state(k).name), places)}(places)
end

function usual_hyper(number)
    known = [filled(box -> CAPI.mp_rule_get_hyper(number, i, box), CAPI.mp_rule_hyper())
             for i in 0:(rule_info(number).hyper_count - 1)]
    return Dict(rule_text(hyper.name) => hyper.usual for hyper in known)
end

# Text for a struct: symbols stay where they are.
lasting(name::Symbol) = Base.unsafe_convert(Ptr{UInt8}, name)

# state_formats of a struct.
function formats_in_order(number, formats)
    texts = fill(Ptr{UInt8}(C_NULL), CAPI.MP_MAX_RULE_STATES)
    for (name, format) in pairs(formats)
        texts[choice(rule_states(number), Symbol(name), "a state of state_formats")] = lasting(Symbol(c_text(format)))
    end
    return Tuple(texts)
end

# Numbers by MP_STATE_* as a named tuple by state.
function by_state(numbers)
    names = filter(!=(C_NULL), [CAPI.mp_rule_state_name(i) for i in 0:length(numbers)-1])
    return NamedTuple{Tuple(rule_text.(names))}(numbers[1:length(names)])
end

memory_report(r::CAPI.mp_memory_report) = merge(named(r), (state_bytes = by_state(r.state_bytes),))

"""
    plan_memory(recipe, count; rule = :adamw)
    plan_memory(recipe, counts; rule = :adamw, sharding = nothing, rank = 0, ranks = 1)

Bytes by class of tensor that the recipe needs, before anything is allocated (`state_bytes.exp_avg` and the like): for
`count` elements, or for tensors of so many elements each, and then also for one rank of many (`sharding` as for
`Optimizer`, a named tuple).
"""
function plan_memory(r::Recipe, count::Integer; rule::Symbol = :adamw)
    number = rule_number(rule)
    return locked(r) do
        memory_report(filled(box -> CAPI.mp_recipe_plan_memory(r, number, count, box), CAPI.mp_memory_report()))
    end
end
function plan_memory(r::Recipe, counts::AbstractVector{<:Integer}; rule::Symbol = :adamw, sharding = nothing, rank = 0,
                     ranks = 1)
    number, all = rule_number(rule), Vector{Int64}(counts)
    return locked(r) do
        memory_report(filled(CAPI.mp_memory_report()) do box
            sharding === nothing && ranks == 1 ?
            CAPI.mp_recipe_plan_memory_of_tensors(r, number, all, length(all), box) :
            CAPI.mp_recipe_plan_memory_sharded(r, number, all, length(all),
                                               sharding === nothing ? C_NULL : Ref(sharding_desc(; sharding...)), rank,
                                               ranks, box)
        end)
    end
end

"""
    plan_tensors(recipe, tensors; offload = false, grads_given = false, sharding = nothing, rank = 0, ranks = 1)

The same where tensors differ, and what a rank sends in a step, the mean over the ranks: `(memory = ..., traffic = ...)`.
A tensor is its number of elements, or a named tuple with that as `count` and what is not the default of

    weight_dtype = nothing, rule = :adamw, ndim = 0, state_formats = (exp_avg = "fp32",), name = ""

`weight_dtype`: `nothing`, the recipe's; `Float32`, kept in it; `Float8_E4M3` or `Float8_E5M2`, codes that ranks gather.
`ndim`: dimensions, as vectors are gathered as they are kept; 0: 1 for `Float32`, else 2. `name`: for the recipe's rules.
"""
function plan_tensors(r::Recipe, tensors; offload = false, grads_given = false, sharding = nothing, rank = 0, ranks = 1)
    planned(count::Integer) = planned((count = count,))
    planned(t::NamedTuple) = planned(; t...)
    names = String[] # as long as the call
    function planned(; count, weight_dtype = nothing, rule::Symbol = :adamw, ndim = 0, state_formats = NamedTuple(),
                     name = "")
        push!(names, c_text(name))
        return CAPI.mp_planned_tensor(weight_dtype = dtype_number(weight_dtype), count = count,
                                      rule = rule_number(rule), ndim = ndim, name = pointer(names[end]),
                                      state_formats = formats_in_order(rule_number(rule), state_formats))
    end
    all = CAPI.mp_planned_tensor[planned(t) for t in tensors]
    memory, traffic = Ref(CAPI.mp_memory_report()), Ref(CAPI.mp_comm_traffic())
    desc = sharding === nothing ? C_NULL : Ref(sharding_desc(; sharding...))
    optimizer = Ref(optimizer_desc(offload = offload, grads_given = grads_given))
    locked(r) do
        GC.@preserve names check(CAPI.mp_recipe_plan_tensors(r, optimizer, all, length(all), desc, rank, ranks, memory,
                                                             traffic))
    end
    return (memory = memory_report(memory[]), traffic = named(traffic[]))
end
