// SPDX-License-Identifier: Apache-2.0
//! Layers: what they compute, keep, count, report and refuse.
mod common;
use common::*;
use mixedprec::*;
use std::cell::RefCell;
use std::rc::Rc;

/// A layer with all that its calls need.
struct Layer {
    context: Context,
    recipe: Recipe,
    largest_error: f32,
    x: Vec<f32>,
    w: Vec<f32>,
    dy: Vec<f32>,
    weight: Tensor<'static>,
    bias: Tensor<'static>,
    linear: Linear<'static>,
    t_x: Tensor<'static>,
    t_dy: Tensor<'static>,
    y: Tensor<'static>,
    dx: Tensor<'static>,
    dw: Tensor<'static>,
    dbias: Tensor<'static>,
}

const ROWS: usize = 32;
const INNER: usize = 64;
const OUTER: usize = 96;

fn zeros(context: &Context, shape: &[usize]) -> Tensor<'static> {
    Tensor::zeros(context, DType::Fp32, shape).unwrap()
}

impl Layer {
    fn new(recipe: &str, largest_error: f32) -> Layer {
        let context = context();
        let recipe = Recipe::new(&context, recipe).unwrap();
        let (x, w, dy) = (wave(ROWS * INNER, 0.0), wave(OUTER * INNER, 1.0), wave(ROWS * OUTER, 2.0));
        let weight = recipe.weight(&[OUTER, INNER], Some(&w)).unwrap();
        let bias = Tensor::from_slice(&context, &vec![0.5f32; OUTER], &[OUTER]).unwrap();
        let options = LinearOptions { stats: true, ..Default::default() };
        let linear = Linear::new(&recipe, &weight, Some(&bias), &options).unwrap();
        Layer {
            largest_error,
            weight,
            bias,
            linear,
            t_x: Tensor::from_slice(&context, &x, &[ROWS, INNER]).unwrap(),
            t_dy: Tensor::from_slice(&context, &dy, &[ROWS, OUTER]).unwrap(),
            y: zeros(&context, &[ROWS, OUTER]),
            dx: zeros(&context, &[ROWS, INNER]),
            dw: zeros(&context, &[OUTER, INNER]),
            dbias: zeros(&context, &[OUTER]),
            context,
            recipe,
            x,
            w,
            dy,
        }
    }

    fn products_are_those_of_matrices(&mut self) {
        let Layer { x, w, dy, linear, t_x, t_dy, y, dx, dw, dbias, .. } = self;
        assert_eq!(kind(linear.backward_weight(t_dy, dw, None, false)), ErrorKind::BadState);
        linear.forward(t_x, y).unwrap();
        let all = Gradients { dx: Some(dx), dw: Some(dw), dbias: Some(dbias), accumulate: false };
        linear.backward(t_dy, &all).unwrap();
        let (y_values, dx_values) = (y.to_vec::<f32>().unwrap(), dx.to_vec::<f32>().unwrap());
        let dw_values = dw.to_vec::<f32>().unwrap();
        let mut worst = 0.0f32;
        for r in 0..ROWS {
            for o in 0..OUTER {
                let sum: f32 = (0..INNER).map(|i| x[r * INNER + i] * w[o * INNER + i]).sum();
                worst = worst.max((y_values[r * OUTER + o] - sum - 0.5).abs());
            }
            for i in 0..INNER {
                let sum: f32 = (0..OUTER).map(|o| dy[r * OUTER + o] * w[o * INNER + i]).sum();
                worst = worst.max((dx_values[r * INNER + i] - sum).abs());
            }
        }
        for o in 0..OUTER {
            for i in 0..INNER {
                let sum: f32 = (0..ROWS).map(|r| dy[r * OUTER + o] * x[r * INNER + i]).sum();
                worst = worst.max((dw_values[o * INNER + i] - sum).abs());
            }
        }
        assert!(worst < self.largest_error, "{worst}");
    }

    /// With the same bits, and they accumulate.
    fn products_by_themselves(&mut self) {
        let Layer { context, linear, t_dy, dx, dw, dbias, .. } = self;
        let dw_values = dw.to_vec::<f32>().unwrap();
        let (dx2, dw2) = (zeros(context, &[ROWS, INNER]), zeros(context, &[OUTER, INNER]));
        linear.backward_data(t_dy, &dx2).unwrap();
        linear.backward_weight(t_dy, &dw2, Some(dbias), false).unwrap();
        assert_eq!(
            (dx2.to_bytes().unwrap(), dw2.to_bytes().unwrap()),
            (dx.to_bytes().unwrap(), dw.to_bytes().unwrap())
        );
        linear.backward_weight(t_dy, &dw2, None, true).unwrap();
        let doubled = dw2.to_vec::<f32>().unwrap();
        assert!(doubled.iter().zip(&dw_values).all(|(a, b)| (a - 2.0 * b).abs() <= 1e-5 * b.abs() + 1e-6));
    }

    fn products_of_slices(&mut self) {
        let Layer { x, dy, linear, y, dx, dw, dbias, .. } = self;
        let (y_values, dx_values) = (y.to_vec::<f32>().unwrap(), dx.to_vec::<f32>().unwrap());
        let dw_values = dw.to_vec::<f32>().unwrap();
        let (mut y3, mut dx3) = (vec![0.0f32; ROWS * OUTER], vec![0.0f32; ROWS * INNER]);
        let (mut dw3, mut dbias3) = (vec![0.0f32; OUTER * INNER], vec![0.0f32; OUTER]);
        linear.forward_slices(x, &mut y3).unwrap();
        linear.backward_slices(dy, Some(&mut dx3), Some(&mut dw3), Some(&mut dbias3), false).unwrap();
        assert!(y3 == y_values && dx3 == dx_values && dw3 == dw_values && dbias3 == dbias.to_vec::<f32>().unwrap());
        dx3.fill(0.0);
        linear.backward_slices::<f32, f32>(dy, Some(&mut dx3), None, None, false).unwrap();
        assert!(dx3 == dx_values);
        assert_eq!(kind(linear.forward_slices(&x[1..], &mut y3)), ErrorKind::InvalidShape);
        assert_eq!(kind(linear.forward_slices(x, &mut y3[1..])), ErrorKind::InvalidShape);
        let short = linear.backward_slices::<f32, f32>(dy, None, Some(&mut dw3[1..]), None, false);
        assert_eq!(kind(short), ErrorKind::InvalidShape);
        let nothing = linear.backward_slices::<f32, f32>(dy, None, None, None, false);
        assert_ne!(kind(nothing), ErrorKind::Internal);
    }

    fn statistics_and_scaling(&mut self) {
        let Layer { context, linear, .. } = self;
        assert!(!linear.describe().unwrap().is_empty());
        let stats = linear.stats(Operand::Input).unwrap();
        assert_eq!(stats.operand, Operand::Input);
        linear.advice(Operand::GradOutput).unwrap();
        let scaling = linear.scaling().unwrap();
        end_step(context, &mut [linear], None).unwrap();
        linear.set_scaling(&scaling).unwrap();
        linear.clear_stats().unwrap();
        assert_ne!(kind(linear.set_scaling(b"nonsense")), ErrorKind::Internal);
    }

    /// Two forwards wait side by side; one is computed again.
    fn saved_forwards(&mut self) {
        let Layer { context, linear, t_x, t_dy, y, dw, largest_error, .. } = self;
        let (dw_values, dw2) = (dw.to_vec::<f32>().unwrap(), zeros(context, &[OUTER, INNER]));
        let other_x = Tensor::from_slice(context, &wave(ROWS * INNER, 9.0), &[ROWS, INNER]).unwrap();
        let (mut one, mut two) = (Saved::new(linear).unwrap(), Saved::new(linear).unwrap());
        linear.forward_saved(t_x, Some(y), Some(&mut one), Keep::ScalesOnly).unwrap();
        linear.forward_saved(&other_x, Some(y), Some(&mut two), Keep::Input).unwrap();
        let only_dw = Gradients { dw: Some(&dw2), ..Default::default() };
        assert_eq!(kind(linear.backward_saved(Some(&one), t_dy, &only_dw)), ErrorKind::BadState);
        linear.forward_saved(t_x, None, Some(&mut one), Keep::Again).unwrap();
        linear.backward_saved(Some(&two), t_dy, &only_dw).unwrap();
        linear.backward_saved(Some(&one), t_dy, &only_dw).unwrap();
        assert!(linear.saved_bytes(ROWS).unwrap() > 0);
        let same = dw2.to_vec::<f32>().unwrap();
        assert!(same.iter().zip(&dw_values).all(|(a, b)| (a - b).abs() <= *largest_error));
    }

    fn mistakes(&mut self) {
        let Layer { context, recipe, linear, weight, bias, t_x, t_dy, y, .. } = self;
        assert_eq!(kind(linear.forward(t_dy, y)), ErrorKind::InvalidShape);
        let wide = Tensor::zeros(context, DType::Int32, &[ROWS, INNER]).unwrap();
        assert_eq!(kind(linear.forward(&wide, y)), ErrorKind::InvalidDType);
        assert_ne!(kind(linear.forward(t_x, weight)), ErrorKind::Internal);
        assert_ne!(kind(Linear::new(recipe, bias, None, &LinearOptions::default()).map(drop)), ErrorKind::Internal);
    }
}

fn check_layer(recipe: &str, largest_error: f32) {
    let mut layer = Layer::new(recipe, largest_error);
    layer.products_are_those_of_matrices();
    layer.products_by_themselves();
    layer.products_of_slices();
    layer.statistics_and_scaling();
    layer.saved_forwards();
    layer.mistakes();
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
