// What some pages are about and the demo lacks: a dataset with versions that differ, an alternate, a webhook and its
// deliveries; one that is fetched by schedule, with a failure in its history; one whose refresh runs.

import { listen, operations, tokenOf, until } from "./support.mjs";

const CITIES = ["Köln", "Paris", "Porto", "Gdańsk", "Αθήνα"];
const DAY = "2026-03-0";

function station(n, day) {
  const docks = 12 + ((n * 7) % 17);
  return {
    station: `${CITIES[n % CITIES.length]} ${1 + Math.floor(n / CITIES.length)}`,
    city: CITIES[n % CITIES.length],
    docks,
    bikes: (n * 5 + day * (n % 3)) % docks,
    at: { lat: 48 + (n % 13) / 10, lon: 6 + (n % 29) / 10 },
    open: n % 11 !== day,
    services: n % 4 === 0 ? ["pump", "charging"] : [],
    seen: `${DAY}${day}T06:00:00Z`,
  };
}

const range = (from, to, make) => Array.from({ length: to - from }, (_, n) => make(from + n));

/** The stations of a day: some have come, some have gone, and some are closed. */
const stations = (day) => range(2 * (day - 1), 56 + 3 * day, (n) => station(n, n % 3 === 0 ? day : 1));

export class Prepared {
  /** Makes them for the owner of the demo. */
  static async start(baseUrl, email, password) {
    const prepared = new Prepared();
    prepared.receiver = await listen((exchange) => prepared.answer(exchange));
    prepared.call = operations(baseUrl, await tokenOf(baseUrl, email, password, "bicycle counts"));
    await prepared.push(baseUrl);
    await prepared.fetch();
    await prepared.run();
    return prepared;
  }

  /** Where the pages of each dataset are. */
  places = {};
  broken = false;
  posts = 0;

  /** A path with the places in it: `{pushed}`, `{fetched}`, `{running}`. */
  path(text) {
    return text.replace(/^\{(\w+)\}/, (_, name) => this.places[name]);
  }

  answer({ request, response }) {
    const { pathname } = new URL(request.url, "http://localhost");
    if (pathname === "/hook") {
      this.posts += 1;
      response.writeHead(this.posts === 1 ? 503 : 204).end();
    } else if (pathname === "/tides.jsonl") {
      // It comes until the end.
      response.writeHead(200, { "Content-Type": "application/jsonl" });
      const timer = setInterval(() => response.write('{"tide":1}\n'.repeat(50)), 200);
      response.on("close", () => clearInterval(timer));
    } else {
      response.writeHead(200, { "Content-Type": "application/json" });
      response.end(this.broken ? '[{"currency":"CHF"},\n {"currency":' : '[{"currency":"CHF","rate":0.95}]');
    }
  }

  async create(settings) {
    const { dataset } = await this.call("POST", "/dataset/create", settings);
    return { id: dataset.dataset_id, place: `/ui/${dataset.dataset_id}/${dataset.name_slug}` };
  }

  async push(baseUrl) {
    const settings = {
      name: "Bicycle stations",
      source: "push",
      private: false,
      description: "Where bicycles stand, and how many, each morning.",
      licence: "CC0",
    };
    const { id, place } = await this.create(settings);
    this.places.pushed = place;
    const url = `${this.receiver.base}/hook`;
    await this.call("POST", "/webhook/register", { dataset_id: id, url, secret: "a secret of the test" });
    for (const day of [1, 2, 3]) {
      await this.call("POST", "/dataset/refresh", { dataset_id: id, entities: stations(day) });
      // The first one is that which the receiver refuses.
      await until(() => this.posts >= day);
    }
    const version = 3;
    const { etag } = await this.call("POST", "/agent/pull_for_edit", { dataset_id: id, version, limit: 0 });
    const edits = [
      { position: 1, set: { ...station(5, 1), bikes: 0, note: "closed for repairs" } },
      { position: 4, remove: true },
      { position: 6, insert: [{ ...station(90, 3), station: "Köln, Neumarkt" }] },
    ];
    await this.call("POST", "/dataset/alternate/edit", { dataset_id: id, version, etag, edits });
    const api = baseUrl + place.replace("/ui/", "/api/");
    for (let read = 0; read < 12; read += 1) {
      const answer = await fetch(`${api}/active/?limit=${1 + (read % 3)}`);
      const headers = { "If-None-Match": answer.headers.get("etag") };
      if (read % 2) await fetch(answer.url, { headers });
    }
  }

  async fetch() {
    const source = `${this.receiver.base}/rates.json?key=secret`;
    const { id, place } = await this.create({ name: "Exchange rates", source, schedule: "0 2 * * *" });
    this.places.fetched = place;
    await this.call("POST", "/dataset/refresh", { dataset_id: id });
    this.broken = true;
    // It fails, and the history says so.
    await this.call("POST", "/dataset/refresh", { dataset_id: id }).catch(() => {});
    this.broken = false;
  }

  async run() {
    const { id, place } = await this.create({ name: "Tides", source: `${this.receiver.base}/tides.jsonl` });
    this.places.running = place;
    // It runs until the receiver is gone.
    this.running = this.call("POST", "/dataset/refresh", { dataset_id: id }).catch(() => {});
    const attempts = `/dataset/attempts?dataset_id=${id}`;
    await until(async () => (await this.call("GET", attempts)).attempts?.length > 0);
  }

  async end() {
    this.receiver.close();
    await this.running;
  }
}
