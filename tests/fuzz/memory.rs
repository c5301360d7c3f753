//! An allocator that refuses allocations that no input of a few kilobytes can justify, because the service must not
//! trust a length in an input. If the service cannot continue without the memory, the process aborts and libFuzzer
//! stores the input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// The maximum size of an allocation.
const LARGEST_BYTES: usize = 256 << 20;

struct Bounded;

#[global_allocator]
static BOUNDED: Bounded = Bounded;

// Sound because it either forwards to the system allocator or reports that there is no memory.
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
