"""Checks that a document is OpenAPI 3.1 and means what it says.

    openapi.py DOCUMENT

1. The document is valid by the specification's own JSON Schema; every schema in it is valid JSON Schema 2020-12.
2. Every reference leads somewhere inside the document, and every component is referred to.
3. Operations have different ids, a tag that is declared, a summary, a description, and an example of their success in
   each content type but binary ones; the parameters in a path are those that are described.
4. Every default and every example is valid by the schema next to it.
5. Members that are times have the format `date-time`.

Prints what was checked, in numbers; the first error ends it.
"""

import json
import re
import sys
from pathlib import Path

from jsonschema import Draft202012Validator
from schemathesis.specs.openapi.definitions import OPENAPI_31

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


def main(path):
    document = json.loads(Path(path).read_text("utf-8"))
    if not re.fullmatch(r"3\.1\.\d+", document["openapi"]):
        sys.exit(f"the version is {document['openapi']}")
    valid("the document", document, OPENAPI_31)

    references = {node["$ref"] for _, node in objects(document) if "$ref" in node}
    for reference in references:
        resolve(document, {"$ref": reference})
    schemes = {name for _, node in objects(document) for need in node.get("security", []) for name in need}
    for kind, components in document["components"].items():
        for name in components:
            if f"#/components/{kind}/{name}" not in references and not (kind == "securitySchemes" and name in schemes):
                sys.exit(f"nothing refers to {name} of {kind}")

    schemas, examples = 0, 0
    for where, node in objects(document):
        if "schema" in node and "example" not in where.split("/"):
            schema = inlined(document, node["schema"])
            schemas += 1
            valid(where, schema, Draft202012Validator.META_SCHEMA)
            shown = [value for key, value in node.items() if key == "example"]
            shown += schema.get("examples", [])
            shown += [schema[key] for key in ("default",) if key in schema]
            for example in shown:
                examples += 1
                valid(f"an example in {where}", example, schema)

    for where, node in objects(document):
        for name, member in node.get("properties", {}).items() if isinstance(node.get("properties"), dict) else ():
            if name.endswith("_at") and member.get("format") != "date-time":
                sys.exit(f"{name} in {where} has not the format date-time")

    ids, tags = set(), {tag["name"] for tag in document["tags"]}
    for path, item in document["paths"].items():
        for method in METHODS:
            if operation := item.get(method):
                check_operation(document, path, operation, tags)
                if operation["operationId"] in ids:
                    sys.exit(f"two operations are called {operation['operationId']}")
                ids.add(operation["operationId"])
    print(f"{len(ids)} operations, {len(references)} references, {schemas} schemas, {examples} examples")


def check_operation(document, path, operation, tags):
    if not set(operation["tags"]) <= tags:
        sys.exit(f"{path} has a tag that is not declared: {operation['tags']}")
    for member in ("summary", "description"):
        if not operation.get(member):
            sys.exit(f"{path} has no {member}")
    success = resolve(document, operation["responses"]["200"])
    for media, content in success["content"].items():
        is_binary = media.endswith(("octet-stream", "parquet", "arrow.stream"))
        if not is_binary and "example" not in content:
            sys.exit(f"{path} has no example of {media}")
    parameters = [resolve(document, parameter) for parameter in operation.get("parameters", [])]
    names = [(parameter["in"], parameter["name"]) for parameter in parameters]
    if len(set(names)) != len(names):
        sys.exit(f"{path} describes a parameter twice")
    if {name for place, name in names if place == "path"} != set(re.findall(r"\{(\w+)\}", path)):
        sys.exit(f"{path} does not describe the parameters in it")


def objects(node, where="#"):
    """Every object of the document, with where it is."""
    if isinstance(node, dict):
        yield where, node
    if isinstance(node, (dict, list)):
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
            yield from objects(inner, f"{where}/{key}")


def resolve(document, node):
    if "$ref" not in node:
        return node
    target = document
    for key in node["$ref"].removeprefix("#/").split("/"):
        if key not in target:
            sys.exit(f"{node['$ref']} leads nowhere")
        target = target[key]
    return resolve(document, target)


def inlined(document, node):
    """A schema without references. No schema here refers to itself."""
    if isinstance(node, dict):
        return {key: inlined(document, inner) for key, inner in resolve(document, node).items()}
    return [inlined(document, inner) for inner in node] if isinstance(node, list) else node


def valid(what, value, schema):
    for error in Draft202012Validator(schema).iter_errors(value):
        sys.exit(f"{what} is not valid, at {error.json_path}: {error.message}")


if __name__ == "__main__":
    main(sys.argv[1])
