// SPDX-License-Identifier: Apache-2.0
//! Only the optimizer and the loss scaler, on arrays of the program's own: AdamW moves p to a target. Gradients
//! overflow at step 20: the scaler skips that step and halves its scale. Prints what the same program prints in every
//! language.
use mixedprec::{step_slices, Context, Hyperparameters, Scaler, ScalerOptions, Slot, StepArgs};

const COUNT: usize = 1000;

fn main() -> mixedprec::Result<()> {
    let context = Context::new()?;
    let mut scaler = Scaler::new(&context, &ScalerOptions::default())?;
    let (mut p, mut grad) = (vec![0.0f32; COUNT], vec![0.0f32; COUNT]);
    let (mut exp_avg, mut exp_avg_sq) = (vec![0.0f32; COUNT], vec![0.0f32; COUNT]);
    let mut args =
        StepArgs { hyperparameters: Hyperparameters { lr: 0.1, ..Default::default() }, ..Default::default() };

    for i in 1..=100 {
        let scale = scaler.scale()? as f32;
        for j in 0..COUNT {
            grad[j] = (p[j] - (j as i32 % 7 - 3) as f32) * scale;
        }
        if i == 20 {
            grad[5] = f32::INFINITY;
        }
        let slot = Slot::new(&mut p, &grad).exp_avg(&mut exp_avg).exp_avg_sq(&mut exp_avg_sq);
        let stats = step_slices(&context, &args, &mut [slot], Some(&mut scaler))?;
        args.step += i64::from(!stats.found_inf);
        scaler.update()?;
    }

    let steps = args.step - 1;
    let sum: f64 = p.iter().map(|&p| f64::from(p).abs()).sum();
    let (scale, skipped) = (scaler.scale()?, 100 - steps);
    println!("steps {steps}  skipped {skipped}  scale {scale:.0}  sum {sum:.9}  p[1] {:.9}", p[1]);
    Ok(())
}
