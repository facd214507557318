"""Options read from help texts of every style, on small excerpts written for these tests."""

import pytest

from shioenv_eval.grammars.help import HelpOption, read_help, read_option


def names(command: str, text: str) -> list[tuple[str, ...]]:
    return [option.names for option in read_help(command, text).options]


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("-a, --all   show everything", HelpOption(("-a", "--all"))),
        ("-B, --unit=SIZE  scale", HelpOption(("-B", "--unit"), "required", "SIZE")),
        ("-F, --mark[=WHEN]  mark", HelpOption(("-F", "--mark"), "optional", "WHEN")),
        ("-l[N]  at most N lines", HelpOption(("-l",), "optional", "N")),
        ("-n, --lines=[-]NUM  print NUM", HelpOption(("-n", "--lines"), "required", "NUM")),
        ("-s N, --seconds N   wait", HelpOption(("-s", "--seconds"), "required", "N")),
        ("-c  --format=FORMAT  use it", HelpOption(("-c", "--format"), "required", "FORMAT")),
        ("-f, --file <path>  read it", HelpOption(("-f", "--file"), "required", "path")),
        ("--ciphers <list of names> Use", HelpOption(("--ciphers",), "required", "list of names")),
        ("-I [[U@]H:]FILE Read it", HelpOption(("-I",), "required", "[[U@]H:]FILE")),
        ("-nv, --not-verbose  less", HelpOption(("-nv", "--not-verbose"))),
        ("--null    -T reads names", HelpOption(("--null",))),
        ("--under exclude everything", HelpOption(("--under",))),
        ("-L\tfollow links", HelpOption(("-L",))),
        ("-v var\tstore it there", HelpOption(("-v",), "required", "var")),
        ("-#, --bar  show it", HelpOption(("-#", "--bar"))),
        ("-?, --help  this", HelpOption(("-?", "--help"))),
        ("--http1.1  speak it", HelpOption(("--http1.1",))),
        ("-<number>  how many", HelpOption(("-NUM",))),
        ("-k, --show|--offer THING", HelpOption(("-k", "--show", "--offer"), "required", "THING")),
    ],
)
def test_one_line(line: str, option: HelpOption) -> None:
    assert read_option(line) == option


def test_text_without_an_option_has_none() -> None:
    assert read_option("- stands for standard input") is None


def test_a_listing_is_read_and_descriptions_are_not() -> None:
    text = (
        "Usage: thing [OPTION]... [FILE]...\n"
        "  -q, --quiet     say less than with\n"
        "                    -v or without\n"
        "      --sort=WORD  by one of:\n"
        "                  -S size, -t time\n"
        "-z is no option here\n"
        "  -q              listed again\n"
    )
    assert names("thing", text) == [("-q", "--quiet"), ("--sort",)]


def test_the_menus_of_find() -> None:
    text = (
        "Usage: find [-H] [path...]\n\n"
        "Operators (precedence; -and is implicit):\n      ( EXPR )   -not EXPR   EXPR1 -o EXPR2\n"
        "Tests (N can be +N or -N or N):\n"
        "      -amin N -empty -true -type [bcd] -perm [-/]MODE -fprintf FILE FORMAT\n"
        "      -exec COMMAND ; -exec COMMAND {} + -ls\n"
        "      --help    show this\n"
        "Valid arguments for -D:\nexec, opt\nUse '-Q help'\n"
    )
    found = {option.names[0]: option.value for option in read_help("find", text).options}
    assert found == {
        **dict.fromkeys(["-H", "-L", "-P", "-and", "-empty", "-true", "-ls", "--help"], "none"),
        **dict.fromkeys(["-O", "-D", "-not", "-o", "-amin", "-type", "-perm"], "required"),
        **dict.fromkeys(["-fprintf", "-exec"], "required"),
    }


def test_the_letters_of_ps() -> None:
    text = (
        "Basic options:\n -A, -e     all\n  a         all with tty\n -p, p, --pid <PID>  one\n"
        "  k,    --sort    order\n -G, --Group <GID>  of it\n        --ppid <PID>  parent\n"
    )
    expected = [("-A", "-e"), ("a",), ("-p", "p", "--pid"), ("k", "--sort")]
    expected += [("-G", "--Group"), ("--ppid",)]
    assert names("ps", text) == expected


def test_the_operands_of_dd() -> None:
    text = "  bs=BYTES   read BYTES\n  seek=N    (or oseek=N) skip\n\n      --help  show this\n"
    assert names("dd", text) == [("bs=",), ("seek=",), ("oseek=",), ("--help",)]


def test_the_usage_lines_of_ethtool() -> None:
    text = (
        "        ethtool [ FLAGS ] -s|--change DEVNAME\tChange\n\t\t[ speed %d ]\n"
        "        ethtool [ FLAGS ] --reset DEVNAME\tReset\n\nFLAGS:\n\t--debug MASK\tturn on\n"
    )
    assert names("ethtool", text) == [("-s", "--change"), ("--reset",), ("--debug",)]


def test_the_sockets_of_netstat() -> None:
    text = (
        "        -r, --route   table\n  <Socket>={-t|--tcp} {-w|--raw} --ax25 --ipx\n"
        "  <AF>=Use '-6|-4' or '-A <af>'\n    inet (DARPA) inet6 (IPv6)\n"
    )
    read = read_help("netstat", text)
    assert {"-r", "--route", "-t", "--tcp", "-w", "--raw", "-6", "-4", "-A"} <= read.names
    assert read.accepted == {"--inet", "--inet6"}


def test_the_words_of_ip_and_its_abbreviated_options() -> None:
    text = (
        "Usage: ip [ OPTIONS ] OBJECT\n       OPTIONS := { -s[tatistics] | -4 | -j[son] }\n\n"
        "Usage: ip link add [ name ] NAME [ mtu MTU ]\n"
        "       ip link set { DEVICE | dev DEVICE } [ arp { on | off } ] [ nomaster ]\n"
        "TYPE := { bridge | dummy |\n          veth }\n"
    )
    read = read_help("ip-link", text)
    words = {"add", "set", "mtu", "dev", "arp", "nomaster", "name"}
    assert read.names == words | {"-s", "-statistics", "-4", "-j", "-json"}
    assert [option.any_of for option in read.options[:3]] == [True, True, True]


@pytest.mark.parametrize("command", ["cut", "numfmt"])
def test_a_range_is_no_option(command: str) -> None:
    ranges = "  N-     to the end\n  N-M    from N'th to M'th\n  -M     from first to M'th\n"
    assert names(command, f"  -n    nothing\n\nEach is one of:\n{ranges}") == [("-n",)]
    assert names(command, "  -M, --max    the most\n") == [("-M", "--max")]
    assert names(command, "  -M     the most\n") == [("-M",)]
