// SPDX-License-Identifier: Apache-2.0
//! Optimizers: groups, states, the guard, and what they refuse.
mod common;
use common::*;
use mixedprec::*;

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
fn first_values_by_rules_and_by_a_closure() {
    let context = context();
    let mut optimizer = optimizer(&context, "fp32", OptimizerOptions::default());
    let weight = Tensor::deferred(&context, DType::Fp32, &[10]).unwrap();
    let group = optimizer.add_group(&group(1e-3)).unwrap();
    let w = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
    assert_eq!(kind(optimizer.step(None)), ErrorKind::BadState); // it has no values
    optimizer.init_params(1, &[(w, FirstValues::Normal { mean: 0.0, deviation: 1.0 })]).unwrap();
    let values = weight.to_vec::<f32>().unwrap();
    assert_eq!((values[0], values[9]), (-0.103_567_07, -0.737_891_9));
    optimizer.fill_params(&[w], None, |_, first, values| values.fill(first as f32 + 3.0)).unwrap();
    assert_eq!(weight.to_vec::<f32>().unwrap(), [3.0; 10]);
    assert_eq!(kind(optimizer.load_params("/no/such/file", "", None)), ErrorKind::Io);
    let wrong = FirstValues::Uniform { low: 1.0, high: 0.0 };
    assert_eq!(kind(optimizer.init_params(1, &[(w, wrong)])), ErrorKind::InvalidArgument);
    optimizer.init_params(1, &[(w, FirstValues::Constant(2.0))]).unwrap();
    optimizer.step(None).unwrap();
}

#[test]
fn first_values_where_one_rank_has_no_files() {
    let folder = Folder::new();
    let path = folder.path().join("w.safetensors");
    let header = br#"{"w":{"dtype":"F32","shape":[10],"data_offsets":[0,40]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 40]].concat();
    std::fs::write(&path, file).unwrap();
    let kinds = on_ranks(Comm::threads(&CommOptions::default(), 2).unwrap(), |rank, comm| {
        let context = Context::builder().threads(1).open().unwrap();
        let recipe = Recipe::new(&context, "fp32").unwrap();
        let weight = Tensor::deferred(&context, DType::Fp32, &[10]).unwrap();
        let mut optimizer =
            Optimizer::sharded(&recipe, &OptimizerOptions::default(), &comm, &Sharding::stage(1)).unwrap();
        let group = optimizer.add_group(&GroupOptions::default()).unwrap();
        let w = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
        optimizer.shard().unwrap();
        let missing = std::path::PathBuf::from("/no/such/file");
        let failure = kind(optimizer.load_params(if rank == 0 { &missing } else { &path }, "", None));
        optimizer.init_params(1, &[(w, FirstValues::Constant(2.0))]).unwrap();
        assert_eq!(weight.to_vec::<f32>().unwrap(), [2.0; 10]);
        failure
    });
    assert_eq!(kinds, [ErrorKind::Io, ErrorKind::Peer]);
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

/// An optimizer of two groups with a parameter each; the second one is off.
struct Grouped {
    context: Context,
    optimizer: Optimizer<'static>,
    plain: i32,
    other: i32,
    values: Vec<f32>,
    weight: Tensor<'static>,
    second: Tensor<'static>,
    index: i32,
    off: i32,
}

fn with_format(state: &str, format: &str) -> GroupOptions {
    GroupOptions { state_formats: formats(state, format), ..group(1e-3) }
}

fn grouped() -> Grouped {
    let context = context();
    let mut optimizer = optimizer(&context, "bf16_mixed_dual", OptimizerOptions { seed: 7, ..Default::default() });
    let plain = optimizer.add_group(&group(1e-2)).unwrap();
    let other = optimizer.add_group(&with_format("exp_avg", "bf16")).unwrap();
    let recipe = Recipe::new(&context, "bf16_mixed_dual").unwrap();
    let values = wave(32, 0.5);
    let initial = Tensor::from_slice(&context, &values, &[32]).unwrap();
    let weight = recipe.weight(&[32], Some(&values)).unwrap();
    let index = optimizer.add_param(plain, &Param::new("w", &weight).initial(&initial)).unwrap();
    let second = recipe.weight(&[32], None).unwrap();
    let off = optimizer.add_param(other, &Param::new("off", &second)).unwrap();
    optimizer.set_enabled(Some(other), false).unwrap();
    for param in [index, off] {
        let grad = optimizer.state(param, "grad").unwrap();
        assert_eq!(grad.dtype(), DType::Fp32);
        grad.write(&[0.5f32; 32]).unwrap();
    }
    Grouped { context, optimizer, plain, other, values, weight, second, index, off }
}

#[test]
fn groups() {
    let Grouped { mut optimizer, plain, other, values, second, index, off, .. } = grouped();
    assert_eq!((plain, other, optimizer.group_count().unwrap()), (0, 1, 2));
    assert_ne!(kind(optimizer.add_group(&with_format("exp_avg_sq", "int3"))), ErrorKind::Internal);
    let error = optimizer.add_group(&with_format("momentum", "fp32")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownName);
    assert_eq!(error.message(), "AdamW keeps no state \"momentum\"; it keeps exp_avg, exp_avg_sq");
    assert_eq!((optimizer.param_count().unwrap(), optimizer.param_name(off).unwrap().as_str()), (2, "off"));
    assert_eq!(optimizer.param_group(off).unwrap(), other);
    assert_eq!(bits(&optimizer.state(index, "master").unwrap().to_vec().unwrap()), bits(&values));
    assert_eq!(optimizer.state(off, "exp_avg").unwrap().dtype(), DType::Bf16);
    assert!(optimizer.is_enabled(plain).unwrap() && !optimizer.is_enabled(other).unwrap());
    optimizer.step(None).unwrap();
    assert_eq!(second.to_vec::<Bf16>().unwrap(), [Bf16(0); 32]);
    assert_eq!((optimizer.group_step(plain).unwrap(), optimizer.group_step(other).unwrap()), (1, 0));
    optimizer.set_group_step(other, 5).unwrap();
    assert_eq!(optimizer.group_step(other).unwrap(), 5);
    optimizer.set_step(9).unwrap();
    assert_eq!((optimizer.group_step(plain).unwrap(), optimizer.stats().unwrap().step), (9, 9));
    optimizer.zero_grad().unwrap();
    assert_eq!(optimizer.state(index, "grad").unwrap().to_vec::<f32>().unwrap(), [0.0; 32]);
    optimizer.mark_unused(&[index]).unwrap();
    optimizer.step(None).unwrap();
    assert_eq!((optimizer.group_step(plain).unwrap(), optimizer.stats().unwrap().step), (9, 10));
}

#[test]
fn parameters_are_frozen_trained_again_and_added() {
    let context = context();
    let (mut optimizer, weights) = three(&context, OptimizerOptions::default());
    let before = weights[0].to_bytes().unwrap();
    optimizer.set_frozen(&[0, 2], true).unwrap();
    assert!(optimizer.is_frozen(0).unwrap() && !optimizer.is_frozen(1).unwrap());
    assert!(optimizer.state(0, "grad").is_err());
    let late: Vec<_> = (0..2).map(|i| Tensor::from_slice(&context, &wave(4, i as f32), &[4]).unwrap()).collect();
    let params: Vec<_> = late.iter().zip(["d", "e"]).map(|(weight, name)| Param::new(name, weight)).collect();
    assert_eq!(optimizer.add_params(0, &params).unwrap(), 3);
    assert_eq!(optimizer.param_count().unwrap(), 5);
    optimizer.step(None).unwrap();
    assert_eq!(weights[0].to_bytes().unwrap(), before);
    optimizer.set_frozen(&[0], false).unwrap();
    assert_eq!(optimizer.state(0, "grad").unwrap().to_vec::<f32>().unwrap(), [0.0; 8]);
    assert!(optimizer.set_frozen(&[9], false).is_err());
}

/// An optimizer of three parameters, and their weights.
fn three(context: &Context, options: OptimizerOptions) -> (Optimizer<'static>, Vec<Tensor<'static>>) {
    let mut optimizer = optimizer(context, "fp32", options);
    let group = optimizer.add_group(&group(1e-2)).unwrap();
    let weights: Vec<_> = (0..3).map(|i| Tensor::from_slice(context, &wave(8, i as f32), &[8]).unwrap()).collect();
    for (weight, name) in weights.iter().zip(["a", "b", "c"]) {
        optimizer.add_param(group, &Param::new(name, weight)).unwrap();
    }
    (optimizer, weights)
}

#[test]
fn a_step_in_parts_has_the_weights_of_a_whole_one() {
    let context = context();
    let (mut whole, expected) = three(&context, OptimizerOptions::default());
    let (mut parts, found) = three(&context, OptimizerOptions::default());
    let options = OptimizerOptions { grads_given: true, ..Default::default() };
    let (mut given, others) = three(&context, options);
    assert_eq!(given.options().unwrap(), options);
    let values = |weights: &[Tensor]| -> Vec<_> { weights.iter().map(|w| w.to_bytes().unwrap()).collect() };
    let before = values(&expected);
    for step in 0..2 {
        let grads: Vec<_> = (0..3).map(|i| wave(8, (3 * step + i) as f32 * 2.0)).collect();
        for (i, grad) in grads.iter().enumerate() {
            whole.state(i as i32, "grad").unwrap().write(grad).unwrap();
            parts.state(i as i32, "grad").unwrap().write(grad).unwrap();
        }
        whole.step(None).unwrap();
        parts.step_begin(None).unwrap();
        parts.step_params(&[2], None).unwrap();
        parts.step_params(&[1], None).unwrap();
        parts.step_end().unwrap();
        given.step_begin(None).unwrap();
        for i in (0..3).rev() {
            let grad = Tensor::from_slice(&context, &grads[i], &[8]).unwrap();
            given.step_params(&[i as i32], Some(&[&grad])).unwrap();
        }
        given.step_end().unwrap();
        assert_eq!(values(&found), values(&expected));
        assert_eq!(values(&others), values(&expected));
    }
    assert_ne!(values(&expected), before);
    assert_eq!(kind(parts.step_params(&[0], None)), ErrorKind::BadState);
    parts.step_begin(None).unwrap();
    let grad = Tensor::zeros(&context, DType::Fp32, &[8]).unwrap();
    assert_eq!(kind(parts.step_params(&[0, 1], Some(&[&grad]))), ErrorKind::InvalidArgument);
    assert_eq!(kind(parts.step_params(&[0], Some(&[]))), ErrorKind::InvalidArgument);
    parts.step_end().unwrap();
}

#[test]
fn schedules_by_number_and_by_tensor() {
    let Grouped { context, mut optimizer, plain, other, weight, .. } = grouped();
    optimizer.step(None).unwrap();
    optimizer.zero_grad().unwrap();
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
}

#[test]
fn states_in_and_out() {
    let Grouped { context, mut optimizer, weight, index, .. } = grouped();
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
    assert_eq!(optimizer.offload_traffic().unwrap().steps, 0);
}

#[test]
fn wrong_groups_and_states_are_errors() {
    let Grouped { context, mut optimizer, index, .. } = grouped();
    let tensor = Tensor::from_slice(&context, &wave(32, 2.0), &[32]).unwrap();
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
