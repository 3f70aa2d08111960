"""Load on an HTTPS server from one process: kept-alive connections, closed or open loop. Run as a program of its own.

Closed loop: every connection sends its next request when the last is answered. Open loop: requests are due at fixed
times, whether or not the last are answered, and a latency counts from when a request was due (no coordinated
omission). Prints JSON: the requests per second and the latencies in seconds.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path

CONNECTIONS = 50


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"answered {head.splitlines()[0]!r}")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))


async def _closed(connections: list, requests: list[bytes], seconds: float) -> dict:
    until = time.monotonic() + seconds
    latencies: list[float] = []

    async def one(number: int) -> None:
        reader, writer = connections[number]
        for turn in range(number, sys.maxsize):
            started = time.monotonic()
            if started >= until:
                return
            await _exchange(reader, writer, requests[turn % len(requests)])
            latencies.append(time.monotonic() - started)

    await asyncio.gather(*map(one, range(len(connections))))
    return {"rate": len(latencies) / seconds, "latencies": latencies}


async def _open(connections: list, requests: list[bytes], seconds: float, rate: float) -> dict:
    idle: asyncio.Queue = asyncio.Queue()
    for connection in connections:
        idle.put_nowait(connection)
    latencies: list[float] = []

    async def one(due: float, request: bytes) -> None:
        connection = await idle.get()
        await _exchange(*connection, request)
        latencies.append(time.monotonic() - due)
        idle.put_nowait(connection)

    began = time.monotonic()
    tasks = []
    for number in range(int(seconds * rate)):
        due = began + number / rate
        await asyncio.sleep(due - time.monotonic())
        tasks.append(asyncio.create_task(one(due, requests[number % len(requests)])))
    await asyncio.gather(*tasks)
    return {"rate": len(latencies) / (time.monotonic() - began), "latencies": latencies}


async def _main(port: int, bodies: list[str], seconds: float, rate: float) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # this machine's own server, measured only
    requests = [
        f"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
        for body in map(str.encode, bodies)
    ]

    async def connect(request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        await _exchange(*connection, request)  # at once, as a client does that has connected in order to ask
        return connection

    connections = [await connect(requests[number % len(requests)]) for number in range(CONNECTIONS)]
    await _closed(connections, requests, 2.0)  # warm
    result = await (_open(connections, requests, seconds, rate) if rate else _closed(connections, requests, seconds))
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(
        _main(int(sys.argv[1]), Path(sys.argv[2]).read_text().splitlines(), float(sys.argv[3]), float(sys.argv[4]))
    )
