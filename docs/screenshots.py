"""Take the screenshots of the playground in `docs/images`: light, dark and on a phone.

`python docs/screenshots.py` serves the bundled models on a free port and drives the system's Chromium. `light.png`,
`dark.png` and `phone.png` show one view each; `translate.png` and `classify.png` the others.
"""

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent / "images"
SCORES = "#score?text=we+had+a+very+good+time.%0Awe+had+a+very+green+time.%0Ahe+drinks+every+coffee+morning."
SCREENSHOTS = {
    "light": ("#next-word?context=would+you+like+a+cup+of", 1100, "light"),
    "dark": (SCORES, 1100, "dark"),
    "phone": ("#next-word?context=would+you+like+a+cup+of&words=6", 360, "light"),
    "translate": ("#translate?text=Guten+Morgen!+Der+Zug+fährt+um+14:35+Uhr+von+Gleis+7.", 1100, "light"),
    "classify": ("#classify?text=book+a+table+for+two+tomorrow", 1100, "dark"),
}
"""Address of the view, width in pixels and colour scheme of each image."""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@contextmanager
def served() -> Iterator[str]:
    """Serve the bundled models and return the address of the playground."""
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                    yield found[1]
                    return
        finally:
            server.terminate()
            server.communicate()


def take(browser: Browser, address: str, name: str, fragment: str, width: int, scheme: str) -> None:
    """Take one screenshot, at two device pixels a pixel, once the answer is shown."""
    page = browser.new_page(
        viewport={"width": width, "height": 700},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=2,
    )
    page.goto(f"{address}/{fragment}")
    page.wait_for_selector(".results[aria-busy=false] .timing", timeout=600_000)
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    picture.convert("RGB").quantize(256).save(IMAGES / f"{name}.png", optimize=True)  # a third of the size
    page.close()


def main() -> None:
    """Take all screenshots."""
    IMAGES.mkdir(exist_ok=True)
    with served() as address, sync_playwright() as library:
        browser = library.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, options in SCREENSHOTS.items():
            take(browser, address, name, *options)
        browser.close()


if __name__ == "__main__":
    main()
