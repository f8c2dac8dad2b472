// SPDX-License-Identifier: Apache-2.0
//! Optimizers, steps on slices, scalers, layers.
mod common;
use common::*;
use mixedprec::*;
use std::cell::RefCell;
use std::rc::Rc;

fn optimizer<'a>(context: &Context, recipe: &str, options: OptimizerOptions) -> Optimizer<'a> {
    Optimizer::new(&Recipe::new(context, recipe).unwrap(), &options).unwrap()
}

fn group(lr: f64) -> GroupOptions {
    Hyperparameters { lr, ..Default::default() }.into()
}

#[test]
fn ten_steps_have_the_known_value() {
    let context = context();
    let mut weights = [1.0f32];
    let mut gradient = [0.0f32];
    {
        let p = Tensor::wrap(&context, &mut weights, &[1]).unwrap();
        let g = Tensor::wrap(&context, &mut gradient, &[1]).unwrap();
        let mut optimizer = optimizer(&context, "fp32", OptimizerOptions::default());
        let values = Hyperparameters { weight_decay: 0.01, ..Default::default() };
        let group = optimizer.add_group(&values.into()).unwrap();
        optimizer.add_param(group, &Param::new("p", &p).grad(&g)).unwrap();
        for t in 1..=10 {
            g.write(&[(t as f64).sin() as f32]).unwrap();
            optimizer.step(None).unwrap();
        }
        assert_eq!(optimizer.stats().unwrap().step, 10);
    }
    assert!((f64::from(weights[0]) - 0.996_245_676_070_964).abs() < 1.5e-7, "{}", weights[0]);
}

#[test]
fn a_guard_and_a_history_watch_the_steps() {
    let (context, folder) = (context(), Folder::new());
    let path = folder.path().join("steps.json");
    let options = OptimizerOptions { check_finite: true, ..Default::default() };
    let mut optimizer = optimizer(&context, "fp32", options);
    let weight = Tensor::from_slice(&context, &[1.0f32; 4], &[4]).unwrap();
    let group = optimizer.add_group(&group(1e-3)).unwrap();
    let index = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
    assert_eq!(optimizer.guard().unwrap(), None);
    let guard = Guard { window: 2, max_loss_z: 3.0, ..Default::default() };
    optimizer.set_guard(Some(guard)).unwrap();
    assert_eq!(optimizer.guard().unwrap(), Some(guard));
    optimizer.set_history(8, Some(&path)).unwrap();
    for loss in [1.0, 1.1, 100.0, 1.0] {
        optimizer.set_loss(loss).unwrap();
        optimizer.step(None).unwrap();
    }
    let stats = optimizer.stats().unwrap();
    assert_eq!((stats.outlier_steps, stats.skipped_steps, stats.found_inf), (1, 1, false));
    let records = optimizer.records().unwrap();
    assert_eq!((records.len(), records[2].outcome, records[2].loss), (4, Outcome::Outlier, 100.0));
    assert!(records[2].loss_z > 3.0 && records[3].step == 3 && records[3].call == 4);
    assert_eq!(optimizer.bad_tensor().unwrap(), "");
    optimizer.state(index, "grad").unwrap().write(&[0.0f32, f32::INFINITY, 0.0, 0.0]).unwrap();
    assert_eq!(kind(optimizer.step(None)), ErrorKind::BadState); // without its loss
    optimizer.set_loss(1.0).unwrap();
    optimizer.step(None).unwrap();
    assert_eq!(optimizer.records().unwrap()[4].outcome, Outcome::NonFinite);
    assert_eq!(optimizer.bad_tensor().unwrap(), "the gradient of 'w'");
    assert!(std::fs::read_to_string(&path).unwrap().contains("the gradient of 'w'"));
    optimizer.set_guard(None).unwrap();
    assert_eq!(optimizer.guard().unwrap(), None);
    assert_eq!(kind(optimizer.set_guard(Some(Guard { window: 1, ..guard }))), ErrorKind::InvalidArgument);
    assert_eq!(kind(optimizer.set_guard(Some(Guard::default()))), ErrorKind::InvalidArgument);
    assert_eq!(kind(optimizer.set_history(-1, None)), ErrorKind::InvalidArgument);
    optimizer.set_history(0, None).unwrap();
    assert!(optimizer.records().unwrap().is_empty());
}

#[test]
fn slices_tensors_and_plans_give_the_same_bits() {
    let context = context();
    let count = 1000;
    let (p0, g) = (wave(count, 0.0), wave(count, 1.0));
    let args = |step| StepArgs {
        hyperparameters: Hyperparameters { weight_decay: 0.1, ..Default::default() },
        step,
        max_grad_norm: 1.0,
        ..Default::default()
    };
    let (mut p, mut m, mut v) = (p0.clone(), vec![0.0f32; count], vec![0.0f32; count]);
    for step in 1..=5 {
        let slot = Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v);
        let stats = step_slices(&context, &args(step), &mut [slot], None).unwrap();
        assert!(stats.grad_norm > 1.0 && stats.grad_mul < 1.0 && !stats.found_inf);
    }
    let (mut q, mut n, mut w) = (p0.clone(), vec![0.0f32; count], vec![0.0f32; count]);
    {
        let slot = Slot::new(&mut q, &g).exp_avg(&mut n).exp_avg_sq(&mut w);
        let mut plan = StepPlan::new(&context, &args(1), vec![slot]).unwrap();
        for _ in 0..5 {
            plan.run(None).unwrap();
        }
        assert_eq!(plan.stats().unwrap().step, 5);
        plan.set_args(&StepArgs { grad_scale: 2.0, ..args(1) }).unwrap();
        assert_eq!(kind(plan.set_args(&StepArgs { zero_grad: true, ..args(1) })), ErrorKind::InvalidArgument);
    }
    assert_eq!(bits(&p), bits(&q));
    let tensor = Tensor::from_slice(&context, &p0, &[count]).unwrap();
    let grad = Tensor::from_slice(&context, &g, &[count]).unwrap();
    let options = OptimizerOptions { max_grad_norm: 1.0, ..Default::default() };
    let mut optimizer = optimizer(&context, "fp32", options);
    let group = optimizer.add_group(&args(1).hyperparameters.into()).unwrap();
    let index = optimizer.add_param(group, &Param::new("p", &tensor).grad(&grad)).unwrap();
    for _ in 0..5 {
        optimizer.step(None).unwrap();
    }
    assert_eq!(bits(&p), bits(&tensor.to_vec().unwrap()));
    assert_eq!(bits(&v), bits(&optimizer.state(index, "exp_avg_sq").unwrap().to_vec().unwrap()));
    let norm = optimizer.grad_norm_tensor().unwrap().to_vec::<f32>().unwrap()[0];
    assert!((f64::from(norm) - optimizer.stats().unwrap().grad_norm).abs() < 1e-3);
    assert_eq!(optimizer.found_inf_tensor().unwrap().len(), 1);
}

#[test]
fn slots_of_narrow_types() {
    let context = context();
    let mut p = vec![Bf16(0x3f80); 256];
    let mut grad = vec![0.25f32; 256];
    let (mut m, mut v, mut c) = (vec![Bf16(0); 256], vec![0.0f32; 256], vec![Bf16(0); 256]);
    let args = StepArgs { zero_grad: true, ..Default::default() };
    let mut amax = 0.0;
    let slot = Slot::zeroed_grad(&mut p, &mut grad)
        .exp_avg(&mut m)
        .exp_avg_sq(&mut v)
        .compensation(&mut c)
        .uid(3)
        .first_element(8)
        .param_amax(&mut amax);
    step_slices(&context, &args, &mut [slot], None).unwrap();
    assert!(grad.iter().all(|&g| g == 0.0) && c.iter().any(|c| c.0 != 0) && amax > 0.9);
    let mut remainder = vec![0i16; 256];
    let slot = Slot::new(&mut p, &grad).exp_avg(&mut m).exp_avg_sq(&mut v).remainder(&mut remainder);
    step_slices(&context, &StepArgs::default(), &mut [slot], None).unwrap();
    let (mut master, mut half) = (vec![1.0f32; 256], vec![F16(0); 256]);
    let slot = Slot::new(&mut half, &grad).exp_avg(&mut m).exp_avg_sq(&mut v).master(&mut master);
    step_slices(&context, &StepArgs::default(), &mut [slot], None).unwrap();
    assert_eq!(half[0], F16(0x3bfe)); // 0.999
    let lion = StepArgs { hyperparameters: Hyperparameters::lion(), ..Default::default() };
    step_slices(&context, &lion, &mut [Slot::new(&mut master, &grad).exp_avg(&mut m)], None).unwrap();
}

#[test]
fn wrong_slots_are_errors() {
    let context = context();
    let (mut p, g) = (vec![1.0f32; 8], vec![1.0f32; 8]);
    let (mut m, mut v) = (vec![0.0f32; 8], vec![0.0f32; 7]);
    let args = StepArgs::default();
    let slot = Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v);
    let error = step_slices(&context, &args, &mut [slot], None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidShape);
    assert!(error.message().contains("exp_avg_sq"), "{error}");
    let slot = Slot::new(&mut p, &g).exp_avg(&mut m);
    assert_ne!(kind(step_slices(&context, &args, &mut [slot], None)), ErrorKind::Internal);
    let mut v = vec![0.0f32; 8];
    let slot = Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v);
    let zeroing = StepArgs { zero_grad: true, ..args };
    assert_eq!(kind(step_slices(&context, &zeroing, &mut [slot], None)), ErrorKind::InvalidArgument);
    let slot = Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v);
    let negative = StepArgs { hyperparameters: Hyperparameters { lr: -1.0, ..Default::default() }, ..args };
    assert_eq!(kind(step_slices(&context, &negative, &mut [slot], None)), ErrorKind::InvalidArgument);
    let slot = Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v);
    assert_eq!(
        kind(step_slices(&context, &StepArgs { step: 0, ..args }, &mut [slot], None)),
        ErrorKind::InvalidArgument
    );
    let lion = StepArgs { hyperparameters: Hyperparameters::lion(), stochastic_states: &["exp_avg_sq"], ..args };
    let slot = Slot::new(&mut p, &g).exp_avg(&mut m);
    assert_eq!(kind(step_slices(&context, &lion, &mut [slot], None)), ErrorKind::UnknownName);
    let mut integers = vec![0i32; 8];
    let slot = Slot::new(&mut integers, &g).exp_avg(&mut m).exp_avg_sq(&mut v);
    assert_eq!(kind(step_slices(&context, &args, &mut [slot], None)), ErrorKind::InvalidDType);
    let mut remainder = vec![0i16; 8];
    let slot = Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v).remainder(&mut remainder);
    assert_eq!(kind(step_slices(&context, &args, &mut [slot], None)), ErrorKind::InvalidShape);
    assert!(p.iter().all(|&p| p == 1.0), "failures change nothing");
}

#[test]
fn zeros_are_meant() {
    let context = context();
    let mut optimizer = optimizer(&context, "fp32", OptimizerOptions::default());
    let values = Hyperparameters { lr: 0.0, beta1: 0.0, eps: 0.0, ..Default::default() };
    let group = optimizer.add_group(&values.into()).unwrap();
    assert_eq!(optimizer.group(group).unwrap().hyperparameters, values);
    let lion = optimizer.add_group(&Hyperparameters::lion().into()).unwrap();
    assert_eq!(optimizer.group(lion).unwrap().hyperparameters, Hyperparameters::lion());
    let (mut p, g, mut m, mut v) = ([1.0f32; 8], [0.5f32; 8], [0.25f32; 8], [0.0f32; 8]);
    let args = StepArgs { hyperparameters: values, ..Default::default() };
    let slot = Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v);
    step_slices(&context, &args, &mut [slot], None).unwrap();
    assert_eq!((p, m), ([1.0; 8], g));
}

#[test]
fn groups_and_states() {
    let context = context();
    let mut optimizer = optimizer(&context, "bf16_mixed_dual", OptimizerOptions { seed: 7, ..Default::default() });
    let plain = optimizer.add_group(&group(1e-2)).unwrap();
    let with = |state, format| GroupOptions { state_formats: formats(state, format), ..group(1e-3) };
    let other = optimizer.add_group(&with("exp_avg", "bf16")).unwrap();
    assert_eq!((plain, other, optimizer.group_count().unwrap()), (0, 1, 2));
    assert_ne!(kind(optimizer.add_group(&with("exp_avg_sq", "int3"))), ErrorKind::Internal);
    let error = optimizer.add_group(&with("momentum", "fp32")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownName);
    assert_eq!(error.message(), "AdamW keeps no state \"momentum\"; it keeps exp_avg, exp_avg_sq");
    let recipe = Recipe::new(&context, "bf16_mixed_dual").unwrap();
    let values = wave(32, 0.5);
    let initial = Tensor::from_slice(&context, &values, &[32]).unwrap();
    let weight = recipe.weight(&[32], Some(&values)).unwrap();
    let index = optimizer.add_param(plain, &Param::new("w", &weight).initial(&initial)).unwrap();
    let second = recipe.weight(&[32], None).unwrap();
    let off = optimizer.add_param(other, &Param::new("off", &second)).unwrap();
    assert_eq!((optimizer.param_count().unwrap(), optimizer.param_name(off).unwrap().as_str()), (2, "off"));
    assert_eq!(optimizer.param_group(off).unwrap(), other);
    assert_eq!(bits(&optimizer.state(index, "master").unwrap().to_vec().unwrap()), bits(&values));
    assert_eq!(optimizer.state(off, "exp_avg").unwrap().dtype(), DType::Bf16);
    optimizer.set_enabled(Some(other), false).unwrap();
    assert!(optimizer.is_enabled(plain).unwrap() && !optimizer.is_enabled(other).unwrap());
    for param in [index, off] {
        let grad = optimizer.state(param, "grad").unwrap();
        assert_eq!(grad.dtype(), DType::Fp32);
        grad.write(&[0.5f32; 32]).unwrap();
    }
    optimizer.step(None).unwrap();
    assert_eq!(second.to_vec::<Bf16>().unwrap(), [Bf16(0); 32]);
    assert_eq!((optimizer.group_step(plain).unwrap(), optimizer.group_step(other).unwrap()), (1, 0));
    optimizer.set_group_step(other, 5).unwrap();
    assert_eq!(optimizer.group_step(other).unwrap(), 5);
    optimizer.set_step(9).unwrap();
    assert_eq!((optimizer.group_step(plain).unwrap(), optimizer.stats().unwrap().step), (9, 9));
    optimizer.zero_grad().unwrap();
    assert_eq!(optimizer.state(index, "grad").unwrap().to_vec::<f32>().unwrap(), [0.0; 32]);

    // Schedules, by number and by tensor.
    optimizer.set_lr(None, 0.5).unwrap();
    assert_eq!(optimizer.group(other).unwrap().hyperparameters.lr, 0.5);
    assert_eq!(optimizer.group(other).unwrap().state_formats["exp_avg"], "bf16");
    let lr = Tensor::from_slice(&context, &[0.0f32], &[1]).unwrap();
    optimizer.set_lr_tensor(Some(plain), Some(&lr)).unwrap();
    let scale = Tensor::from_slice(&context, &[4.0f32], &[1]).unwrap();
    optimizer.set_grad_scale_tensor(Some(&scale)).unwrap();
    let before = weight.to_bytes().unwrap();
    optimizer.step(None).unwrap();
    assert_eq!(weight.to_bytes().unwrap(), before);
    optimizer.set_lr_tensor(None, None).unwrap();
    optimizer.set_grad_scale_tensor(None).unwrap();
    optimizer.set_max_grad_norm(2.0).unwrap();
    optimizer.step(None).unwrap();
    assert_ne!(weight.to_bytes().unwrap(), before);

    // States, in and out.
    let tensor = Tensor::from_slice(&context, &wave(32, 2.0), &[32]).unwrap();
    optimizer.write_state(index, "fp32_param", &tensor).unwrap();
    let back = Tensor::zeros(&context, DType::Fp32, &[32]).unwrap();
    optimizer.read_state(index, "fp32_param", &back).unwrap();
    assert_eq!(back.to_vec::<f32>().unwrap(), wave(32, 2.0));
    weight.zero().unwrap();
    optimizer.sync_master(Some(index)).unwrap();
    assert_eq!(optimizer.state(index, "master").unwrap().to_vec::<f32>().unwrap(), [0.0; 32]);
    assert_eq!(optimizer.options().unwrap().seed, 7);
    let report = optimizer.memory().unwrap();
    assert_eq!((report.parameter_count, report.weight_bytes), (64, 128));

    assert_eq!(kind(optimizer.state(index, "momentum").map(drop)), ErrorKind::UnknownName);
    assert_eq!(kind(optimizer.state(77, "param").map(drop)), ErrorKind::InvalidArgument);
    assert_eq!(kind(optimizer.write_state(index, "exp_avg_sq", &tensor)), ErrorKind::InvalidArgument);
    assert_eq!(kind(optimizer.set_lr(Some(-1), 1.0)), ErrorKind::InvalidArgument);
    assert_eq!(kind(optimizer.set_lr(Some(9), 1.0)), ErrorKind::InvalidArgument);
    assert_eq!(kind(optimizer.sync_master(Some(-7))), ErrorKind::InvalidArgument);
    assert_eq!(kind(optimizer.add_param(9, &Param::new("x", &tensor))), ErrorKind::InvalidArgument);
    assert_eq!(kind(optimizer.add_param(0, &Param::new("w", &tensor))), ErrorKind::InvalidArgument);
    assert_eq!(kind(optimizer.shard()), ErrorKind::BadState);
}

#[test]
fn shared_memory_is_refused() {
    let context = context();
    let mut memory = wave(64, 0.0);
    let tensor = Tensor::wrap(&context, &mut memory, &[64]).unwrap();
    let mut optimizer = optimizer(&context, "fp32", OptimizerOptions::default());
    let group = optimizer.add_group(&group(1e-3)).unwrap();
    optimizer.add_param(group, &Param::new("embed", &tensor)).unwrap();
    // The tied weights of the reproduction, and a part of them by a view; a gradient over a parameter.
    assert_eq!(kind(optimizer.add_param(group, &Param::new("head", &tensor))), ErrorKind::InvalidArgument);
    let view = tensor.view(8, &[8]).unwrap();
    assert_eq!(kind(optimizer.add_param(group, &Param::new("part", &view))), ErrorKind::InvalidArgument);
    let other = Tensor::zeros(&context, DType::Fp32, &[8]).unwrap();
    let over = Param::new("other", &other).grad(&view);
    assert_eq!(kind(optimizer.add_param(group, &over)), ErrorKind::InvalidArgument);
    let foreign = Tensor::zeros(&common::context(), DType::Fp32, &[8]).unwrap();
    let _ = optimizer.add_param(group, &Param::new("foreign", &foreign)); // the host is the host: no crash
    optimizer.step(None).unwrap();
}

#[test]
fn one_step_has_one_outcome() {
    let context = context();
    let (count, g) = (32768, wave(32768, 0.3));
    let mut outcome = None;
    for _ in 0..50 {
        let (mut p, mut m, mut v) = (vec![1.0f32; count], vec![0.0f32; count], vec![0.0f32; count]);
        let slot = Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v);
        step_slices(&context, &StepArgs::default(), &mut [slot], None).unwrap();
        assert_eq!(outcome.get_or_insert_with(|| bits(&p)), &bits(&p));
    }
}

#[test]
fn scalers() {
    let context = context();
    for (name, first) in [("torch", 65536.0), ("megatron", 4294967296.0), ("deepspeed", 65536.0), ("apex", 65536.0)] {
        let options = ScalerOptions::preset(name).unwrap();
        let mut scaler = Scaler::new(&context, &options).unwrap();
        assert_eq!(scaler.scale().unwrap(), first);
        let forgiven = options.hysteresis - 1;
        for _ in 0..=forgiven {
            scaler.check(&[&[1.0f32][..], &[f32::NAN, 0.0]]).unwrap();
            assert!(scaler.state().unwrap().found_inf);
            scaler.update().unwrap();
        }
        let state = scaler.state().unwrap();
        assert_eq!(
            (state.scale, state.overflow_steps, state.found_inf),
            (first / 2.0, i64::from(forgiven) + 1, false)
        );
        scaler.set_state(&ScalerState { scale: 8.0, ..state }).unwrap();
        assert_eq!(scaler.scale_tensor().unwrap().to_vec::<f32>().unwrap(), [8.0]);
        assert_eq!(scaler.found_inf_tensor().unwrap().len(), 1);
        assert_eq!(kind(scaler.set_state(&ScalerState { scale: -1.0, ..state })), ErrorKind::InvalidArgument);
    }
    assert_eq!(kind(ScalerOptions::preset("jax")), ErrorKind::UnknownName);
    let wrong = ScalerOptions { growth_factor: 0.5, ..ScalerOptions::default() };
    assert_eq!(kind(Scaler::new(&context, &wrong).map(drop)), ErrorKind::InvalidArgument);
    let mut fixed = Scaler::new(
        &context,
        &ScalerOptions { kind: ScalerKind::Static, init_scale: 4.0, ..ScalerOptions::default() },
    )
    .unwrap();
    fixed.check(&[&[f32::INFINITY][..]]).unwrap();
    fixed.update().unwrap();
    assert_eq!(fixed.scale().unwrap(), 4.0);
    let strict = ScalerOptions { min_scale: 65536.0, error_at_min: true, ..ScalerOptions::default() };
    let mut strict = Scaler::new(&context, &strict).unwrap();
    strict.check(&[&[f32::NAN][..]]).unwrap();
    strict.update().unwrap();
    assert_eq!(kind(strict.state()), ErrorKind::BadState);
}

fn check_layer(recipe: &str, largest_error: f32) {
    let context = context();
    let recipe = Recipe::new(&context, recipe).unwrap();
    let (rows, inner, outer) = (32, 64, 96);
    let (x, w, dy) = (wave(rows * inner, 0.0), wave(outer * inner, 1.0), wave(rows * outer, 2.0));
    let weight = recipe.weight(&[outer, inner], Some(&w)).unwrap();
    let bias = Tensor::from_slice(&context, &vec![0.5f32; outer], &[outer]).unwrap();
    let mut linear =
        Linear::new(&recipe, &weight, Some(&bias), &LinearOptions { stats: true, ..Default::default() }).unwrap();
    let t_x = Tensor::from_slice(&context, &x, &[rows, inner]).unwrap();
    let t_dy = Tensor::from_slice(&context, &dy, &[rows, outer]).unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(&context, DType::Fp32, shape).unwrap();
    let (y, dx, dw, dbias) = (zeros(&[rows, outer]), zeros(&[rows, inner]), zeros(&[outer, inner]), zeros(&[outer]));
    assert_eq!(kind(linear.backward_weight(&t_dy, &dw, None, false)), ErrorKind::BadState);
    linear.forward(&t_x, &y).unwrap();
    let all = Gradients { dx: Some(&dx), dw: Some(&dw), dbias: Some(&dbias), accumulate: false };
    linear.backward(&t_dy, &all).unwrap();
    let (y_values, dx_values) = (y.to_vec::<f32>().unwrap(), dx.to_vec::<f32>().unwrap());
    let dw_values = dw.to_vec::<f32>().unwrap();
    let mut worst = 0.0f32;
    for r in 0..rows {
        for o in 0..outer {
            let sum: f32 = (0..inner).map(|i| x[r * inner + i] * w[o * inner + i]).sum();
            worst = worst.max((y_values[r * outer + o] - sum - 0.5).abs());
        }
        for i in 0..inner {
            let sum: f32 = (0..outer).map(|o| dy[r * outer + o] * w[o * inner + i]).sum();
            worst = worst.max((dx_values[r * inner + i] - sum).abs());
        }
    }
    for o in 0..outer {
        for i in 0..inner {
            let sum: f32 = (0..rows).map(|r| dy[r * outer + o] * x[r * inner + i]).sum();
            worst = worst.max((dw_values[o * inner + i] - sum).abs());
        }
    }
    assert!(worst < largest_error, "{worst}");

    // Each by itself has the same bits, and accumulates.
    let (dx2, dw2) = (zeros(&[rows, inner]), zeros(&[outer, inner]));
    linear.backward_data(&t_dy, &dx2).unwrap();
    linear.backward_weight(&t_dy, &dw2, Some(&dbias), false).unwrap();
    assert_eq!((dx2.to_bytes().unwrap(), dw2.to_bytes().unwrap()), (dx.to_bytes().unwrap(), dw.to_bytes().unwrap()));
    linear.backward_weight(&t_dy, &dw2, None, true).unwrap();
    let doubled = dw2.to_vec::<f32>().unwrap();
    assert!(doubled.iter().zip(&dw_values).all(|(a, b)| (a - 2.0 * b).abs() <= 1e-5 * b.abs() + 1e-6));
    // On slices too.
    let (mut y3, mut dx3) = (vec![0.0f32; rows * outer], vec![0.0f32; rows * inner]);
    let (mut dw3, mut dbias3) = (vec![0.0f32; outer * inner], vec![0.0f32; outer]);
    linear.forward_slices(&x, &mut y3).unwrap();
    linear.backward_slices(&dy, Some(&mut dx3), Some(&mut dw3), Some(&mut dbias3), false).unwrap();
    assert!(y3 == y_values && dx3 == dx_values && dw3 == dw_values && dbias3 == dbias.to_vec::<f32>().unwrap());
    dx3.fill(0.0);
    linear.backward_slices::<f32, f32>(&dy, Some(&mut dx3), None, None, false).unwrap();
    assert!(dx3 == dx_values);
    assert_eq!(kind(linear.forward_slices(&x[1..], &mut y3)), ErrorKind::InvalidShape);
    assert_eq!(kind(linear.forward_slices(&x, &mut y3[1..])), ErrorKind::InvalidShape);
    let short = linear.backward_slices::<f32, f32>(&dy, None, Some(&mut dw3[1..]), None, false);
    assert_eq!(kind(short), ErrorKind::InvalidShape);
    let nothing = linear.backward_slices::<f32, f32>(&dy, None, None, None, false);
    assert_ne!(kind(nothing), ErrorKind::Internal);

    assert!(!linear.describe().unwrap().is_empty());
    let stats = linear.stats(Operand::Input).unwrap();
    assert_eq!(stats.operand, Operand::Input);
    linear.advice(Operand::GradOutput).unwrap();
    let scaling = linear.scaling().unwrap();
    end_step(&context, &mut [&mut linear], None).unwrap();
    linear.set_scaling(&scaling).unwrap();
    linear.clear_stats().unwrap();
    assert_ne!(kind(linear.set_scaling(b"nonsense")), ErrorKind::Internal);

    // Two forwards wait side by side; one is computed again.
    let other_x = Tensor::from_slice(&context, &wave(rows * inner, 9.0), &[rows, inner]).unwrap();
    let (mut one, mut two) = (Saved::new(&linear).unwrap(), Saved::new(&linear).unwrap());
    linear.forward_saved(&t_x, Some(&y), Some(&mut one), Keep::ScalesOnly).unwrap();
    linear.forward_saved(&other_x, Some(&y), Some(&mut two), Keep::Input).unwrap();
    let only_dw = Gradients { dw: Some(&dw2), ..Default::default() };
    assert_eq!(kind(linear.backward_saved(Some(&one), &t_dy, &only_dw)), ErrorKind::BadState);
    linear.forward_saved(&t_x, None, Some(&mut one), Keep::Again).unwrap();
    linear.backward_saved(Some(&two), &t_dy, &only_dw).unwrap();
    linear.backward_saved(Some(&one), &t_dy, &only_dw).unwrap();
    assert!(linear.saved_bytes(rows).unwrap() > 0);
    let same = dw2.to_vec::<f32>().unwrap();
    assert!(same.iter().zip(&dw_values).all(|(a, b)| (a - b).abs() <= largest_error));

    assert_eq!(kind(linear.forward(&t_dy, &y)), ErrorKind::InvalidShape);
    let wide = Tensor::zeros(&context, DType::Int32, &[rows, inner]).unwrap();
    assert_eq!(kind(linear.forward(&wide, &y)), ErrorKind::InvalidDType);
    assert_ne!(kind(linear.forward(&t_x, &weight)), ErrorKind::Internal);
    assert_ne!(kind(Linear::new(&recipe, &bias, None, &LinearOptions::default()).map(drop)), ErrorKind::Internal);
}

#[test]
fn layers() {
    check_layer("fp32", 1e-4);
    check_layer("bf16_mixed", 0.2);
    check_layer("fp8_current", 1.5);
    check_layer("mxfp8", 1.5);
}

#[test]
fn kept_memory_moves() {
    let context = context();
    let recipe = Recipe::new(&context, "bf16_mixed").unwrap();
    let weight = recipe.weight(&[16, 32], Some(&wave(512, 0.0))).unwrap();
    let (mut one, mut two) = (vec![0u8; 8192], vec![0u8; 8192]);
    fn aligned(memory: &mut [u8]) -> &mut [u8] {
        let gap = memory.as_ptr().align_offset(256);
        &mut memory[gap..]
    }
    let mut linear = Linear::new(&recipe, &weight, None, &LinearOptions::default()).unwrap();
    let x = Tensor::from_slice(&context, &wave(256, 1.0), &[8, 32]).unwrap();
    let dy = Tensor::from_slice(&context, &wave(128, 2.0), &[8, 16]).unwrap();
    let (y, dw) = (
        Tensor::zeros(&context, DType::Fp32, &[8, 16]).unwrap(),
        Tensor::zeros(&context, DType::Fp32, &[16, 32]).unwrap(),
    );
    linear.forward(&x, &y).unwrap();
    linear.backward_weight(&dy, &dw, None, false).unwrap();
    let expected = dw.to_bytes().unwrap();
    let mut saved = Saved::new(&linear).unwrap();
    saved.set_memory(aligned(&mut one)).unwrap();
    linear.forward_saved(&x, Some(&y), Some(&mut saved), Keep::Input).unwrap();
    saved.set_memory(aligned(&mut two)).unwrap();
    dw.zero().unwrap();
    let gradients = Gradients { dw: Some(&dw), ..Default::default() };
    linear.backward_saved(Some(&saved), &dy, &gradients).unwrap();
    assert_eq!(dw.to_bytes().unwrap(), expected);
    saved.clear_memory().unwrap();
    assert_eq!(kind(linear.backward_saved(Some(&saved), &dy, &gradients)), ErrorKind::BadState);
}

#[test]
fn delayed_scales_codes_and_rounded_gradients() {
    let context = context();
    let recipe = Recipe::new(&context, "fp8_delayed").unwrap();
    let weight = recipe.weight(&[64, 32], Some(&wave(2048, 0.0))).unwrap();
    let mut linear = Linear::new(&recipe, &weight, None, &LinearOptions::default()).unwrap();
    assert_eq!(linear.multiply_tensor(Operand::Weight).unwrap().len(), 1);
    let (dtype, quantization) = linear.operand_format(Product::Fprop, Operand::Weight).unwrap();
    assert_eq!(dtype, DType::Fp8E4M3);
    let codes = Tensor::quantized(&context, dtype, &[64, 32], &quantization.unwrap()).unwrap();
    linear.quantize(Product::Fprop, Operand::Weight, &weight, &codes).unwrap();
    assert!(linear.weight_codes(Product::Fprop).unwrap().is_none());
    linear.set_weight_codes(Some(&codes), None).unwrap();
    assert_eq!(linear.weight_codes(Product::Fprop).unwrap().unwrap().dtype(), dtype);
    linear.set_weight_codes(None, None).unwrap();
    let random = Cast { stochastic: Some(Stochastic::default()), ..Cast::default() };
    linear.set_gradient_rounding(&random).unwrap();
    let saturating = Cast { overflow: Overflow::Saturate, ..Cast::default() };
    assert_eq!(kind(linear.set_gradient_rounding(&saturating)), ErrorKind::InvalidArgument);
    let frozen = LinearOptions { frozen: true, ..Default::default() };
    let frozen = Linear::new(&recipe, &weight, None, &frozen).unwrap();
    assert_eq!(kind(Saved::new(&frozen).map(drop)), ErrorKind::BadState);
    // A layer whose sizes keep it in high precision says so.
    take_notes();
    let mxfp8 = Recipe::new(&context, "mxfp8").unwrap();
    let odd = mxfp8.weight(&[48, 65], None).unwrap();
    Linear::new(&mxfp8, &odd, None, &LinearOptions::default()).unwrap();
    assert_eq!(take_notes().len(), 1);
}

#[test]
fn monitors_and_their_panics() {
    let context = context();
    let recipe = Recipe::new(&context, "fp8_delayed").unwrap();
    let weight = recipe.weight(&[64, 32], Some(&wave(2048, 0.0))).unwrap();
    let x = Tensor::from_slice(&context, &wave(512, 1.0), &[16, 32]).unwrap();
    let y = Tensor::zeros(&context, DType::Fp32, &[16, 64]).unwrap();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut linear = Linear::new(&recipe, &weight, None, &LinearOptions::default()).unwrap();
    let (copy, count) = (seen.clone(), Rc::new(()));
    let held = count.clone();
    let inner = context.clone();
    linear
        .set_monitor("first", 1, move |name, stats, _advice| {
            let _held = &held;
            assert_eq!(inner.sync().unwrap_err().kind(), ErrorKind::BadState);
            copy.borrow_mut().push((name.to_owned(), stats.operand, stats.elements));
        })
        .unwrap();
    let mut optimizer = Optimizer::new(&recipe, &OptimizerOptions::default()).unwrap();
    let group = optimizer.add_group(&GroupOptions::default()).unwrap();
    optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
    optimizer.set_linears(&[&linear]).unwrap();
    linear.forward(&x, &y).unwrap();
    optimizer.step(None).unwrap();
    assert_eq!(seen.borrow().len(), 3);
    assert_eq!(seen.borrow()[0], ("first".to_owned(), Operand::Input, 512));
    assert_eq!(kind(end_step(&context, &mut [&mut linear], None)), ErrorKind::BadState);
    assert_eq!(kind(linear.set_monitor("none", 0, |_, _, _| {})), ErrorKind::InvalidArgument);
    linear.set_monitor("second", 1, |_, _, _| panic!("from a monitor")).unwrap();
    assert_eq!(Rc::strong_count(&count), 1, "the first closure is gone");
    linear.forward(&x, &y).unwrap();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| optimizer.step(None)));
    std::panic::set_hook(hook);
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"from a monitor"));
    assert_eq!(optimizer.stats().unwrap().step, 2, "the step itself was taken");
    linear.forward(&x, &y).unwrap();
    drop(linear); // the optimizer keeps the layer, but its monitor is over
    optimizer.step(None).unwrap();
    assert_eq!(seen.borrow().len(), 3);
}

#[test]
fn every_order_of_dropping() {
    let context = context();
    let recipe = Recipe::new(&context, "bf16_mixed").unwrap();
    let weight = recipe.weight(&[8, 8], Some(&wave(64, 0.0))).unwrap();
    let linear = Linear::new(&recipe, &weight, None, &LinearOptions::default()).unwrap();
    let saved = Saved::new(&linear).unwrap();
    let mut optimizer = Optimizer::new(&recipe, &OptimizerOptions::default()).unwrap();
    let mut scaler = Scaler::from_recipe(&recipe).unwrap();
    drop(recipe);
    drop(context);
    let group = optimizer.add_group(&GroupOptions::default()).unwrap();
    let index = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
    optimizer.set_linears(&[&linear]).unwrap();
    let grad = optimizer.state(index, "grad").unwrap();
    drop((weight, linear));
    optimizer.step(Some(&mut scaler)).unwrap();
    let norm = optimizer.grad_norm_tensor().unwrap();
    drop(optimizer);
    drop(scaler);
    grad.zero().unwrap();
    assert_eq!(norm.to_vec::<f32>().unwrap().len(), 1);
    drop(saved);
}

#[test]
fn what_a_layer_writes_overlaps_nothing() {
    let context = context();
    let recipe = Recipe::new(&context, "fp32").unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(&context, DType::Fp32, shape).unwrap();
    // Rows, inputs and outputs are as many, so that every shape is right everywhere.
    let (weight, bias, x, y, dy) =
        (zeros(&[16, 16]), zeros(&[16]), zeros(&[16, 16]), zeros(&[16, 16]), zeros(&[16, 16]));
    let mut linear = Linear::new(&recipe, &weight, Some(&bias), &LinearOptions::default()).unwrap();
    assert_eq!(kind(linear.forward(&x, &x)), ErrorKind::InvalidArgument);
    assert_eq!(kind(linear.forward(&x, &weight)), ErrorKind::InvalidArgument);
    linear.forward(&x, &y).unwrap();
    let part = y.view(0, &[16]).unwrap();
    for gradients in [
        Gradients { dx: Some(&y), dw: Some(&y), ..Default::default() },
        Gradients { dx: Some(&dy), dw: Some(&y), ..Default::default() },
        Gradients { dx: Some(&weight), dw: Some(&y), ..Default::default() },
        Gradients { dw: Some(&dy), ..Default::default() },
        Gradients { dw: Some(&y), dbias: Some(&part), ..Default::default() },
        Gradients { dw: Some(&x), ..Default::default() },
    ] {
        assert_eq!(kind(linear.backward(&dy, &gradients)), ErrorKind::InvalidArgument);
    }
    assert_eq!(kind(linear.backward_weight(&dy, &x, None, false)), ErrorKind::InvalidArgument);
    let mut saved = Saved::new(&linear).unwrap();
    linear.forward_saved(&x, Some(&y), Some(&mut saved), Keep::Input).unwrap();
    let over = Gradients { dw: Some(&x), ..Default::default() };
    assert_eq!(kind(linear.backward_saved(Some(&saved), &dy, &over)), ErrorKind::InvalidArgument);
}
