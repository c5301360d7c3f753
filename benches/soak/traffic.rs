//! The mix of requests that the load test sends.

use std::io;
use std::sync::Arc;

use crate::server::SoakServer;
use crate::support::client::AsyncClient;

/// A request of the mix.
#[derive(Clone, Debug)]
pub struct TrafficRequest {
    /// The kind under which the results are counted.
    pub kind: &'static str,
    target: String,
    /// The relative frequency of the request.
    weight: u64,
    how: How,
    /// The length of the body of the first response.
    bytes: u64,
    etag: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The response is read to its end, and its length is the same as the first time.
    Whole,
    /// Like `Whole`, but the bytes of the body differ each time.
    Random,
    /// The request sends the `ETag` of the first response.
    Conditional,
    /// The client disconnects in the middle of the body.
    Cancelled,
}

#[derive(Debug)]
pub enum RequestOutcome {
    /// The response was as expected.
    Answered { bytes: u64 },
    /// The client disconnected, as planned.
    Cancelled,
    /// Any other result, with a description.
    Failed(String),
}

/// The mix, with the first response to each request.
#[derive(Clone)]
pub struct Mix {
    requests: Arc<Vec<TrafficRequest>>,
    total: u64,
}

impl Mix {
    /// Makes every request once and stores the response. Panics if a request fails.
    pub async fn learn(server: &SoakServer) -> Mix {
        let mut requests = requests(server);
        let mut client = AsyncClient::connect(server.address).await;
        for request in &mut requests {
            let head = client.ask(&request.target, None).await.expect("failed to get a response");
            assert_eq!(head.status, 200, "{}", request.target);
            request.bytes = client.body(&head).await.expect("failed to read the response");
            request.etag = head.etag;
        }
        if requests.iter().any(|request| request.how == How::Conditional && request.etag.is_none()) {
            println!("no 304s: the server sends no ETag");
            requests.retain(|request| request.how != How::Conditional);
        }
        let total = requests.iter().map(|request| request.weight).sum();
        Mix { requests: requests.into(), total }
    }

    /// Returns the mix without requests that take long.
    pub fn ordinary(&self) -> Mix {
        let ordinary = |request: &&TrafficRequest| request.how != How::Cancelled && !request.kind.starts_with("export");
        let requests: Vec<TrafficRequest> = self.requests.iter().filter(ordinary).cloned().collect();
        let total = requests.iter().map(|request| request.weight).sum();
        Mix { requests: requests.into(), total }
    }

    /// Chooses the next request.
    pub fn choose(&self, choice: &mut Choice) -> &TrafficRequest {
        let mut left = choice.below(self.total);
        for request in self.requests.iter() {
            if left < request.weight {
                return request;
            }
            left -= request.weight;
        }
        &self.requests[0]
    }

    /// Makes a request and checks the response.
    pub async fn make(
        &self,
        client: &mut AsyncClient,
        request: &TrafficRequest,
        choice: &mut Choice,
    ) -> RequestOutcome {
        match make(client, request, choice).await {
            Ok(outcome) => outcome,
            Err(error) => RequestOutcome::Failed(format!("{}: {error}", request.target)),
        }
    }
}

async fn make(client: &mut AsyncClient, request: &TrafficRequest, choice: &mut Choice) -> io::Result<RequestOutcome> {
    let etag = request.etag.as_deref().filter(|_| request.how == How::Conditional);
    let head = client.ask(&request.target, etag).await?;
    let expected = if request.how == How::Conditional { 304 } else { 200 };
    if head.status != expected {
        return Ok(RequestOutcome::Failed(format!("{}: status {}", request.target, head.status)));
    }
    if request.how == How::Cancelled {
        let mut left = choice.below(request.bytes);
        while left > 0 {
            match client.some(64 << 10).await? {
                0 => return Ok(RequestOutcome::Failed(format!("{}: it ended by itself", request.target))),
                read => left = left.saturating_sub(read as u64),
            }
        }
        return Ok(RequestOutcome::Cancelled);
    }
    let bytes = client.body(&head).await?;
    if request.how == How::Whole && bytes != request.bytes {
        return Ok(RequestOutcome::Failed(format!("{}: {bytes} bytes, not {}", request.target, request.bytes)));
    }
    Ok(RequestOutcome::Answered { bytes })
}

fn requests(server: &SoakServer) -> Vec<TrafficRequest> {
    let catalogue = &server.catalogue;
    let measurements = &server.measurements;
    let request = |kind, weight, path: &str, query: &str, how| TrafficRequest {
        kind,
        target: format!("{path}?{query}"),
        weight,
        how,
        bytes: 0,
        etag: None,
    };
    let mut requests = vec![
        request("page", 120, catalogue, "limit=100", How::Whole),
        request("page", 60, measurements, "limit=100&pretty=false", How::Whole),
        request("page", 20, measurements, "sample=20&format=jsonl", How::Random),
        request("filter", 40, catalogue, "filter=colour:teal&limit=20", How::Whole),
        request("filter", 60, measurements, "filter=station:station+17&limit=50", How::Whole),
        request("filter", 30, measurements, "filter_contains=station:38&limit=50&offset=20", How::Whole),
        request("filter", 10, measurements, "filter=value:17.5&count=true", How::Whole),
        request("keywords", 30, catalogue, "keywords=lamp&limit=20", How::Whole),
        request("keywords", 10, catalogue, "keywords=oak,tent&keywords_mode=and&count=true", How::Whole),
        request("sort", 20, measurements, "sort=value:desc&limit=20", How::Whole),
        request("dedup", 5, measurements, "dedup=true&dedup_key=station&limit=20&keep_field=station", How::Whole),
        request("count", 60, catalogue, "count=true", How::Whole),
        request("304", 100, catalogue, "limit=100", How::Conditional),
        request("304", 20, measurements, "format=jsonl", How::Conditional),
        request("cancelled", 6, catalogue, "format=json", How::Cancelled),
        request("cancelled", 3, measurements, "format=csv", How::Cancelled),
        request("export json", 2, catalogue, "format=json&pretty=false", How::Whole),
        request("export jsonl", 4, measurements, "format=jsonl", How::Whole),
        request("export csv", 3, measurements, "format=csv", How::Whole),
        request("export xml", 2, measurements, "format=xml", How::Whole),
        request("export parquet", 2, measurements, "format=parquet", How::Whole),
        request("export csv", 2, catalogue, "format=csv&limit=2000&keep_field=id,name", How::Whole),
    ];
    for number in 1..40 {
        let query = format!("offset={}&limit=25", number * 97);
        requests.push(request("page", 3, catalogue, &query, How::Whole));
    }
    requests
}

/// Pseudo-random choices that are the same on every run (SplitMix64).
pub struct Choice(u64);

impl Choice {
    /// Returns the choices for one connection.
    pub fn new(connection: u64) -> Choice {
        Choice(connection.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)).checked_rem(end).unwrap_or_default()
    }
}
