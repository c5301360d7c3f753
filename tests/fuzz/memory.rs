//! An allocator that refuses what no input of a few kilobytes is worth: a length that an input claims must not be
//! believed. Where the service cannot go on without the memory, the process ends, and libFuzzer keeps the input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// The largest allocation.
const LARGEST_BYTES: usize = 256 << 20;

struct Bounded;

#[global_allocator]
static BOUNDED: Bounded = Bounded;

// Sound as the system's is: it passes all on, or has no memory.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST_BYTES { ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST_BYTES { ptr::null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > LARGEST_BYTES { ptr::null_mut() } else { unsafe { System.realloc(pointer, layout, size) } }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}
