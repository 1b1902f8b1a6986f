"""CUDA kernels of onnxruntime-gpu, and where its session places the nodes of a graph, without a GPU.

    pip download --no-deps onnxruntime-gpu==1.31.1
    python -m benchmarks.cuda_kernels table onnxruntime_gpu-1.31.1-*.whl
    python -m benchmarks.cuda_kernels place onnxruntime_gpu-1.31.1-*.whl models/bundled/*/1

The first command writes `training/bundling/cuda_kernels.json`, the second prints the placement of bundles.

The library registers its kernels and assigns nodes to devices before it computes anything. It is loaded here with a
CUDA runtime that has no device (`no_device.c`, compiled with gcc), so that both answers are the library's own.
Computations are not possible.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Any

import tyro

from models.reading import read_manifest
from training.bundling.cuda_kernels import TABLE

__all__ = ["main", "merged"]

_Types = dict[str, list[str]]
"""The types that a kernel accepts for each type variable of its operator."""

_SOURCE = Path(__file__).with_name("no_device.c")
_CAPI = Path("onnxruntime", "capi")
_STUBBED = re.compile(r"lib(cu|nv)")
"""Libraries of NVIDIA, which are replaced."""

_KERNELS = """
import json
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def
kernels = [kernel for kernel in get_all_opkernel_def() if kernel.provider == "CUDAExecutionProvider"]
print(json.dumps([[k.domain, k.op_name, *k.version_range, k.type_constraints] for k in kernels]))
"""

_PLACES = """
import json, sys
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
options.add_session_config_entry("session.disable_quant_qdq", "1")
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CUDAExecutionProvider"])
assert session.get_providers()[0] == "CUDAExecutionProvider"
parts = session.get_provider_graph_assignment_info()
print(json.dumps([[part.ep_name, node.op_type, node.name] for part in parts for node in part.get_nodes()]))
"""

app = tyro.extras.SubcommandApp()


class _Library:
    """An unpacked wheel of onnxruntime-gpu with a CUDA runtime that has no device."""

    def __init__(self, wheel: Path, directory: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)
        self._directory = directory
        self._stubs = directory / "no_device"
        self._stubs.mkdir()
        libraries = list((directory / _CAPI).glob("libonnxruntime_providers_*.so"))
        versioned = set().union(*map(_symbols, libraries))
        # cuDNN is loaded by name while the library runs: its functions are strings there.
        names = [found.decode() for library in libraries for found in _CUDNN.findall(library.read_bytes())]
        needed = {"libcudnn.so.9"}.union(*map(_needed, libraries))
        for library in sorted(needed):
            self._compile(library, {name for name, where in versioned if where in ("", library)} | set(names))

    def _compile(self, library: str, names: set[str]) -> None:
        source, script = self._stubs / "stub.c", self._stubs / "stub.map"
        written = _SOURCE.read_text(encoding="utf-8")
        missing = sorted(name for name in names if f" {name}(" not in written and f"*{name}(" not in written)
        source.write_text(written + "".join(f"int {name}(void) {{ return 0; }}\n" for name in missing))
        script.write_text(f"{library} {{ global: *; }};")
        linker = [f"-Wl,-soname,{library}", f"-Wl,--version-script={script}"]
        output = str(self._stubs / library)
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", output, str(source), *linker], check=True)

    def run(self, code: str, *arguments: str) -> Any:
        """Return the JSON that Python code prints with this onnxruntime."""
        paths = {"PYTHONPATH": str(self._directory), "LD_LIBRARY_PATH": str(self._stubs)}
        command = [sys.executable, "-c", code, *arguments]
        finished = subprocess.run(command, env=os.environ | paths, stdout=subprocess.PIPE, check=True)
        return json.loads(finished.stdout)


_CUDNN = re.compile(rb"(?<=\0)cudnn[A-Z]\w+(?=\0)")


def _needed(library: Path) -> set[str]:
    """Return the libraries of NVIDIA that a library needs."""
    listed = subprocess.run(["readelf", "--dynamic", library], capture_output=True, text=True, check=True).stdout
    return {name for name in re.findall(r"\(NEEDED\).*\[(\S+)\]", listed) if _STUBBED.match(name)}


def _symbols(library: Path) -> set[tuple[str, str]]:
    """Return the functions of NVIDIA's libraries that a library calls, with the library that their version names."""
    command = ["readelf", "--dyn-syms", "--wide", str(library)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    undefined = re.findall(r" UND ((?:cu|__cuda|create|get)\w+)(?:@(\S+))?", listed)
    return {(name, where) for name, where in undefined}


@app.command
def table(wheel: Annotated[Path, tyro.conf.Positional], output: Path = TABLE) -> None:
    """Write the table of CUDA kernels for operator versions from opset 18 on."""
    with tempfile.TemporaryDirectory() as directory:
        kernels = _Library(wheel, Path(directory)).run(_KERNELS)
    version = wheel.name.split("-")[1]
    found: dict[str, dict[tuple[int, int | None], list[_Types]]] = {}
    for domain, name, first, last, types in sorted(kernels, key=json.dumps):
        if last < _OLDEST.get(domain, 1):
            continue
        plain = {variable: sorted(set(map(_plain, kinds)) & _TYPES) for variable, kinds in types.items()}
        if all(plain.values()):
            versions = found.setdefault(f"{domain or 'ai.onnx'}:{name}", {})
            versions.setdefault((first, last if last < _NEWEST else None), []).append(plain)
    lines = [
        f'  "{name}": {json.dumps([[*versions, *merged(types)] for versions, types in kernels.items()])}'
        for name, kernels in found.items()
    ]
    content = f'{{"onnxruntime-gpu": "{version}", "operators": {{\n' + ",\n".join(lines) + "\n}}\n"
    output.write_text(content, encoding="utf-8")
    print(f"wrote {len(found)} operators to {output}")


def merged(kernels: list[_Types]) -> list[_Types]:
    """Return fewer kernels that accept the same types: two that differ in one type variable become one."""
    for one, other in itertools.combinations(kernels, 2):
        different = [variable for variable in one if one[variable] != other.get(variable)]
        if one.keys() == other.keys() and len(different) <= 1:
            union = {variable: sorted({*one[variable], *other[variable]}) for variable in different}
            return merged([kernel for kernel in kernels if kernel is not one and kernel is not other] + [one | union])
    return kernels


_NEWEST = 1 << 30
_TYPES = {"bool", "double", "float", "float16", "bfloat16", "uint8", *(f"int{bits}" for bits in (8, 16, 32, 64))}
"""Types that graphs of bundles may have."""

_OLDEST = {"": 18}
"""The oldest versions of operator sets that the table covers."""


def _plain(kind: str) -> str:
    return kind.removeprefix("tensor(").removesuffix(")")


@app.command
def place(
    wheel: Annotated[Path, tyro.conf.Positional], bundles: Annotated[tuple[Path, ...], tyro.conf.Positional]
) -> None:
    """Print how many nodes of each graph of bundles the session places on the GPU, and those that it does not."""
    with tempfile.TemporaryDirectory() as directory:
        library = _Library(wheel, Path(directory))
        for bundle in bundles:
            for name, graph in read_manifest(bundle).graphs.items():
                file = graph.devices.get("cuda", graph.onnx)
                nodes = library.run(_PLACES, str(bundle / str(file)))
                on_cpu = [f"{kind} {node}" for provider, kind, node in nodes if provider != "CUDAExecutionProvider"]
                print(f"{bundle}: {name} ({file}): {len(nodes) - len(on_cpu)} nodes on CUDA, {len(on_cpu)} on the CPU")
                print("".join(f"  {node}\n" for node in on_cpu), end="")


def main() -> None:
    """Entry point."""
    app.cli(prog="benchmarks.cuda_kernels", description=__doc__)


if __name__ == "__main__":
    main()
