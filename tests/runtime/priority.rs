//! Threads of low priority.

use std::io;

use strata_runtime::priority::{Priority, SHORT_BYTES, Work};
use strata_testing::Log;

/// Makes the system call fail with EPERM on the calling thread, as the filter of a systemd unit does.
fn deny_system_call(number: libc::c_long) {
    let statement = |code: u32, jump_true, jump_false, value| libc::sock_filter {
        code: u16::try_from(code).expect("a code"),
        jt: jump_true,
        jf: jump_false,
        k: value,
    };
    let mut program = [
        // The number of the system call is the first field of the data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::try_from(number).expect("a number")),
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
    let log = Log::default();
    let writer = log.clone();
    let thread = std::thread::spawn(move || {
        let subscriber = tracing_subscriber::fmt().json().with_writer(writer).finish();
        deny_system_call(libc::SYS_setpriority);
        tracing::subscriber::with_default(subscriber, || {
            Priority::Medium.take();
            Priority::Long.take();
        });
    });
    thread.join().expect("the thread ends");
    let lines = log.lines();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let fields = line["fields"].to_string();
    assert!(line["level"] == "WARN" && fields.contains("failed to lower the priority"), "{line}");
    assert!(fields.contains("os error 1"), "{line}");
}

/// The 19th field of the calling thread's state, counted after its name.
fn nice() -> i64 {
    let state = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux tells");
    let mut fields = state.rsplit_once(')').expect("a name").1.split_whitespace();
    fields.nth(16).expect("a field").parse().expect("a number")
}

#[test]
fn a_thread_that_gives_way_is_the_only_one() {
    let before = nice();
    let there = std::thread::spawn(move || {
        let mut work = Work::default();
        work.add(SHORT_BYTES);
        assert_eq!(nice(), before, "not yet");
        work.add(1);
        nice()
    });
    // A process that was started with a low priority itself must not raise it.
    assert_eq!(there.join().expect("it ends"), (before + 10).min(19));
    assert_eq!(nice(), before);
}
