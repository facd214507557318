"""The channel to a microVM: reads are bounded, however its bytes are split."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from shioenv_backends.microvm.channel import FrameKind, GuestChannel, SupervisorStream
from support.waiting import Clock


@pytest.fixture
def pair() -> Iterator[tuple[GuestChannel, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield GuestChannel(ours), theirs


def test_frames_go_there_and_back(pair: tuple[GuestChannel, socket.socket]) -> None:
    channel, other = pair
    channel.send(FrameKind.PING, b"hello")
    sent = other.recv(100)
    assert sent == b"P\5\0\0\0hello"
    for byte in sent + sent:
        other.send(bytes([byte]))
    assert channel.receive(5) == (b"P", b"hello")
    assert channel.expect(FrameKind.PING, 5) == b"hello"


def test_the_time_comes_with_other_entropy_each_time(
    pair: tuple[GuestChannel, socket.socket],
) -> None:
    channel, other = pair
    frames = []
    for _ in range(2):
        channel.set_time(1.5)
        frames.append(other.recv(100))
    assert all(frame[5:13] == struct.pack("<q", 1_500_000_000) for frame in frames)
    assert frames[0][13:] != frames[1][13:]


def test_a_machine_that_says_what_it_cannot_mean_is_left(
    pair: tuple[GuestChannel, socket.socket],
) -> None:
    channel, other = pair
    other.send(b"D\xff\xff\xff\xff")
    with pytest.raises(ConnectionError, match="bytes"):
        channel.receive(5)


def test_silence_and_the_end_are_errors(pair: tuple[GuestChannel, socket.socket]) -> None:
    channel, other = pair
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    other.send(b"B\0\0\0\0")
    with pytest.raises(ConnectionError, match="kind"):
        channel.expect(FrameKind.PING, 5)
    other.send(b"P\3\0\0\0a")
    other.close()
    with pytest.raises(ConnectionResetError):
        channel.receive(5)


def test_a_supervisors_bytes_are_read_as_from_a_socket(
    pair: tuple[GuestChannel, socket.socket],
) -> None:
    channel, other = pair
    stream = SupervisorStream(channel, 5)
    other.send(b"D\5\0\0\0helloC\0\0\0\0")
    assert (stream.recv(2), stream.recv(100), stream.recv(1)) == (b"he", b"llo", b"")
    stream.sendall(b"x" * 10)
    assert other.recv(100) == b"D\n\0\0\0" + b"x" * 10


def test_a_reply_that_comes_drop_by_drop_is_over_in_time(
    pair: tuple[GuestChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, other = pair
    clock = Clock()
    monkeypatch.setattr("shioenv_backends.microvm.channel.time", clock)
    stream = SupervisorStream(channel, 0.2)
    stream.sendall(b"asked")
    for _ in range(4):
        other.send(b"D\1\0\0\0x")
        assert stream.recv(1) == b"x"
        clock.move(0.06)
    other.send(b"D\1\0\0\0x")
    with pytest.raises(TimeoutError):
        stream.recv(1)
