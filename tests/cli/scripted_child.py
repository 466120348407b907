"""A server that answers each method as its argument says: ``{"tools/list": {"result": {"tools": []}}}``, and no other."""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    answers = json.loads(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") in answers and "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answers[message["method"]]}), flush=True)
