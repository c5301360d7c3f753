//! Threads with a low priority.

use std::io;

use strata_runtime::priority::{MAX_SHORT_WORK_BYTES, ThreadPriority, ThreadWork};
use strata_testing::CapturedLog;

/// Makes a system call fail with EPERM on the calling thread, like the filter of a systemd unit.
fn deny_system_call(number: libc::c_long) {
    let statement = |code: u32, jump_true, jump_false, value| libc::sock_filter {
        code: u16::try_from(code).expect("failed to convert code"),
        jt: jump_true,
        jf: jump_false,
        k: value,
    };
    let mut program = [
        // The number of the system call is the first field of the data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::try_from(number).expect("failed to convert")),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: both calls change only the calling thread; the filter outlives the second one, which copies it.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
        ]
    };
    assert_eq!(results, [0, 0], "{}", io::Error::last_os_error());
}

#[test]
fn denied_setpriority_logs_one_warning() {
    let log = CapturedLog::default();
    let writer = log.clone();
    let thread = std::thread::spawn(move || {
        let subscriber = tracing_subscriber::fmt().json().with_writer(writer).finish();
        deny_system_call(libc::SYS_setpriority);
        tracing::subscriber::with_default(subscriber, || {
            ThreadPriority::Medium.apply_to_current_thread();
            ThreadPriority::Long.apply_to_current_thread();
        });
    });
    thread.join().expect("failed to join thread");
    let lines = log.lines();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let fields = line["fields"].to_string();
    assert!(line["level"] == "WARN" && fields.contains("failed to lower the priority"), "{line}");
    assert!(fields.contains("os error 1"), "{line}");
}

/// Returns the nice value of the calling thread: field 19 of its state.
fn nice() -> i64 {
    let state = std::fs::read_to_string("/proc/thread-self/stat").expect("failed to read thread state");
    let mut fields = state.rsplit_once(')').expect("failed to find name").1.split_whitespace();
    fields.nth(16).expect("failed to find field").parse().expect("failed to parse number")
}

#[test]
fn lowered_priority_affects_only_one_thread() {
    let before = nice();
    let thread = std::thread::spawn(move || {
        let mut work = ThreadWork::default();
        work.record_and_lower_priority(MAX_SHORT_WORK_BYTES);
        assert_eq!(nice(), before, "the priority is lowered too early");
        work.record_and_lower_priority(1);
        nice()
    });
    // The test process can have been started with a low priority.
    assert_eq!(thread.join().expect("failed to join thread"), (before + 10).min(19));
    assert_eq!(nice(), before);
}
