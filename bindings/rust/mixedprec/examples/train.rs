// SPDX-License-Identifier: Apache-2.0
//! A small language model on bytes, the same in every language: same text, same seed, same losses to the last digit.
//!
//! `train TEXT [RECIPE [STEPS [FOLDER]]]`: recipe bf16_mixed, 60 steps; FOLDER: resume from there, save there.
//!
//! Model: the last 8 bytes, each by an embedding of 16 -> linear 128 -> 128, bias, relu -> linear 128 -> 256, bias ->
//! softmax. The two products are the library's, in the recipe's types; what is between them is here, in fp32, the
//! loss in double. Random numbers: s = 48271 s mod (2^31 - 1).
use mixedprec::{
    checkpoint, Checkpoint, CheckpointOptions, Context, DType, Gradients, GroupOptions, Hyperparameters, Linear,
    LinearOptions, Load, Optimizer, OptimizerOptions, Param, Recipe, Scaler, Tensor,
};
use std::cell::Cell;
use std::error::Error;

const CONTEXT: usize = 8;
const EMBED: usize = 16;
const HIDDEN: usize = 128;
const BYTES: usize = 256;
const BATCH: usize = 32;
const IN: usize = CONTEXT * EMBED;

fn next_random(state: &Cell<i64>) -> i64 {
    state.set(state.get() * 48271 % 2147483647);
    state.get()
}

fn random_values(state: &Cell<i64>, count: usize, bound: f64) -> Vec<f32> {
    let unit = |number| 2.0 * (number as f64 / 2147483647.0) - 1.0;
    (0..count).map(|_| (unit(next_random(state)) * bound) as f32).collect()
}

/// Loss of one row; `gradient` becomes its gradient times `factor`.
fn cross_entropy(row: &[f32], target: usize, factor: f64, gradient: &mut [f32]) -> f64 {
    let largest = f64::from(row.iter().copied().fold(row[0], |a, b| if b > a { b } else { a }));
    let e: Vec<f64> = row.iter().map(|&x| (f64::from(x) - largest).exp()).collect();
    let sum: f64 = e.iter().sum();
    for (j, gradient) in gradient.iter_mut().enumerate() {
        *gradient = ((e[j] / sum - if j == target { 1.0 } else { 0.0 }) * factor) as f32;
    }
    sum.ln() - (f64::from(row[target]) - largest)
}

type Try<T> = Result<T, Box<dyn Error>>;

/// The model and what trains it. `'a` is the life of the numbers that a checkpoint keeps beside them.
struct Model<'a> {
    context: Context,
    scaler: Scaler,
    optimizer: Optimizer<'a>,
    linear1: Linear<'a>,
    linear2: Linear<'a>,
    embed: Tensor<'a>,
    embed_grad: Tensor<'a>,
    dw1: Tensor<'a>,
    db1: Tensor<'a>,
    dw2: Tensor<'a>,
    db2: Tensor<'a>,
    // The layers work on tensors, the rest of the model on copies of them.
    x: Tensor<'a>,
    dx: Tensor<'a>,
    h: Tensor<'a>,
    dh: Tensor<'a>,
    logits: Tensor<'a>,
    dlogits: Tensor<'a>,
}

impl<'a> Model<'a> {
    fn new(recipe: &str, random: &Cell<i64>) -> Try<Model<'a>> {
        let context = Context::new()?;
        let recipe = Recipe::new(&context, recipe)?;
        let scaler = Scaler::from_recipe(&recipe)?;
        let mut optimizer = Optimizer::new(&recipe, &OptimizerOptions::default())?;
        let hyperparameters = Hyperparameters { lr: 1e-2, weight_decay: 0.01, ..Default::default() };
        let group = optimizer.add_group(&GroupOptions::from(hyperparameters))?;

        // Weights in the recipe's types; their fp32 values go to the optimizer too, so that rounding loses nothing.
        let values = random_values(random, BYTES * EMBED, 1.0);
        let values1 = random_values(random, HIDDEN * IN, (1.0 / IN as f64).sqrt());
        let values2 = random_values(random, BYTES * HIDDEN, (1.0 / HIDDEN as f64).sqrt());
        let w1 = recipe.weight(&[HIDDEN, IN], Some(&values1))?;
        let w2 = recipe.weight(&[BYTES, HIDDEN], Some(&values2))?;
        let v1 = Tensor::from_slice(&context, &values1, &[HIDDEN, IN])?;
        let v2 = Tensor::from_slice(&context, &values2, &[BYTES, HIDDEN])?;

        let zeros = |shape: &[usize]| Tensor::zeros(&context, DType::Fp32, shape);
        let embed = Tensor::from_slice(&context, &values, &[BYTES, EMBED])?;
        let (embed_grad, b1, db1) = (zeros(&[BYTES, EMBED])?, zeros(&[HIDDEN])?, zeros(&[HIDDEN])?);
        let (b2, db2) = (zeros(&[BYTES])?, zeros(&[BYTES])?);
        optimizer.add_param(group, &Param::new("embed", &embed).grad(&embed_grad))?;
        let index1 = optimizer.add_param(group, &Param::new("w1", &w1).initial(&v1))?;
        optimizer.add_param(group, &Param::new("b1", &b1).grad(&db1))?;
        let index2 = optimizer.add_param(group, &Param::new("w2", &w2).initial(&v2))?;
        optimizer.add_param(group, &Param::new("b2", &b2).grad(&db2))?;
        let (dw1, dw2) = (optimizer.state(index1, "grad")?, optimizer.state(index2, "grad")?);

        let linear1 = Linear::new(&recipe, &w1, Some(&b1), &LinearOptions::default())?;
        let linear2 = Linear::new(&recipe, &w2, Some(&b2), &LinearOptions::default())?;
        optimizer.set_linears(&[&linear1, &linear2])?;
        let (x, dx) = (zeros(&[BATCH, IN])?, zeros(&[BATCH, IN])?);
        let (h, dh) = (zeros(&[BATCH, HIDDEN])?, zeros(&[BATCH, HIDDEN])?);
        let (logits, dlogits) = (zeros(&[BATCH, BYTES])?, zeros(&[BATCH, BYTES])?);
        #[rustfmt::skip]
        let model = Model {
            context, scaler, optimizer, linear1, linear2, embed, embed_grad, dw1, db1, dw2, db2,
            x, dx, h, dh, logits, dlogits,
        };
        Ok(model)
    }

    fn checkpoint(&self, random: &'a Cell<i64>) -> Try<Checkpoint<'a>> {
        let mut checkpoint = Checkpoint::new(&self.context, None, CheckpointOptions::default())?;
        checkpoint.add_optimizer(&self.optimizer)?;
        checkpoint.add_scaler(&self.scaler)?;
        checkpoint.add_linear("linear1", &self.linear1)?;
        checkpoint.add_linear("linear2", &self.linear2)?;
        checkpoint.add_data("random", std::slice::from_ref(random))?;
        Ok(checkpoint)
    }

    /// Loss of these places of the text, summed, and the gradient of the last products.
    fn forward(&mut self, text: &[u8], position: &[usize], scale: f64) -> Try<f64> {
        let rows = self.embed.to_vec::<f32>()?;
        let mut x = vec![0.0f32; BATCH * IN];
        for (&position, x) in position.iter().zip(x.chunks_exact_mut(IN)) {
            for (&byte, x) in text[position..].iter().zip(x.chunks_exact_mut(EMBED)) {
                x.copy_from_slice(&rows[byte as usize * EMBED..][..EMBED]);
            }
        }
        self.x.write(&x)?;
        self.linear1.forward(&self.x, &self.h)?;
        let mut h = self.h.to_vec::<f32>()?;
        for h in &mut h {
            *h = if *h > 0.0 { *h } else { 0.0 };
        }
        self.h.write(&h)?;
        self.linear2.forward(&self.h, &self.logits)?;
        let logits = self.logits.to_vec::<f32>()?;
        let (mut loss, mut dlogits) = (0.0, vec![0.0f32; BATCH * BYTES]);
        for (r, &position) in position.iter().enumerate() {
            let row = r * BYTES..(r + 1) * BYTES;
            let target = text[position + CONTEXT] as usize;
            loss += cross_entropy(&logits[row.clone()], target, scale / BATCH as f64, &mut dlogits[row]);
        }
        self.dlogits.write(&dlogits)?;
        Ok(loss)
    }

    fn backward(&mut self, text: &[u8], position: &[usize]) -> Try<()> {
        let Model { linear1, linear2, dx, dh, dw1, db1, dw2, db2, .. } = self;
        let gradients = Gradients { dx: Some(dh), dw: Some(dw2), dbias: Some(db2), accumulate: false };
        linear2.backward(&self.dlogits, &gradients)?;
        let mut values = dh.to_vec::<f32>()?;
        for (dh, h) in values.iter_mut().zip(self.h.to_vec::<f32>()?) {
            *dh = if h > 0.0 { *dh } else { 0.0 };
        }
        dh.write(&values)?;
        let gradients = Gradients { dx: Some(dx), dw: Some(dw1), dbias: Some(db1), accumulate: false };
        linear1.backward(dh, &gradients)?;
        let mut sum = vec![0.0f32; BYTES * EMBED];
        for (&position, dx) in position.iter().zip(dx.to_vec::<f32>()?.chunks_exact(IN)) {
            for (&byte, dx) in text[position..].iter().zip(dx.chunks_exact(EMBED)) {
                let row = &mut sum[byte as usize * EMBED..][..EMBED];
                row.iter_mut().zip(dx).for_each(|(sum, dx)| *sum += dx);
            }
        }
        self.embed_grad.write(&sum)?;
        Ok(())
    }
}

fn main() -> Try<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let argument = |index: usize| arguments.get(index).map(String::as_str);
    let text = std::fs::read(argument(1).ok_or("usage: train TEXT [RECIPE [STEPS [FOLDER]]]")?)?;
    if text.len() <= CONTEXT {
        return Err("the text is too short".into());
    }
    let steps: i64 = argument(3).unwrap_or("60").parse()?;
    let folder = argument(4);
    let random = Cell::new(1234);
    let mut model = Model::new(argument(2).unwrap_or("bf16_mixed"), &random)?;
    let mut checkpoint = model.checkpoint(&random)?;
    let mut step = 0;
    if let Some(folder) = folder.filter(|folder| checkpoint::inspect(folder).is_ok()) {
        step = checkpoint.load(folder, &Load::default())?.step;
        println!("resumed at step {step}");
    }

    while step < steps {
        let scale = model.scaler.scale()?;
        let mut position = [0; BATCH];
        for position in &mut position {
            *position = (next_random(&random) % (text.len() - CONTEXT) as i64) as usize;
        }
        let loss = model.forward(&text, &position, scale)?;
        model.backward(&text, &position)?;
        model.optimizer.step(Some(&mut model.scaler))?;
        model.scaler.update()?;

        step += 1;
        if step % 10 == 0 {
            println!("step {step:3}  loss {:.9}  scale {scale:.0}", loss / BATCH as f64);
        }
    }
    if let Some(folder) = folder {
        checkpoint.save(folder, step)?;
    }
    Ok(())
}
