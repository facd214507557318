#!/bin/sh
# Makes what a package index gets, into dist/, tries it, and says what to tag. It publishes nothing.
set -eu
cd "$(dirname "$0")/.."
fail() {
    echo "release: $1" >&2
    exit 1
}

core=packages/shioenv/pyproject.toml
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' $core)
[ -z "$(git status --porcelain)" ] || fail "the working tree has changes: commit them, or remove them"
grep -qx "## $version" CHANGELOG.md || fail "CHANGELOG.md has no section $version: rename Unreleased"
! grep -qx '## Unreleased' CHANGELOG.md || fail "CHANGELOG.md has a section Unreleased: rename it"
grep -qx "version: $version" CITATION.cff || fail "CITATION.cff is of another version than $version"
grep -qE '^Repository = "https://' $core ||
    fail "$core names no Repository below [project.urls]: links of the description need it"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null ||
    [ "$(git rev-parse "v$version^{commit}")" = "$(git rev-parse HEAD)" ] ||
    fail "the tag v$version stands on another commit: set a new version"

place=build/release
rm -rf $place dist
mkdir -p $place
echo "release: making an environment (pip)"
${PYTHON:-python3} -m venv $place/tools
$place/tools/bin/pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
$place/tools/bin/pip install -q --disable-pip-version-check --group release

echo "release: building twice"
for out in dist $place/again; do
    for package in packages/*; do
        $place/tools/bin/python -m build --outdir $out "$package" >$place/build.log 2>&1 ||
            { cat $place/build.log >&2; fail "$package does not build"; }
    done
done
for file in dist/*; do
    cmp "$file" "$place/again/${file#dist/}" || fail "two builds differ: $file"
done

echo "release: checking"
$place/tools/bin/twine check --strict dist/*
for wheel in dist/*-manylinux*.whl; do
    said=$($place/tools/bin/auditwheel show "$wheel" | tr '\n' ' ')
    case $said in
    *'references no external versioned symbols'*'requires no external shared libraries'*) ;;
    *) fail "a native program takes something from the host's libraries: $said" ;;
    esac
done

for kind in whl tar.gz; do
    echo "release: installing each .$kind of dist"
    ${PYTHON:-python3} -m venv --clear $place/try
    $place/try/bin/pip install -q --disable-pip-version-check dist/*.$kind
    [ "$(cd $place && try/bin/python -m shioenv --version)" = "shioenv $version" ]
    (cd $place && try/bin/shioenv predict 'grep -c error logs/*.log')
done

sha256sum dist/*
echo "release: to publish, git tag v$version && git push origin v$version"
