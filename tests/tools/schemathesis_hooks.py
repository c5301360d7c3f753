# Values of the formats that /openapi.json names, which JSON Schema has no word for. The names of hosts are in
# `.invalid`, which nothing resolves: the service asks nobody.
import schemathesis
from hypothesis import strategies

HOSTS = ["https://data.example.invalid/countries.json", "http://data.example.invalid:8080/a%20b?c=d"]
SCHEDULES = ["0 2 * * *", "*/15 * * * *", "0 0 1 JAN,JUL MON", "5 4 L * *"]
PATHS = ["data", "data.items", r"a\.b.c\,d"]
NAMES = strategies.text(strategies.characters(categories=["L", "Nd", "P", "Zs"]), max_size=60).map(
    lambda text: text + "a"
)

schemathesis.openapi.format("uri", strategies.sampled_from(HOSTS))
schemathesis.openapi.format("cron", strategies.sampled_from(SCHEDULES))
schemathesis.openapi.format("field-path", strategies.sampled_from(PATHS))
schemathesis.openapi.format("dataset-name", NAMES)


@schemathesis.hook
def before_call(context, case, **kwargs):
    """A seed is one of a sample: a schema of single parameters cannot say that."""
    if isinstance(case.query, dict) and "seed" in case.query and "sample" not in case.query:
        case.query["sample"] = 1


@schemathesis.hook
def map_body(context, body):
    """No path is always and never to be indexed, the keys of types are paths, and a JSON Schema is one: a schema cannot
    say that."""
    checks = body.get("checks") if isinstance(body, dict) else None
    if isinstance(checks, dict) and isinstance(checks.get("types"), dict):
        checks["types"] = {f"path{number}": names for number, names in enumerate(checks["types"].values())}
    if isinstance(checks, dict) and isinstance(checks.get("json_schema"), dict):
        checks["json_schema"] = {"type": "object"}
    index = body.get("index") if isinstance(body, dict) else None
    if isinstance(index, dict) and isinstance(index.get("always"), list) and isinstance(index.get("never"), list):
        index["never"] = [path for path in index["never"] if path not in index["always"]]
    return body
