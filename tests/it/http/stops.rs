//! Shutdown of the binary under load.

use strata_testing::TestService;
use strata_testing::binary::Binary;
use strata_testing::persistent_clients::{CLIENTS, load};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binary_stop_loses_no_request() {
    let service = TestService::start().await;
    service.import("Numbers", &(0..100).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>()).await;
    for _ in 0..2 {
        let binary = Binary::start(service.directory(), &[("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")]);
        let address = binary.address.parse().expect("invalid address");
        let answered = load(address, "/api/1/numbers/v1/?filter=n:7", async { binary.terminate() }).await;
        assert!(answered > CLIENTS, "{answered} answers");
        assert_eq!(binary.exit_code(), Some(0));
    }
}
