"""Writes tinker_pb2.py and its type stub from tinker.proto: `python -m openrl.wire.generate` (needs grpcio-tools)."""

from pathlib import Path

HERE = Path(__file__).parent


def generate(into: Path) -> None:
    """Write both files below `into`, in `openrl/wire/`. Raises RuntimeError where the compiler refuses the schema."""
    from grpc_tools import protoc  # type: ignore[import-untyped]  # it ships no stubs

    root = HERE.parent.parent
    schema = str((HERE / "tinker.proto").relative_to(root))
    arguments = ["protoc", f"-I{root}", f"--python_out={into}", f"--pyi_out={into}", schema]
    if code := protoc.main(arguments):
        raise RuntimeError(f"protoc ended with {code} on {schema}")
    stub = (into / schema).with_name("tinker_pb2.pyi")
    stub.write_text(stub.read_text().replace(", _Mapping]", ", _Mapping[str, object]]"))  # strict typing wants it whole


if __name__ == "__main__":
    generate(HERE.parent.parent)
