"""Send classifications over several connections, each once, and print as JSON how they were answered.

    python load.py URL REQUESTS CONNECTIONS

The request of number n has the text n of a list whose classes the first requests of the run say. `-` as REQUESTS sends
until standard input ends, with a pause before each, so that the load leaves processor time to the service.
"""

import http.client
import itertools
import json
import sys
import threading
import time
import urllib.parse
from collections import Counter

PAUSE = 0.2  # seconds
TEXTS = (
    """
book a table for two tomorrow|what is the weather like in rome|play some music|how do you say hello in french
transfer 100 dollars to my savings account|what is my balance|set an alarm for seven|call mom
how many calories are in an apple|what time is it in tokyo|flip a coin|tell me a joke
""".strip()
    .replace("\n", "|")
    .split("|")
)


def ask(connection, path, number):
    body = json.dumps({"text": TEXTS[number % len(TEXTS)], "top_k": 1})
    connection.request("POST", path, body, {"Content-Type": "application/json", "X-Request-ID": f"load-{number}"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        return response.status, answer.decode(errors="replace")[:200]
    return 200, json.loads(answer)["results"][0]["labels"][0]["label"]


def main():
    url, requests, connections = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    first = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    expected = [ask(first, url.path, number)[1] for number in range(len(TEXTS))]
    first.close()
    print(json.dumps({"expected": expected}), flush=True)
    over = threading.Event()
    if requests == "-":
        threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    numbers, lock = iter(itertools.count() if requests == "-" else range(int(requests))), threading.Lock()
    statuses, wrong, lost, answered = Counter(), [], [], Counter()

    def client():
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        while not over.is_set():
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            if requests == "-":
                time.sleep(PAUSE)
            try:
                status, label = ask(connection, url.path, number)
            except (OSError, http.client.HTTPException) as error:
                lost.append(f"{number}: {error!r}")
                connection.close()
                continue
            statuses[status] += 1
            answered[number] += 1
            if status != 200 or label != expected[number % len(TEXTS)]:
                wrong.append(f"{number}: {status} {label}")

    threads = [threading.Thread(target=client) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    doubled = sum(count > 1 for count in answered.values())
    result = {"statuses": statuses, "wrong": wrong[:20], "lost": lost[:20], "doubled": doubled}
    print(json.dumps({**result, "lost_number": len(lost), "wrong_number": len(wrong), "answered": len(answered)}))


if __name__ == "__main__":
    main()
