// SPDX-License-Identifier: Apache-2.0
//! Steps on slices, plans, loss scalers.
mod common;
use common::*;
use mixedprec::*;

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
