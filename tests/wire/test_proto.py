import filecmp

from tinker.proto import tinker_public_pb2 as theirs

from openrl.wire import generate
from openrl.wire import tinker_pb2 as ours


def test_the_generated_files_are_those_of_the_schema(tmp_path):
    generate.generate(tmp_path)
    for name in ("tinker_pb2.py", "tinker_pb2.pyi"):
        fresh = tmp_path / "openrl" / "wire" / name
        assert filecmp.cmp(fresh, generate.HERE / name, shallow=False), f"{name}: run python -m openrl.wire.generate"


def test_every_message_has_the_fields_that_the_sdk_writes_and_reads():
    for name, message in ours.DESCRIPTOR.message_types_by_name.items():
        assert _fields(message) == _fields(theirs.DESCRIPTOR.message_types_by_name[name]), name
    for name, enum in ours.DESCRIPTOR.enum_types_by_name.items():
        expected = theirs.DESCRIPTOR.enum_types_by_name[name].values_by_name
        assert {key: value.number for key, value in enum.values_by_name.items()} == {
            key: value.number for key, value in expected.items()
        }


def _fields(message):
    return [(field.name, field.number, field.type, field.is_repeated) for field in message.fields]
