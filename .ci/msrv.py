"""Reads `cargo metadata` and fails when a dependency of a published crate needs a newer Rust than
the workspace states. Dependencies for development alone may."""
import json
import sys


def version(text):
    return tuple(int(part) for part in (text.split(".") + ["0", "0"])[:3])


meta = json.load(sys.stdin)
packages = {p["id"]: p for p in meta["packages"]}
nodes = {n["id"]: n for n in meta["resolve"]["nodes"]}
published = [i for i in meta["workspace_members"] if packages[i]["publish"] is None]
stated = {packages[i]["rust_version"] for i in published}
if len(stated) != 1 or None in stated:
    sys.exit(f"the published crates do not state one minimum Rust version: {stated}")
(stated,) = stated

todo, seen = list(published), set()
while todo:
    node = todo.pop()
    if node in seen:
        continue
    seen.add(node)
    for dep in nodes[node]["deps"]:
        if any(kind["kind"] != "dev" for kind in dep["dep_kinds"]):
            todo.append(dep["pkg"])

newer = [
    f'{packages[i]["name"]} {packages[i]["version"]} needs {packages[i]["rust_version"]}'
    for i in seen
    if packages[i]["rust_version"] and version(packages[i]["rust_version"]) > version(stated)
]
if newer:
    sys.exit(f"newer than the stated {stated}:\n" + "\n".join(sorted(newer)))
print(f"{len(seen)} crates, none needs more than Rust {stated}")
