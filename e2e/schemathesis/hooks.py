"""What schemathesis must not do with the node it asks, because it would end the run or reach beyond it."""
import os

import schemathesis

#: Whatever path the fuzzer thinks of, the node writes in here.
DISKS = os.environ["URSA_FUZZ_DISKS"]
#: The tokens that runs prove themselves with: they must outlive what is deleted.
OWN_TOKENS = os.environ["URSA_FUZZ_TOKENS"].split(",")
#: The largest file that the node is asked to make, and may reserve.
FILE_BYTES_MAX = 64 << 20


@schemathesis.hook
def before_call(context, case, kwargs):
    case.body = tamed(case.body)
    path = case.path_parameters
    if isinstance(path, dict) and case.method == "DELETE" and path.get("id") in OWN_TOKENS:
        path["id"] = "0" * 16
    # `use_after_free` takes every DELETE of a scenario for one that deletes. What is asked for by itself is
    # asked for as a dry run, too.
    if case.method == "DELETE" and case.meta and case.meta.phase.name == "stateful" and isinstance(case.query, dict):
        case.query.pop("dry_run", None)


def tamed(value):
    """The same with paths of files inside of the folder, and sizes of files that fit there."""
    if isinstance(value, list):
        return [tamed(one) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {name: tamed(one) for name, one in value.items()}
    if isinstance(changed.get("path"), str):
        changed["path"] = inside(changed["path"])
        if isinstance(changed.get("size"), (int, float)) and changed["size"] > FILE_BYTES_MAX:
            changed["size"] = FILE_BYTES_MAX
    if isinstance(changed.get("disks"), list):
        changed["disks"] = [inside(one) if isinstance(one, str) else one for one in changed["disks"]]
    if isinstance(changed.get("paths"), list):
        changed["paths"] = [inside(one) if isinstance(one, str) else one for one in changed["paths"]]
    return changed


def inside(path):
    """A path in the folder; what is no absolute path stays none, so that it is refused."""
    name = path.encode("utf-8", "replace").hex()[:64]
    return os.path.join(DISKS, name) if name else ""


@schemathesis.check
def unavailable_says_when(context, response, case):
    """Who is to come again is told when."""
    if response.status_code == 503:
        assert "retry-after" in response.headers, "503 without Retry-After"
