// SPDX-License-Identifier: Apache-2.0
//! Tensors: dense row-major arrays in the library's memory or in a slice of the program's.
use crate::context::Place;
use crate::error::{bad_shape, call, number, stored, Error, Result};
use crate::handle::Handle;
use crate::{sys, Context, DType, DeviceKind, Element, Queue};
use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::size_of_val;
use std::ops::Deref;
use std::ptr::null_mut;

/// A dense row-major array of one element type. `'a` is the life of the memory under it: `'static` for memory of the
/// library's, that of the slice for a wrapped one.
///
/// A tensor is a handle: views, layers, optimizers and checkpoints share its memory, and it is written through
/// `&self`, like a [`Cell`]. So it stays in its thread, as all that may share its memory does. Between threads go
/// `Vec`s.
pub struct Tensor<'a> {
    pub(crate) handle: Handle<sys::mp_tensor>,
    pub(crate) place: Place,
    desc: sys::mp_tensor_desc,
    memory: PhantomData<&'a [Cell<u8>]>,
}

/// Sizes as the library wants them.
pub(crate) fn sizes(shape: &[usize]) -> Result<Vec<i64>> {
    if shape.len() > sys::MP_MAX_DIMS as usize {
        return Err(bad_shape(format!("{} dimensions; there can be {}", shape.len(), sys::MP_MAX_DIMS)));
    }
    shape.iter().map(|&size| number(size, "a size")).collect()
}

/// Checks that `length` elements are what `shape` says.
pub(crate) fn expect_elements(shape: &[usize], length: usize) -> Result<()> {
    match shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) {
        Some(product) if product == length => Ok(()),
        _ => Err(bad_shape(format!("{length} elements cannot be a tensor of {shape:?}"))),
    }
}

pub(crate) fn tensor_desc(dtype: DType, shape: &[usize]) -> Result<sys::mp_tensor_desc> {
    let mut desc = sys::mp_tensor_desc { dtype: dtype as i32, ..sys::mp_tensor_desc::INIT };
    for (to, from) in desc.shape.iter_mut().zip(sizes(shape)?) {
        *to = from;
    }
    desc.ndim = shape.len() as i32;
    Ok(desc)
}

/// The raw handle of an argument that may be missing.
pub(crate) fn raw_or_null(tensor: Option<&Tensor>) -> *mut sys::mp_tensor {
    tensor.map_or(null_mut(), Tensor::raw)
}

impl Tensor<'static> {
    /// A tensor of zeros in the library's memory, on the context's device.
    pub fn zeros(context: &Context, dtype: DType, shape: &[usize]) -> Result<Tensor<'static>> {
        let desc = tensor_desc(dtype, shape)?;
        // SAFETY: context and descriptor are good for the call.
        let handle = Handle::new(|out| unsafe { sys::mp_tensor_create(context.raw(), &desc, out) })?;
        Tensor::from_handle(Place::new(context), handle)
    }

    /// Type and shape without memory, a parameter's: the optimizer that it is added to gives it memory.
    pub fn deferred(context: &Context, dtype: DType, shape: &[usize]) -> Result<Tensor<'static>> {
        let desc = sys::mp_tensor_desc { flags: sys::MP_TENSOR_DEFERRED, ..tensor_desc(dtype, shape)? };
        // SAFETY: context and descriptor are good for the call.
        let handle = Handle::new(|out| unsafe { sys::mp_tensor_create(context.raw(), &desc, out) })?;
        Tensor::from_handle(Place::new(context), handle)
    }

    /// The same on the host, whichever the context's device: a place to copy to and from.
    pub fn zeros_on_host(context: &Context, dtype: DType, shape: &[usize]) -> Result<Tensor<'static>> {
        let desc = sys::mp_tensor_desc { device_kind: sys::MP_DEVICE_HOST, ..tensor_desc(dtype, shape)? };
        // SAFETY: context and descriptor are good for the call.
        let handle = Handle::new(|out| unsafe { sys::mp_tensor_create(context.raw(), &desc, out) })?;
        Tensor::from_handle(Place::new(context), handle)
    }

    /// A tensor with a copy of these elements, on the context's device.
    pub fn from_slice<T: Element>(context: &Context, data: &[T], shape: &[usize]) -> Result<Tensor<'static>> {
        expect_elements(shape, data.len())?;
        let tensor = Tensor::zeros(context, T::DTYPE, shape)?;
        tensor.write(data)?;
        Ok(tensor)
    }
}

impl<'a> Tensor<'a> {
    /// A tensor over the program's memory, without a copy. The slice is the tensor's as long as anything has it that
    /// it was given to: an optimizer, a layer, a checkpoint.
    ///
    /// Nobody wraps a buffer twice:
    /// ```compile_fail,E0499
    /// # fn main() -> mixedprec::Result<()> {
    /// # let context = mixedprec::Context::new()?;
    /// let mut data = vec![0.0f32; 8];
    /// let one = mixedprec::Tensor::wrap(&context, &mut data, &[8])?;
    /// let two = mixedprec::Tensor::wrap(&context, &mut data, &[8])?;
    /// # drop(one); drop(two);
    /// # Ok(()) }
    /// ```
    /// The buffer outlives the tensor:
    /// ```compile_fail,E0597
    /// # fn main() -> mixedprec::Result<()> {
    /// # let context = mixedprec::Context::new()?;
    /// let tensor = {
    ///     let mut data = vec![0.0f32; 8];
    ///     mixedprec::Tensor::wrap(&context, &mut data, &[8])?
    /// };
    /// tensor.zero()?;
    /// # Ok(()) }
    /// ```
    /// and the tensor stays in its thread:
    /// ```compile_fail,E0277
    /// # fn main() -> mixedprec::Result<()> {
    /// # let context = mixedprec::Context::new()?;
    /// let tensor = mixedprec::Tensor::zeros(&context, mixedprec::DType::Fp32, &[8])?;
    /// std::thread::spawn(move || tensor.zero());
    /// # Ok(()) }
    /// ```
    pub fn wrap<T: Element>(context: &Context, data: &'a mut [T], shape: &[usize]) -> Result<Tensor<'a>> {
        Tensor::over(context, data, shape, 0)
    }

    /// The memory of a parameter, or of its gradient, while an optimizer has it in use.
    pub fn wrap_deferred<T: Element>(context: &Context, data: &'a mut [T], shape: &[usize]) -> Result<Tensor<'a>> {
        Tensor::over(context, data, shape, sys::MP_TENSOR_DEFERRED)
    }

    fn over<T: Element>(context: &Context, data: &'a mut [T], shape: &[usize], flags: u32) -> Result<Tensor<'a>> {
        expect_elements(shape, data.len())?;
        let desc = sys::mp_tensor_desc { flags, device_kind: sys::MP_DEVICE_HOST, ..tensor_desc(T::DTYPE, shape)? };
        let memory = if data.is_empty() { null_mut() } else { data.as_mut_ptr() };
        // SAFETY: the memory has these elements and their alignment. It is borrowed for 'a, and whatever keeps the
        // tensor is bound to 'a too.
        let handle = Handle::new(|out| unsafe {
            sys::mp_tensor_wrap(context.raw(), &desc, memory.cast(), None, null_mut(), out)
        })?;
        Tensor::from_handle(Place::new(context), handle)
    }

    /// A tensor over memory that Rust knows nothing of, such as a device's.
    ///
    /// # Safety
    /// `data` has the elements of `shape`, aligned, on the device, and nobody else touches them while the tensor or
    /// anything that it was given to lives; that is at most `'a`.
    pub unsafe fn from_raw_parts(
        context: &Context,
        data: *mut c_void,
        dtype: DType,
        shape: &[usize],
        device: DeviceKind,
        device_index: i32,
    ) -> Result<Tensor<'a>> {
        Tensor::at(context, data, (device, device_index), tensor_desc(dtype, shape)?)
    }

    /// The same as [`Tensor::wrap_deferred`]; others may name it too, those of layers that come one after another.
    /// # Safety
    /// As of [`Tensor::from_raw_parts`]; but for tensors that name the memory too, which the library keeps apart.
    pub unsafe fn deferred_from_raw_parts(
        context: &Context,
        data: *mut c_void,
        dtype: DType,
        shape: &[usize],
        device: (DeviceKind, i32),
    ) -> Result<Tensor<'a>> {
        let desc = sys::mp_tensor_desc { flags: sys::MP_TENSOR_DEFERRED, ..tensor_desc(dtype, shape)? };
        Tensor::at(context, data, device, desc)
    }

    unsafe fn at(
        context: &Context,
        data: *mut c_void,
        (device, device_index): (DeviceKind, i32),
        of: sys::mp_tensor_desc,
    ) -> Result<Tensor<'a>> {
        let desc = sys::mp_tensor_desc { device_kind: device as i32, device_index, ..of };
        let handle = Handle::new(|out| sys::mp_tensor_wrap(context.raw(), &desc, data, None, null_mut(), out))?;
        Tensor::from_handle(Place::new(context), handle)
    }

    /// A tensor over a slice that is only read.
    ///
    /// # Safety
    /// No call that writes is given it, and none that keeps it.
    pub(crate) unsafe fn wrap_shared<T: Element>(
        context: &Context,
        data: &'a [T],
        shape: &[usize],
    ) -> Result<Tensor<'a>> {
        expect_elements(shape, data.len())?;
        let memory = if data.is_empty() { null_mut() } else { data.as_ptr() as *mut c_void };
        Tensor::from_raw_parts(context, memory, T::DTYPE, shape, DeviceKind::Host, 0)
    }

    /// A handle that shares this tensor's memory.
    pub(crate) fn from_handle(place: Place, handle: Handle<sys::mp_tensor>) -> Result<Tensor<'a>> {
        // SAFETY: handle and struct are good for the call.
        let desc = stored(sys::mp_tensor_desc::INIT, |desc| unsafe { sys::mp_tensor_get_desc(handle.get(), desc) })?;
        Ok(Tensor { handle, place, desc, memory: PhantomData })
    }

    /// Some of its elements as a tensor: from element `offset` on in row-major order, in `shape`. It shares the
    /// memory.
    pub fn view(&self, offset: usize, shape: &[usize]) -> Result<Tensor<'a>> {
        let offset = number(offset, "the offset")?;
        let shape = sizes(shape)?;
        // SAFETY: the handle is alive, and `shape` good for the call.
        let handle = Handle::new(|out| unsafe {
            sys::mp_tensor_create_view(self.raw(), offset, shape.len() as i32, shape.as_ptr(), out)
        })?;
        Tensor::from_handle(self.place.clone(), handle)
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        DType::from_raw(self.desc.dtype).expect("a tensor has a type")
    }

    /// Its sizes, slowest first.
    pub fn shape(&self) -> Vec<usize> {
        self.desc.shape[..self.desc.ndim as usize].iter().map(|&size| size as usize).collect()
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its elements; of fp4, which has two in a byte, a last half one counts whole.
    pub fn byte_len(&self) -> usize {
        match self.dtype() {
            DType::Fp4E2M1 => (self.len() + 1) / 2,
            dtype => self.len() * dtype.size(),
        }
    }

    /// Where its memory is.
    pub fn device(&self) -> DeviceKind {
        match self.desc.device_kind {
            sys::MP_DEVICE_CUDA => DeviceKind::Cuda,
            sys::MP_DEVICE_HIP => DeviceKind::Hip,
            _ => DeviceKind::Host,
        }
    }

    /// The context it was made in.
    pub fn context(&self) -> &Context {
        &self.place.context
    }

    /// Has its work go over another queue than the default one.
    pub fn set_queue(&mut self, queue: Option<&Queue>) {
        self.place.queue = queue.cloned();
    }

    fn expect_dtype<T: Element>(&self) -> Result<()> {
        if self.desc.dtype == T::DTYPE as i32 {
            return Ok(());
        }
        let message = format!("the tensor is {}, the slice {}", self.dtype(), T::DTYPE);
        Err(Error::new(sys::MP_STATUS_INVALID_DTYPE, message))
    }

    /// Copies its elements out, when all work on its queue is done. `data` has as many.
    pub fn read<T: Element>(&self, data: &mut [T]) -> Result<()> {
        self.expect_dtype::<T>()?;
        let bytes = size_of_val(data);
        // SAFETY: the slice has `bytes` bytes, of which every pattern is a value; another number than the tensor's is
        // refused.
        call(|| unsafe { sys::mp_tensor_read(self.raw(), self.place.queue(), data.as_mut_ptr().cast(), bytes) })
    }

    /// Copies elements in. `data` has as many as the tensor.
    pub fn write<T: Element>(&self, data: &[T]) -> Result<()> {
        self.expect_dtype::<T>()?;
        // SAFETY: the slice has so many bytes; another number than the tensor's is refused.
        call(|| unsafe {
            sys::mp_tensor_write(self.raw(), self.place.queue(), data.as_ptr().cast(), size_of_val(data))
        })
    }

    /// A copy of its elements.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.expect_dtype::<T>()?;
        let mut data = Vec::with_capacity(self.len());
        // SAFETY: the room of the vector is as large as the tensor, and is elements once it is written.
        unsafe {
            let bytes = self.byte_len();
            call(|| sys::mp_tensor_read(self.raw(), self.place.queue(), data.as_mut_ptr() as *mut c_void, bytes))?;
            data.set_len(self.len());
        }
        Ok(data)
    }

    /// A copy of its elements as bytes, whatever its type.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut data = vec![0u8; self.byte_len()];
        // SAFETY: the vector is as large as it is said to be.
        call(|| unsafe {
            sys::mp_tensor_read(self.raw(), self.place.queue(), data.as_mut_ptr().cast(), data.len())
        })?;
        Ok(data)
    }

    /// Copies bytes in, whatever its type.
    pub fn write_bytes(&self, data: &[u8]) -> Result<()> {
        // SAFETY: the slice is as large as it is said to be.
        call(|| unsafe { sys::mp_tensor_write(self.raw(), self.place.queue(), data.as_ptr().cast(), data.len()) })
    }

    /// Its elements in place, on the host. Cells, because calls of the library write there meanwhile.
    /// ```
    /// # fn main() -> mixedprec::Result<()> {
    /// # let context = mixedprec::Context::new()?;
    /// let tensor = mixedprec::Tensor::from_slice(&context, &[1.0f32, 2.0], &[2])?;
    /// let cells = tensor.cells::<f32>()?;
    /// cells[0].set(cells[1].get() + 1.0);
    /// assert_eq!(tensor.to_vec::<f32>()?, [3.0, 2.0]);
    /// # Ok(()) }
    /// ```
    pub fn cells<T: Element>(&self) -> Result<Cells<'a, T>> {
        self.expect_dtype::<T>()?;
        if self.device() != DeviceKind::Host {
            let message = "the tensor's memory is on an accelerator: use read and write";
            return Err(Error::new(sys::MP_STATUS_UNSUPPORTED, message));
        }
        // A view keeps the memory in its place where ranks share an optimizer.
        let view = self.view(0, &self.shape())?;
        let data = view.data()? as *const Cell<T>;
        Ok(Cells { data, view })
    }

    /// Copies its elements to a tensor of the same type and number of elements, on any device, over that one's queue.
    pub fn copy_to(&self, destination: &Tensor) -> Result<()> {
        let place = &destination.place;
        // SAFETY: both handles are alive; shapes, types and overlap are checked there.
        place.enqueue(self.touches_host(&[destination]), || unsafe {
            sys::mp_tensor_copy(self.raw(), place.queue(), destination.raw())
        })
    }

    /// Sets every byte to zero.
    pub fn zero(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        self.place.enqueue(self.touches_host(&[]), || unsafe { sys::mp_tensor_zero(self.raw(), self.place.queue()) })
    }

    /// The address of its memory, on its device; NULL without elements. For calls of other libraries.
    pub fn data(&self) -> Result<*mut c_void> {
        let mut data = null_mut();
        // SAFETY: the handle is alive.
        call(|| unsafe { sys::mp_tensor_get_data(self.raw(), &mut data) })?;
        Ok(data)
    }

    /// The raw handle, for calls of [`sys`](crate::sys). It stays this tensor's.
    pub fn raw(&self) -> *mut sys::mp_tensor {
        self.handle.get()
    }

    pub(crate) fn touches_host(&self, others: &[&Tensor]) -> bool {
        self.device() == DeviceKind::Host || others.iter().any(|tensor| tensor.device() == DeviceKind::Host)
    }
}

impl std::fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({} {:?} on {:?})", self.dtype(), self.shape(), self.device())
    }
}

/// The elements of a tensor on the host, in place. They stay there as long as this lives.
pub struct Cells<'a, T> {
    data: *const Cell<T>,
    view: Tensor<'a>,
}

impl<T> Deref for Cells<'_, T> {
    type Target = [Cell<T>];

    fn deref(&self) -> &[Cell<T>] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: the view keeps the memory alive and in its place. It is touched by this thread alone, in calls of
        // the library, which wait for their work on the host; while threads of theirs are at it no code of the program
        // runs in this one, as a parallel loop of the program's has a thread of its own.
        unsafe { std::slice::from_raw_parts(self.data, self.view.len()) }
    }
}
