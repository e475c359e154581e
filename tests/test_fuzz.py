"""Tests that each parser of external input reads its input, or refuses it by the error that the parser
declares, in bounded time and with a message of bounded length. The inputs are up to 1 MiB of random bytes, of
JSON, and of damaged real input.

`REKINDLE_FUZZ=2000 pytest tests/test_fuzz.py` tries 2,000 inputs for each parser, and other inputs each
time. Parsers with a file system around their input (checkpoints, /sys, the folders of pods) have
properties beside their own tests. So have the pickles of checkpoints, which a separate process reads.
"""

# ruff: noqa: E501  real inputs are kept whole

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detectors.catalog.load import CatalogError
from detectors.catalog.log_errors import packaged_log_errors
from detectors.catalog.signature_rows import packaged_signatures
from detectors.catalog.tables import user_rows
from detectors.folds.core import AgentCore
from detectors.folds.gpu_states import BusGpus
from detectors.rules import KernelRules, tables
from detectors.rules.fabric_rows import fabric_rows
from detectors.rules.facts import KernelLine, PodRef
from detectors.rules.gpu_health import GpuHealth
from detectors.service.settings import AgentSettings, SettingsError, load
from detectors.sources.cri import Joiner, parse_line
from detectors.sources.inventory import of_sample
from detectors.sources.kmsg import kernel_line_of, parse_record
from detectors.sources.pod_logs import parse_pod_folder
from detectors.sources.pod_resources_child import _given, _parsed
from detectors.sources.saved_log import read_saved
from detectors.text.log_template import BadTemplateError, parse
from detectors.text.pci import parse_pci
from detectors.text.sizes import parse_size
from detectors.wire.gpu_sample import GpuSample, Sample
from detectors.wire.step_report import ReportError, decode
from recover.checkpoints import annotation, marker_template, scan_result
from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.safetensors import check_safetensors
from recover.k8s.durations import parse_s
from recover.k8s.quantities import parse_count
from recover.model import decode as model
from recover.policy.settings import Settings
from recover.recipes import load as recipes
from recover.recipes import objects
from recover.recipes.convert import RecipeError
from recover.recipes.values import parse_version
from recover.runtime.cache import UNREADABLE
from recover.snapshot import manifests
from recover.workloads import WORKLOADS
from tests.detectors.sources import kubelet

EXAMPLES = int(os.environ.get("REKINDLE_FUZZ", "6"))
BYTES_MAX = 1 << 20
YAML_BYTES_MAX = BYTES_MAX if "REKINDLE_FUZZ" in os.environ else 4096
"""Length limit for YAML, because PyYAML reads only 50 kB a second. People give PyYAML only their own
files."""
SECONDS_MAX = 5.0
YAML_SECONDS_MAX = 120.0
MESSAGE_CHARS_MAX = 4096
STATUS_BYTES_MAX = 1 << 20
NOW = datetime(2026, 11, 26, 1, 0, tzinfo=UTC)
DEVICES = ("nvidia.com/gpu", "tencent.com/vcuda-core")
POD = PodRef("ml", "llm-0", "11111111-2222-3333-4444-555555555555", "trainer", 0)
KERNEL_RULES, GPU_HEALTH, PORT_ROWS = KernelRules(), GpuHealth(), fabric_rows()
LOG_ERRORS, SIGNATURES = packaged_log_errors(), packaged_signatures()
XID = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus."


class Parser(msgspec.Struct, frozen=True, kw_only=True):
    read: Callable[[bytes], object]
    refuses: tuple[type[BaseException], ...] = ()
    real: tuple[bytes, ...]
    """Inputs as they occur in practice. The test damages them."""
    bytes_max: int = BYTES_MAX
    seconds_max: float = SECONDS_MAX


def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


def agent() -> AgentCore:
    return AgentCore(
        AgentSettings(),
        boot_id="b",
        kernel_rules=KERNEL_RULES,
        gpu_health=GPU_HEALTH,
        port_rows=PORT_ROWS,
        log_errors=LOG_ERRORS,
        recipes=SIGNATURES,
    )


def kernel_record(data: bytes) -> None:
    core = agent()
    record = parse_record(data)
    if record is not None and (line := kernel_line_of(record, lambda usec: NOW)) is not None:
        core.kernel_line(line)
        assert len(msgspec.json.encode(core.status(NOW))) < STATUS_BYTES_MAX


def saved_log(data: bytes) -> None:
    core = agent()
    for line, _ in read_saved(data.decode("utf-8", "replace").splitlines()):
        core.kernel_line(line)
    assert len(msgspec.json.encode(core.status(NOW))) < STATUS_BYTES_MAX


def container_log(data: bytes) -> None:
    core, joiner = agent(), Joiner(AgentSettings().logs.line_bytes_max)
    for number, raw in enumerate(data.split(b"\n")):
        line = parse_line(raw[: AgentSettings().logs.line_bytes_max])
        whole = joiner.add(line) if line is not None else None
        if whole is not None and number < 200:
            core.log_line(POD, whole, NOW)
    core.pod_ended(POD, NOW)
    assert len(msgspec.json.encode(core.status(NOW))) < STATUS_BYTES_MAX


def nvml_answer(data: bytes) -> None:
    core = agent()
    sample = msgspec.json.decode(data, type=Sample)
    found = of_sample(sample)
    core.gpus(sample, found.devices, found.mig_devices, BusGpus(), NOW)
    assert len(msgspec.json.encode(core.status(NOW))) < STATUS_BYTES_MAX


def file_read(read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Returns a parser of bytes that writes the bytes to a file in memory and reads this file."""

    def of(data: bytes) -> object:
        path = Path(f"/dev/shm/rekindle-fuzz-{os.getpid()}")
        path.write_bytes(data)
        try:
            return read(path)
        finally:
            path.unlink()

    return of


def safetensors(path: Path) -> object:
    return check_safetensors(Folder(path.parent, lambda: None), path.name)


def api(kind: str, **parts: Any) -> bytes:
    meta = {
        "name": "x",
        "namespace": "ml",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"training.kubeflow.org/job-name": "llm"},
        "annotations": {"rekindle.dev/hang-timeout": "15m", "rekindle.dev/recovery": '{"recovery": "r"}'},
    }
    return msgspec.json.encode({"kind": kind, "metadata": meta, **parts})


def node_health() -> bytes:
    core = agent()
    core.kernel_line(KernelLine(sequence=7, at=NOW, text=XID.decode()))
    core.log_line(POD, "step 12/100 loss 1.5", NOW)
    return api("NodeHealth", status=core.status(NOW))


def with_length(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


POD_SPEC = {
    "nodeName": "n1",
    "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
}
JOB_SPEC = {
    "suspend": False,
    "parallelism": 2,
    "template": {"spec": POD_SPEC},
    "replicatedJobs": [{"name": "r", "replicas": 2, "template": {"spec": {"template": {"spec": POD_SPEC}}}}],
    "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": POD_SPEC}}},
    "paddleReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": POD_SPEC}}},
    "tfReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": POD_SPEC}}},
}
RECIPE = recipes.built_in_text("vllm-bfloat16").encode()

PARSERS: dict[str, Parser] = {
    "kernel record": Parser(
        read=kernel_record,
        real=(b"3,1001,5000000,-;" + XID, b"4,7,1000,-;EDAC MC0: 1 UE memory read error on x (channel:1)"),
    ),
    "saved kernel log": Parser(
        read=saved_log,
        real=(
            b"<3>[ 5000.123456] " + XID + b"\n[    5.0] x\n",
            b"[Thu Sep 19 02:29:46 2024] " + XID,
            b"Nov 23 20:30:00 node-1 kernel: [ 5000.1] " + XID + b"#012NVRM: x",
            b'{"MESSAGE": "' + XID + b'", "_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": "1795465800000000"}',
        ),
    ),
    "container log": Parser(
        read=container_log,
        real=(
            b"2026-11-21T09:30:00.123456789Z stdout F step 12/100 loss 1.5\n",
            b"2026-11-21T09:30:00.123456789Z stderr P  12%|#  | 12/100 [00:01<00:09, 1.2it/s]\r\n",
            b"2026-11-21T09:30:00Z stderr F Traceback (most recent call last):\n"
            b"2026-11-21T09:30:01Z stderr F RuntimeError: CUDA error: out of memory\n"
            b"2026-11-21T09:30:02Z stdout F Saving model checkpoint to /ckpt/checkpoint-500\n",
        ),
    ),
    "NVML's answer": Parser(
        read=nvml_answer,
        refuses=(msgspec.MsgspecError, RecursionError),
        real=(msgspec.json.encode(Sample(driver_version="580.1", gpus=(GpuSample(index=0, pci="0000:3b:00.0", uuid="GPU-1"),))),),
    ),
    "kubelet's PodResources": Parser(
        read=lambda data: [_given(pod) for pod in _parsed(data).pods],
        refuses=(DecodeError,),
        real=(kubelet.answer(kubelet.pod("llm-0", "GPU-1", "GPU-2::3", claimed=[("gpu.nvidia.com", "gpu-3")])),),
    ),
    "name of a pod's folder": Parser(read=text(parse_pod_folder), real=(b"ml_llm-0_1111",)),
    "PCI address": Parser(read=text(parse_pci), real=(b"00000000:3B:00.0",)),
    "size": Parser(read=text(parse_size), real=(b"25.5 GiB",)),
    "template": Parser(
        read=text(lambda given: parse(given).match("has 12.4 of 3 GiB")),
        refuses=(BadTemplateError,),
        real=(b"has {a:number} of {b:size} {{}}",),
    ),
    "duration": Parser(read=text(parse_s), real=(b"1h30m",)),
    "quantity": Parser(read=text(parse_count), real=(b"8", b"1500m", b"2Ki")),
    "version": Parser(read=text(parse_version), real=(b"12.4.1",)),
    "place of checkpoints": Parser(
        read=text(annotation.parse), refuses=(annotation.LocationError,), real=(b"/ckpt;format=torch-dcp", b"/ckpt;format=generic;marker=step-{step}/done")
    ),
    "repairs": Parser(
        read=text(annotation.parse_repair), refuses=(ValueError,), real=(b"set-aside, none",)
    ),
    "marker": Parser(
        read=text(marker_template.parse_marker),
        refuses=(marker_template.TemplateError,),
        real=(b"step-{step}/done",),
    ),
    "report of a scan": Parser(
        read=scan_result.decode_message, refuses=(ValueError,), real=(b'{"chosen": null, "error": "x"}',)
    ),
    "report of a repair": Parser(
        read=text(lambda given: decode(given, where="pod p")),
        refuses=(ReportError,),
        real=(b'{"checks": [{"name": "nvml", "outcome": "passed", "message": ""}]}',),
    ),
    "user's rows": Parser(
        read=file_read(lambda path: user_rows(str(path), tables())),
        refuses=(CatalogError,),
        real=(
            b'[[xid]]\ncode = 79\nmnemonic = "X"\nmeaning = "m"\nfault = "device-lost"\norigin = "kernel"\n'
            b'severity = "info"\nremedy = "none"\nsource = "us"\n',
        ),
    ),
    "agent's settings": Parser(
        read=file_read(lambda path: load(path, [], AgentSettings)),
        refuses=(SettingsError,),
        real=(b"[nvml]\nenabled = true\ngpus_expected = 8\n",),
    ),
    "controller's settings": Parser(
        read=file_read(lambda path: load(path, [], Settings)),
        refuses=(SettingsError,),
        real=(b"mode = \"recover\"\nagents_are_pods = true\n",),
    ),
    "a setting's override": Parser(
        read=text(lambda given: load(None, [given], AgentSettings)),
        refuses=(SettingsError,),
        real=(b"nvml.gpus_expected=8",),
    ),
    "recipe's TOML": Parser(
        read=text(lambda given: recipes.parse(given, "f")), refuses=(RecipeError,), real=(RECIPE,)
    ),
    "recipe's YAML": Parser(
        read=text(lambda given: recipes.parse_yaml(given, "f")),
        refuses=(RecipeError,),
        real=(yaml.safe_dump(objects.to_object(recipes.built_in()["vllm-bfloat16"])).encode(),),
        bytes_max=YAML_BYTES_MAX,
        seconds_max=YAML_SECONDS_MAX,
    ),
    "manifest": Parser(
        read=text(lambda given: manifests.documents(given, "f")),
        refuses=(manifests.ManifestError,),
        real=(b"kind: Job\nmetadata: {name: x}\nspec:\n- a: &a [1]\n- *a\n",),
        bytes_max=YAML_BYTES_MAX,
        seconds_max=YAML_SECONDS_MAX,
    ),
    "Recipe": Parser(
        read=objects.seen,
        refuses=UNREADABLE,
        real=(api("Recipe", spec={"about": "x", "match": [{"log": "has {a:number}"}]}),),
    ),
    "NodeHealth": Parser(
        read=model.health, refuses=UNREADABLE, real=(node_health(),)
    ),
    "Node": Parser(
        read=lambda raw: model.node(raw, DEVICES),
        refuses=UNREADABLE,
        real=(
            api(
                "Node",
                spec={"taints": [{"key": "a", "effect": "NoSchedule"}]},
                status={"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
            ),
        ),
    ),
    "Pod": Parser(
        read=lambda raw: model.pod(raw, DEVICES),
        refuses=UNREADABLE,
        real=(api("Pod", spec=POD_SPEC, status={"phase": "Running", "containerStatuses": [{"name": "c"}]}),),
    ),
    "Namespace": Parser(read=model.namespace, refuses=UNREADABLE, real=(api("Namespace"),)),
    "safetensors": Parser(
        read=file_read(safetensors),
        refuses=(DamagedError,),
        real=(with_length(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', b"1234"),),
    ),
} | {
    workload.resource.kind: Parser(
        read=workload.parse, refuses=UNREADABLE, real=(api(workload.resource.kind, spec=JOB_SPEC),)
    )
    for workload in WORKLOADS
}  # fmt: skip

_PIECES = st.sampled_from(
    [b"[", b'{"a":', b"{", b"}", b'"', b" ", b"\n", b"0", b"9", b"a", b"\xff", b"\\x0a", b": ", b", ", b"- ", b"\r", b"&a [*a]\n"]
)  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def damaged(draw: st.DrawFn, real: tuple[bytes, ...]) -> bytes:
    """Returns a real input in which some bytes are replaced, left out, or repeated many times."""
    data = draw(st.sampled_from(real))
    for _ in range(draw(st.integers(0, 3))):
        begin, end = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        piece = draw(st.binary(max_size=8) | _PIECES | st.just(data[begin:end]))
        times = draw(st.sampled_from([0, 1, 2, 100, BYTES_MAX // max(1, len(piece))]))
        data = (data[:begin] + piece * times + data[end:])[:BYTES_MAX]
    return data


def inputs(parser: Parser) -> st.SearchStrategy[bytes]:
    many = _PIECES.map(lambda piece: piece * (BYTES_MAX // len(piece)))
    of_json = _JSON.map(msgspec.json.encode)
    found = damaged(parser.real) | st.binary(max_size=400) | of_json | many
    return found.map(lambda data: data[: parser.bytes_max])


def test_a_manifest_of_old_line_ends_that_is_no_yaml_is_refused_in_words() -> None:
    with pytest.raises(manifests.ManifestError, match="expected YAML or JSON"):
        manifests.documents("kind:\r\r&a [1]\n- *a\n", "f")


@pytest.mark.parametrize("name", PARSERS)
def test_a_real_input_is_read(name: str) -> None:
    """Otherwise the damaged forms of the input would reach little of the parser."""
    for real in PARSERS[name].real:
        PARSERS[name].read(real)


@pytest.mark.parametrize("name", PARSERS)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="REKINDLE_FUZZ" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_any_input_is_read_or_refused_soon_and_in_few_words(name: str, data: st.DataObject) -> None:
    parser = PARSERS[name]
    given_bytes, message = data.draw(inputs(parser)), ""
    begun_s = time.process_time()

    try:
        parser.read(given_bytes)
    except parser.refuses as error:
        message = str(error)

    assert time.process_time() - begun_s < parser.seconds_max
    assert len(message) <= MESSAGE_CHARS_MAX
