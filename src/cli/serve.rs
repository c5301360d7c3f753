//! `strata serve`: runs the service until a signal ends it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::UnknownArgumentValueParser;
use strata_config::{Config, InternalAddress, ListenAddress};
use strata_dashboard as dashboard;
use strata_runtime::memory;
use strata_service::{ProcessPurpose, Services};
use strata_types::node::NodeRoles;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use super::signals::ShutdownSignals;
use super::{demo, print_stdout, run_and_close};

/// Run the server
#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Address and port to listen on (server.listen) [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(super) listen: Option<String>,
    /// Load the demo datasets first, create a new password and API token for their owner, and print example URLs. Fails
    /// if other datasets exist, unless the demo was loaded before them
    #[arg(long)]
    demo: bool,
    /// Only serve requests: do not run schedules, send webhooks, sweep, or scrub (server.background = false).
    /// Use this option to serve a backup next to the original
    #[arg(long)]
    pub(super) no_background: bool,
    /// The name in other programs; refused with a suggestion
    #[arg(long = "port", hide = true, value_parser = UnknownArgumentValueParser::suggest_arg("--listen"))]
    _port: Option<String>,
    /// As `--port`
    #[arg(long = "host", hide = true, value_parser = UnknownArgumentValueParser::suggest_arg("--listen"))]
    _host: Option<String>,
}

/// Serves requests. The first signal stops the server gracefully, and the second one immediately.
pub(super) async fn run(arguments: ServeArguments, mut config: Config) -> Result<(), CliError> {
    memory::disable_huge_pages();
    // The port is bound before any file is created, so that an occupied port leaves no files behind.
    let (listener, address) = bind_listener(config.server.listen.as_str()).await?;
    let reachable = reachable_address(address);
    let base_url = format!("http://{reachable}");
    let tasks = match &config.cluster.listen {
        Some(address) => Some(bind_listener(address.as_str()).await?),
        None => None,
    };
    if config.server.listen.has_port_zero() {
        config.server.listen = ListenAddress::from(reachable);
    }
    if let (Some((_, address)), None) = (&tasks, &config.cluster.internal_address) {
        config.cluster.internal_address = InternalAddress::try_from(address.to_string()).ok();
    }
    let services = Services::open(&config, ProcessPurpose::Serve).await?;
    let stop = CancellationToken::new();
    let task_server = tasks.map(|(listener, address)| {
        tracing::info!(%address, "listening for tasks from other nodes");
        let services = services.clone();
        let stop = stop.clone();
        tokio::spawn(async move { services.serve_remote_tasks(listener, stop).await })
    });
    let served = async {
        let served = serve_until_signal(services.clone(), arguments, &config, listener, base_url).await;
        stop.cancel();
        if let Some(task_server) = task_server {
            // The server for query tasks of other nodes ends soon after `stop`. It logs its errors itself.
            let _ = task_server.await;
        }
        served
    };
    run_and_close(&services, Box::pin(served)).await
}

async fn bind_listener(address: &str) -> Result<(TcpListener, SocketAddr), CliError> {
    let cannot_listen = |source| CliError::Listen { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
    let bound = listener.local_addr().map_err(cannot_listen)?;
    Ok((listener, bound))
}

async fn serve_until_signal(
    services: Arc<Services>,
    arguments: ServeArguments,
    config: &Config,
    listener: TcpListener,
    base_url: String,
) -> Result<(), CliError> {
    services.verify_catalog().await?;
    if arguments.demo {
        services.demo.check_can_load_demo().await?;
        demo::load_demo(&services, &base_url).await?;
    }
    let mut signals = ShutdownSignals::listen()?;
    let background = config.server.background;
    if !background {
        tracing::info!("background work is disabled: no schedules, webhooks, sweeps, or scrubs (server.background)");
        print_stdout("background work is disabled: no schedules, webhooks, sweeps, or scrubs\n")?;
    }
    let roles = config.server.roles;
    if roles != NodeRoles::all() {
        print_stdout(&format!("roles: {roles}\n"))?;
    }
    print_stdout(&format!("listening on {base_url}\n"))?;
    if services.accounts.users(None, 1).await.is_ok_and(|users| users.is_empty()) {
        tracing::info!("there are no users yet; run `strata user add` to add one");
    }
    let node = services.nodes.local_name();
    tracing::info!(url = base_url, data = %config.data.directory.display(), background, %roles, node, "listening");

    let (begin_shutdown, shutdown) = oneshot::channel::<()>();
    let background = services.start_background();
    let mut serving = pin!(dashboard::serve(services, listener, shutdown));
    tokio::select! {
        outcome = &mut serving => return Ok(outcome?),
        signal = signals.next_signal() => tracing::info!(signal, drain_s = config.server.drain_s, "stopping"),
    }
    // `serving` contains the receiver of the shutdown channel, so sending succeeds.
    let _ = begin_shutdown.send(());
    let [notice, limit] = [config.server.drain_notice_s, config.server.drain_s].map(Duration::from_secs);
    let background_work = async {
        // Refreshes can still start until the load balancer has had time to notice the shutdown.
        tokio::time::sleep(notice).await;
        background.finish(limit).await;
    };
    let ended = async { tokio::join!(&mut serving, background_work).0 };
    tokio::select! {
        outcome = ended => {
            outcome?;
            tracing::info!("stopped");
        }
        signal = signals.next_signal() => tracing::warn!(signal, "stopped before all requests finished"),
    }
    Ok(())
}

/// Returns an address to which a client on this machine can connect.
fn reachable_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_address_accepts_connections() {
        for (bound, printed) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ] {
            assert_eq!(reachable_address(bound.parse().expect("failed to parse address")).to_string(), printed);
        }
    }
}
