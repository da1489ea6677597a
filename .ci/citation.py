"""CITATION.cff holds to the Citation File Format's own schema, and cites the version in Cargo.toml.

The schema is the one that cffconvert carries. Exits with status 1 and says what is wrong.
"""

import importlib.metadata
import json
import sys
import tomllib

import jsonschema
import yaml

FAULTS = {
    "without a title": lambda citation: citation.pop("title"),
    "of another version of the format": lambda citation: citation.update({"cff-version": "9.9"}),
    "with authors that are no list": lambda citation: citation.update(authors="us"),
    "with a field of no meaning": lambda citation: citation.update(titel="x"),
}


def schema(version):
    name = f"cffconvert/schemas/{version}/schema.json"
    files = importlib.metadata.files("cffconvert") or []
    found = [file for file in files if file.as_posix() == name]
    if not found:
        sys.exit(f"cffconvert has no schema of version {version}")
    return json.loads(found[0].read_text(encoding="utf-8"))


def read():
    with open("CITATION.cff", encoding="utf-8") as file:
        return yaml.safe_load(file)


def main():
    citation = read()
    validator = jsonschema.Draft7Validator(schema(citation["cff-version"]))
    for error in validator.iter_errors(citation):
        sys.exit(f"CITATION.cff: {'.'.join(map(str, error.path))}: {error.message}")
    for what, spoil in FAULTS.items():
        spoilt = read()
        spoil(spoilt)
        if validator.is_valid(spoilt):
            sys.exit(f"the schema accepts a citation {what}: nothing was checked")
    with open("Cargo.toml", "rb") as file:
        version = tomllib.load(file)["workspace"]["package"]["version"]
    if citation["version"] != version:
        sys.exit(f"CITATION.cff cites version {citation['version']}: expected {version}")


main()
