// SPDX-License-Identifier: Apache-2.0
//! A training loop in candle's shape, with an optimizer of this library's: bf16 variables, which train as if they
//! were wider, because their states are not bf16 too, and a compensation keeps what rounding loses.
//!
//! The crates of candle are not needed to build this: `Var`, `VarMap`, `GradStore`, the loss with its `backward` and
//! the trait `Optimizer` are small stand-ins with the shapes of theirs. In a program with candle, `MixedAdamW` stays
//! as it is, but for where a variable's values are had.
use mixedprec::{step_slices, Bf16, Cast, Context, Hyperparameters, Scaler, ScalerOptions, Slot, StepArgs};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

type Result<T> = mixedprec::Result<T>;

// ---- Stand-ins

/// candle_core::Var: values that are trained. A clone is the same variable.
#[derive(Clone)]
struct Var {
    id: usize,
    values: Rc<RefCell<Vec<Bf16>>>,
}

impl Var {
    fn to_f32(&self) -> Vec<f32> {
        self.values.borrow().iter().map(|value| value.to_f32()).collect()
    }
}

/// candle_nn::VarMap: variables by name.
#[derive(Default)]
struct VarMap {
    data: BTreeMap<String, Var>,
}

impl VarMap {
    fn get(&mut self, name: &str, init: &[f32], context: &Context) -> Result<Var> {
        let id = self.data.len();
        let mut values = vec![Bf16(0); init.len()];
        mixedprec::cast_slice(context, init, &mut values, &Cast::default())?;
        let var = Var { id, values: Rc::new(RefCell::new(values)) };
        Ok(self.data.entry(name.to_owned()).or_insert(var).clone())
    }

    fn all_vars(&self) -> Vec<Var> {
        self.data.values().cloned().collect()
    }
}

/// candle_core::backprop::GradStore: gradients by variable.
#[derive(Default)]
struct GradStore(BTreeMap<usize, Vec<f32>>);

impl GradStore {
    fn get(&self, var: &Var) -> Option<&Vec<f32>> {
        self.0.get(&var.id)
    }
}

/// A loss that knows the way back.
struct Loss<'a> {
    value: f64,
    backward: Box<dyn Fn(f64) -> GradStore + 'a>,
}

/// candle_nn::Optimizer.
trait Optimizer: Sized {
    type Config;
    fn new(vars: Vec<Var>, config: Self::Config) -> Result<Self>;
    fn step(&mut self, grads: &GradStore) -> Result<()>;
    fn learning_rate(&self) -> f64;
    fn set_learning_rate(&mut self, lr: f64);
    /// What the loss is multiplied by before it goes back.
    fn loss_scale(&self) -> Result<f64>;

    fn backward_step(&mut self, loss: &Loss) -> Result<()> {
        self.step(&(loss.backward)(self.loss_scale()?))
    }
}

// ---- The optimizer

/// A variable with its states: moments in fp32, the compensation in bf16.
struct State {
    var: Var,
    exp_avg: Vec<f32>,
    exp_avg_sq: Vec<f32>,
    compensation: Vec<Bf16>,
}

struct MixedAdamW {
    context: Context,
    scaler: Scaler,
    args: StepArgs,
    states: Vec<State>,
}

impl Optimizer for MixedAdamW {
    type Config = (Context, Hyperparameters);

    fn new(vars: Vec<Var>, (context, hyperparameters): Self::Config) -> Result<Self> {
        let states = vars.into_iter().map(|var| {
            let count = var.values.borrow().len();
            let (exp_avg, exp_avg_sq) = (vec![0.0; count], vec![0.0; count]);
            State { var, exp_avg, exp_avg_sq, compensation: vec![Bf16(0); count] }
        });
        let scaler = Scaler::new(&context, &ScalerOptions::default())?;
        let args = StepArgs { hyperparameters, ..StepArgs::default() };
        Ok(MixedAdamW { scaler, args, states: states.collect(), context })
    }

    fn step(&mut self, grads: &GradStore) -> Result<()> {
        let with_grads = self.states.iter_mut().filter_map(|state| grads.get(&state.var).map(|grad| (state, grad)));
        let (mut states, grads): (Vec<&mut State>, Vec<&Vec<f32>>) = with_grads.unzip();
        let vars: Vec<Var> = states.iter().map(|state| state.var.clone()).collect();
        let mut values: Vec<_> = vars.iter().map(|var| var.values.borrow_mut()).collect();
        let mut slots: Vec<Slot> = Vec::new();
        for ((state, grad), values) in states.iter_mut().zip(grads).zip(&mut values) {
            let slot = Slot::new(values, grad).uid(state.var.id as u64);
            let slot = slot.exp_avg(&mut state.exp_avg).exp_avg_sq(&mut state.exp_avg_sq);
            slots.push(slot.compensation(&mut state.compensation));
        }
        let stats = step_slices(&self.context, &self.args, &mut slots, Some(&mut self.scaler))?;
        self.args.step += i64::from(!stats.found_inf);
        self.scaler.update()
    }

    fn learning_rate(&self) -> f64 {
        self.args.hyperparameters.lr
    }

    fn set_learning_rate(&mut self, lr: f64) {
        self.args.hyperparameters.lr = lr;
    }

    fn loss_scale(&self) -> Result<f64> {
        self.scaler.scale()
    }
}

// ---- The loop

/// Mean square of w x + b - y.
fn loss<'a>(w: &'a Var, b: &'a Var, data: &'a [(f32, f32)]) -> Loss<'a> {
    let (slope, offset) = (w.to_f32()[0], b.to_f32()[0]);
    let errors = move || data.iter().map(move |(x, y)| (*x, slope * x + offset - y));
    let value = errors().map(|(_, e)| f64::from(e * e)).sum::<f64>() / data.len() as f64;
    let backward = move |scale: f64| {
        let factor = 2.0 * scale as f32 / data.len() as f32;
        let dw = errors().map(|(x, e)| e * x).sum::<f32>() * factor;
        let db = errors().map(|(_, e)| e).sum::<f32>() * factor;
        GradStore(BTreeMap::from([(w.id, vec![dw]), (b.id, vec![db])]))
    };
    Loss { value, backward: Box::new(backward) }
}

fn main() -> Result<()> {
    let context = Context::new()?;
    let mut varmap = VarMap::default();
    let w = varmap.get("weight", &[0.0], &context)?;
    let b = varmap.get("bias", &[0.0], &context)?;
    let data: Vec<(f32, f32)> = (0..64).map(|i| i as f32 / 32.0 - 1.0).map(|x| (x, 3.0 * x - 1.5)).collect();

    let hyperparameters = Hyperparameters { lr: 0.05, ..Hyperparameters::default() };
    let mut optimizer = MixedAdamW::new(varmap.all_vars(), (context, hyperparameters))?;
    for epoch in 1..=400 {
        if epoch % 200 == 0 {
            optimizer.set_learning_rate(optimizer.learning_rate() / 10.0);
        }
        let loss = loss(&w, &b, &data);
        optimizer.backward_step(&loss)?;
        if epoch % 100 == 0 {
            println!("epoch {epoch}  loss {:.6}  w {:.3}  b {:.3}", loss.value, w.to_f32()[0], b.to_f32()[0]);
        }
    }
    Ok(())
}
