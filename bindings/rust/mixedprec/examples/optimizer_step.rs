// SPDX-License-Identifier: Apache-2.0
//! bindings/c/optimizer_step.c in Rust: must print the same lines.
use mixedprec::{
    step_pointers, Bf16, Context, Error, Group, Hyperparameters, Optimizer, Recipe, Rule, Slot, Tensor,
};
use std::cell::Cell;

const STEPS: i64 = 10;
const COUNT: usize = 37;
const KAHAN_COUNT: usize = 300;
const COLUMNS: usize = 15;
const VALUES: Hyperparameters = Hyperparameters {
    lr: 1e-3,
    beta1: 0.9,
    beta2: 0.999,
    eps: 1e-8,
    weight_decay: 0.01,
    rule: Rule::AdamW,
};

fn make_optimizer<'a>(
    context: &Context,
    recipe_name: &str,
) -> Result<(Optimizer<'a>, Group), Error> {
    let recipe = Recipe::preset(context, recipe_name)?;
    let mut optimizer = Optimizer::new(context, &recipe)?;
    let group = optimizer.add_group(&VALUES)?;
    if let Some(note) = &group.note {
        println!("note {}: {}", recipe_name, note);
    }
    Ok((optimizer, group))
}

/// All elements of the fp32 runs are the same; one that is not shows as a missing line.
fn print_step(run: &str, step: i64, arrays: [&[f32]; 4]) {
    if arrays
        .iter()
        .all(|array| array.iter().all(|x| x.to_bits() == array[0].to_bits()))
    {
        let [g, p, m, v] = arrays.map(|array| array[0].to_bits());
        println!("{run} step {step} grad {g:08x} param {p:08x} exp_avg {m:08x} exp_avg_sq {v:08x}");
    }
}

fn run_tensors(context: &Context) -> Result<(), Error> {
    let (mut p, mut g) = ([1.0f32; COUNT], [0.0f32; COUNT]);
    let (mut now, mut m, mut v) = ([0.0f32; COUNT], [0.0f32; COUNT], [0.0f32; COUNT]);
    let p = Cell::from_mut(&mut p[..]).as_slice_of_cells();
    let g = Cell::from_mut(&mut g[..]).as_slice_of_cells();
    let (mut optimizer, group) = make_optimizer(context, "fp32")?;
    let param = Tensor::wrap(context, p)?;
    let grad = Tensor::wrap(context, g)?;
    optimizer.add_param(&group, "p", &param, &grad, None)?;
    for t in 1..=STEPS {
        let value = (t as f64).sin() as f32;
        g.iter().for_each(|x| x.set(value));
        optimizer.step()?;
        optimizer.state(0, "exp_avg")?.read(&mut m)?;
        optimizer.state(0, "exp_avg_sq")?.read(&mut v)?;
        now.iter_mut().zip(p).for_each(|(x, cell)| *x = cell.get());
        print_step("tensors", t, [&[value; COUNT], &now, &m, &v]);
    }
    let stats = optimizer.stats()?;
    println!("stats step {} skipped {}", stats.step, stats.skipped_steps);
    Ok(())
}

fn run_pointers(context: &Context) -> Result<(), Error> {
    let (mut p, mut m, mut v) = ([1.0f32; COUNT], [0.0f32; COUNT], [0.0f32; COUNT]);
    for t in 1..=STEPS {
        let g = [(t as f64).sin() as f32; COUNT];
        step_pointers(
            context,
            &VALUES,
            t,
            &mut [Slot::new(&mut p, &g, &mut m, &mut v)?],
        )?;
        print_step("pointers", t, [&g, &p, &m, &v]);
    }
    Ok(())
}

fn next_random(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1664525).wrapping_add(1013904223);
    *state
}

/// 24 bits, so exact in fp32, in [-1, 1).
fn next_fp32(state: &mut u32) -> f32 {
    ((next_random(state) >> 8) as i32 - 8388608) as f32 / 8388608.0
}

/// 8 bits, so exact in bf16, whose code is then the upper half of fp32's; in [-0.125, 0.125).
fn next_bf16(state: &mut u32) -> Bf16 {
    let value = ((next_random(state) >> 24) as i32 - 128) as f32 / 1024.0;
    Bf16((value.to_bits() >> 16) as u16)
}

fn run_kahan(context: &Context) -> Result<(), Error> {
    let mut state = 1;
    let (mut p, mut g) = ([Bf16(0); KAHAN_COUNT], [Bf16(0); KAHAN_COUNT]);
    let p = Cell::from_mut(&mut p[..]).as_slice_of_cells();
    let g = Cell::from_mut(&mut g[..]).as_slice_of_cells();
    let start: Vec<_> = (0..KAHAN_COUNT)
        .map(|_| Cell::new(next_fp32(&mut state)))
        .collect();
    let (mut optimizer, group) = make_optimizer(context, "bf16_pure_kahan")?;
    let init = Tensor::wrap(context, &start)?;
    let index = optimizer.add_param(
        &group,
        "p",
        &Tensor::wrap(context, p)?,
        &Tensor::wrap(context, g)?,
        Some(&init),
    )?;
    for _ in 1..=STEPS {
        g.iter().for_each(|x| x.set(next_bf16(&mut state)));
        optimizer.step()?;
    }
    for name in ["param", "compensation", "exp_avg", "exp_avg_sq"] {
        let mut bits = [Bf16(0); KAHAN_COUNT];
        optimizer.state(index, name)?.read(&mut bits)?;
        for (row, values) in bits.chunks(COLUMNS).enumerate() {
            let text: Vec<_> = values.iter().map(|x| format!("{:04x}", x.0)).collect();
            println!("kahan {} {} {}", name, row * COLUMNS, text.join(" "));
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let (major, minor, patch) = mixedprec::library_version();
    println!("library {major}.{minor}.{patch}");
    for (name, size, offsets) in mixedprec::sys::layouts() {
        let text: Vec<_> = offsets.iter().map(usize::to_string).collect();
        println!("layout {} {}: {}", name, size, text.join(" "));
    }
    let context = Context::host(2)?;
    if let Err(error) = Recipe::preset(&context, "bf16_pure_kahn") {
        println!("error {} {}", error.status, error);
    }
    run_tensors(&context)?;
    run_pointers(&context)?;
    run_kahan(&context)
}
