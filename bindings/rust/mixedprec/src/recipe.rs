// SPDX-License-Identifier: Apache-2.0
//! Recipes: which type every class of tensor has, how it is rounded, and how the loss is scaled.
use crate::context::Place;
use crate::error::{c_path, call, copied, static_text, stored, text, Result};
use crate::handle::Handle;
use crate::tensor::{expect_elements, sizes};
use crate::{c_string, sys, Context, Tensor};
use std::path::Path;
use std::ptr::null;

/// Which type every class of tensor has, how it is rounded, and how the loss is scaled: a preset, changed key by key.
/// What uses it freezes it: later changes fail, but a [`Recipe::try_clone`] can be changed.
pub struct Recipe {
    handle: Handle<sys::mp_recipe>,
    context: Context,
}

// SAFETY: class B, and it shares nothing that can still change.
unsafe impl Send for Recipe {}

/// What a key of a recipe holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// One of some words.
    Text,
    /// A floating-point number.
    Float,
    /// An integer.
    Int,
}

/// A key of recipes.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, such as "gemm.fprop.dtype".
    pub name: &'static str,
    /// What it holds.
    pub kind: KeyType,
    /// "a|b|c", or "min..max".
    pub allowed: &'static str,
    /// What it means.
    pub text: &'static str,
    /// Its value in the preset fp32.
    pub fp32_value: &'static str,
}

/// A preset.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name, for [`Recipe::new`].
    pub name: &'static str,
    /// What it is.
    pub text: &'static str,
}

/// The presets there are.
pub fn presets() -> Result<Vec<Preset>> {
    // SAFETY: takes nothing.
    let count = unsafe { sys::mp_recipe_preset_count() };
    (0..count)
        .map(|index| {
            let (mut name, mut about) = (null(), null());
            // SAFETY: what is stored are static texts.
            unsafe {
                call(|| sys::mp_recipe_get_preset_info(index, &mut name, &mut about))?;
                Ok(Preset { name: static_text(name), text: static_text(about) })
            }
        })
        .collect()
}

/// The keys there are.
pub fn keys() -> Result<Vec<Key>> {
    // SAFETY: takes nothing.
    let count = unsafe { sys::mp_recipe_key_count() };
    (0..count)
        .map(|index| {
            let mut desc = sys::mp_recipe_key_desc::INIT;
            // SAFETY: what is stored are static texts.
            unsafe {
                call(|| sys::mp_recipe_get_key_info(index, &mut desc))?;
                Ok(Key {
                    name: static_text(desc.name),
                    kind: match desc.r#type {
                        sys::MP_RECIPE_TYPE_FLOAT => KeyType::Float,
                        sys::MP_RECIPE_TYPE_INT => KeyType::Int,
                        _ => KeyType::Text,
                    },
                    allowed: static_text(desc.allowed),
                    text: static_text(desc.text),
                    fp32_value: static_text(desc.fp32_value),
                })
            }
        })
        .collect()
}

impl Recipe {
    fn create(context: &Context, create: impl FnOnce(*mut *mut sys::mp_recipe) -> sys::mp_status) -> Result<Recipe> {
        Ok(Recipe { handle: Handle::new(create)?, context: context.clone() })
    }

    /// A preset by name (see [`presets`]); "auto" and "auto_fp8" choose by the context's device.
    pub fn new(context: &Context, name: &str) -> Result<Recipe> {
        let name = c_string(name)?;
        // SAFETY: context and name are good for the call.
        Recipe::create(context, |out| unsafe { sys::mp_recipe_create(context.raw(), name.as_ptr(), out) })
    }

    /// From JSON: `{"recipe": "preset", "key": value, ...}`.
    pub fn from_json(context: &Context, json: &str) -> Result<Recipe> {
        // SAFETY: the text has so many bytes.
        Recipe::create(context, |out| unsafe {
            sys::mp_recipe_create_from_json(context.raw(), json.as_ptr().cast(), json.len(), out)
        })
    }

    /// From a file with such JSON.
    pub fn from_file(context: &Context, path: impl AsRef<Path>) -> Result<Recipe> {
        let path = c_path(path.as_ref())?;
        // SAFETY: context and path are good for the call.
        Recipe::create(context, |out| unsafe { sys::mp_recipe_create_from_file(context.raw(), path.as_ptr(), out) })
    }

    /// Every key as JSON, in canonical form.
    pub fn to_json(&self) -> Result<String> {
        // SAFETY: the handle is alive; `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe { sys::mp_recipe_to_json(self.raw(), buffer, capacity, needed) })
    }

    /// A copy that can be changed, also of a frozen recipe.
    pub fn try_clone(&self) -> Result<Recipe> {
        // SAFETY: the handle is alive.
        Recipe::create(&self.context, |out| unsafe { sys::mp_recipe_clone(self.raw(), out) })
    }

    /// The recipe as a layer of this name has it: the rules of key "layers" resolved.
    pub fn for_layer(&self, name: &str) -> Result<Recipe> {
        let name = c_string(name)?;
        // SAFETY: the handle is alive, and the name is good for the call.
        Recipe::create(&self.context, |out| unsafe { sys::mp_recipe_clone_for_layer(self.raw(), name.as_ptr(), out) })
    }

    /// Likewise as a parameter of this name has it.
    pub fn for_param(&self, name: &str) -> Result<Recipe> {
        let name = c_string(name)?;
        // SAFETY: the handle is alive, and the name is good for the call.
        Recipe::create(&self.context, |out| unsafe { sys::mp_recipe_clone_for_param(self.raw(), name.as_ptr(), out) })
    }

    /// Sets a key that holds a word.
    pub fn set_text(&mut self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        // SAFETY: handle and texts are good for the call.
        call(|| unsafe { sys::mp_recipe_set_string(self.raw(), key.as_ptr(), value.as_ptr()) })
    }

    /// Sets a key that holds a floating-point number.
    pub fn set_float(&mut self, key: &str, value: f64) -> Result<()> {
        let key = c_string(key)?;
        // SAFETY: handle and text are good for the call.
        call(|| unsafe { sys::mp_recipe_set_float(self.raw(), key.as_ptr(), value) })
    }

    /// Sets a key that holds an integer.
    pub fn set_int(&mut self, key: &str, value: i64) -> Result<()> {
        let key = c_string(key)?;
        // SAFETY: handle and text are good for the call.
        call(|| unsafe { sys::mp_recipe_set_int(self.raw(), key.as_ptr(), value) })
    }

    /// The word of a key.
    pub fn text(&self, key: &str) -> Result<String> {
        let key = c_string(key)?;
        let mut value = null();
        // SAFETY: handle and text are good for the call; what is stored stays at least as long as the recipe.
        unsafe {
            call(|| sys::mp_recipe_get_string(self.raw(), key.as_ptr(), &mut value))?;
            Ok(copied(value))
        }
    }

    /// The floating-point number of a key.
    pub fn float(&self, key: &str) -> Result<f64> {
        let key = c_string(key)?;
        // SAFETY: handle and text are good for the call.
        stored(0.0, |value| unsafe { sys::mp_recipe_get_float(self.raw(), key.as_ptr(), value) })
    }

    /// The integer of a key.
    pub fn int(&self, key: &str) -> Result<i64> {
        let key = c_string(key)?;
        // SAFETY: handle and text are good for the call.
        stored(0, |value| unsafe { sys::mp_recipe_get_int(self.raw(), key.as_ptr(), value) })
    }

    /// Checks the combination of keys; all that is wrong is in one error, advice in
    /// [`take_notes`](crate::take_notes).
    pub fn validate(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_recipe_validate(self.raw()) })
    }

    /// Whether something uses it, so that it can no longer change.
    pub fn is_frozen(&self) -> Result<bool> {
        // SAFETY: the handle is alive.
        let frozen = stored(0, |frozen| unsafe { sys::mp_recipe_get_frozen(self.raw(), frozen) })?;
        Ok(frozen != 0)
    }

    /// Why "auto" chose what it did; empty for other recipes.
    pub fn reason(&self) -> Result<String> {
        // SAFETY: the handle is alive; `text` hands over its buffer and that one's size.
        text(|buffer, capacity, needed| unsafe { sys::mp_recipe_get_reason(self.raw(), buffer, capacity, needed) })
    }

    /// The weight that the recipe wants, from its values in fp32: in its type, quantized where that has a scale. Give
    /// the same values as [`Param::initial`](crate::Param::initial), so that nothing that rounding loses is lost.
    /// `None`: zeros.
    pub fn weight(&self, shape: &[usize], values: Option<&[f32]>) -> Result<Tensor<'static>> {
        self.make_weight(shape, values, sys::mp_recipe_create_weight)
    }

    /// The same as the codes that fp8 products take, with one scale: what sharding gathers under `weight.gather.codes`.
    pub fn weight_codes(&self, shape: &[usize], values: Option<&[f32]>) -> Result<Tensor<'static>> {
        self.make_weight(shape, values, sys::mp_recipe_create_weight_codes)
    }

    fn make_weight(
        &self,
        shape: &[usize],
        values: Option<&[f32]>,
        create: unsafe extern "C" fn(
            *mut sys::mp_context,
            *const sys::mp_recipe,
            i32,
            *const i64,
            *const f32,
            *mut *mut sys::mp_tensor,
        ) -> sys::mp_status,
    ) -> Result<Tensor<'static>> {
        if let Some(values) = values {
            expect_elements(shape, values.len())?;
        }
        let dimensions = sizes(shape)?;
        let values = values.map_or(null(), |values| values.as_ptr());
        // SAFETY: handles and sizes are good for the call, and the values are as many as the sizes say.
        let handle = Handle::new(|out| unsafe {
            create(self.context.raw(), self.raw(), dimensions.len() as i32, dimensions.as_ptr(), values, out)
        })?;
        Tensor::from_handle(Place::new(&self.context), handle)
    }

    /// The raw handle, for calls of [`sys`](crate::sys). It stays this recipe's.
    pub fn raw(&self) -> *mut sys::mp_recipe {
        self.handle.get()
    }

    /// The context it was made in.
    pub fn context(&self) -> &Context {
        &self.context
    }
}
