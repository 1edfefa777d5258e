"""A cluster on loopback: nodes of one core each, with files as disks."""
import http.client
import json
import os
import subprocess
import time

import peers

URSA = os.environ.get("URSA", os.path.join(peers.ROOT, "target/release/ursa"))
#: For one call of the command line.
CALL_SECONDS = 120
#: How far back `{week_ago}` goes in what is asked for, in seconds.
WEEK = 7 * 86400


class Node(peers.Peer):
    """One node of the cluster: four ports in a row."""

    name = "ursa"
    poll = None
    pool = "1G"
    #: What `ursa serve --cores` is given.
    own_cores = "1"
    #: What `ursa serve --read-confirm` is given.
    read_confirm = None

    def processors(self):
        """A node is pinned to what `--pin` names: a processor, or a range."""
        return self.cpu

    def start(self):
        api = self.port + 1
        serve = [URSA, "serve", "--data-dir", self.files, "--cores", self.own_cores, "--pool-size", self.pool, "--ram-max", "2G"]
        serve += ["--iscsi-listen", f"127.0.0.1:{self.port}", "--api-listen", f"127.0.0.1:{api}"]
        if self.poll is not None:
            serve += ["--poll-us", self.poll]
        if self.read_confirm is not None:
            serve += ["--read-confirm", self.read_confirm]
        self.launch(serve)
        self.wait_for_port(self.port)
        self.wait_for_port(api)

    def ursa(self, *arguments):
        command = [URSA, "--api", f"http://127.0.0.1:{self.port + 1}", *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS)
        if answer.returncode:
            raise RuntimeError(f"{' '.join(command)}: {answer.stderr}\n{self.log()}")
        return answer.stdout


class Api:
    """One connection to a node's API."""

    def __init__(self, node, token=None):
        self.address = ("127.0.0.1", node.port + 1)
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.connection = None

    def ask(self, method, path, body=None):
        """Status, body and seconds."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(*self.address, timeout=150)
        headers = dict(self.headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        # Braces are in nothing else that is asked for.
        now = int(time.time())
        path = path.format(week_ago=now - WEEK, now=now)
        began = time.perf_counter()
        try:
            self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = self.connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise
        return answer.status, data, time.perf_counter() - began

    def checked(self, method, path, body=None):
        status, data, seconds = self.ask(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {data.decode()}")
        return data, seconds


def join(nodes):
    """Makes a cluster of the nodes."""
    first = nodes[0]
    first.ursa("node", "init", "--listen", f"127.0.0.1:{first.port + 2}")
    for node in nodes[1:]:
        token = first.ursa("node", "token").split()[0]
        node.ursa("node", "join", token, "--listen", f"127.0.0.1:{node.port + 2}")


def wait_for_token(node, token):
    """Other nodes know of it in a moment."""
    end = time.time() + 30
    while Api(node, token).ask("GET", "/v1/whoami")[0] != 200:
        if time.time() > end:
            raise RuntimeError(f"the node on port {node.port} rejects the token")
        time.sleep(0.1)


def create(node, name, on, *options):
    """Makes a volume with copies on these nodes, by number, and says where it is found through the node."""
    numbers = ",".join(map(str, on))
    made = node.ursa("volume", "create", name, "--on", numbers, "-o", "json", *options)
    return f"iscsi://127.0.0.1:{node.port}/{'/'.join(map(str, peers.find_target(json.loads(made))))}"


def fill(target, timeout=120):
    """Writes the whole volume once, so that no measurement pays for the first touch of its memory or its extents."""
    command = [URSA, "bench", "run", target, "-b1M", "-o1", "-d0.1", "-W0", "--precondition", "random", "--overwrite"]
    checked(command, timeout)


def checked(command, timeout):
    """What a command prints, which must succeed."""
    answer = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if answer.returncode:
        raise RuntimeError(f"{' '.join(command)}: {answer.stderr}")
    return answer.stdout
