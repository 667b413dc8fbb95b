# Sourced by the commands beside it. In: $root (the checkout), $also (further modules the command needs).
# Out: $python, an interpreter that has hetero_tf and its dependencies; PYTHONPATH with the checkout first.
# The active environment is used when it has everything; otherwise `.venv` in the checkout, made once.

# A file that is opened must not take the place of a standard stream that is closed.
true >&2 || exec 2>/dev/null
{ true <&0; } 2>/dev/null || exec </dev/null
{ true >&1; } 2>/dev/null || exec >/dev/null

# An empty entry (`PYTHONPATH=$PYTHONPATH:/mine` makes one) would mean the working folder, whose files must not run.
entries=${PYTHONPATH-}:
PYTHONPATH=
while [ -n "$entries" ]; do
    [ -z "${entries%%:*}" ] || PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}${entries%%:*}
    entries=${entries#*:}
done

venv=$root/.venv
needed="hetero_tf tensorflow keras numpy yaml absl tensorflow_datasets importlib_resources pandas PIL pyarrow rich tabulate ${also-}"

# An activated .venv is ours, not a person's choice, and its links must not be the base of its own rebuild.
PATH=${PATH#"$venv/bin:"}
active=${VIRTUAL_ENV:-${CONDA_PREFIX-}}
[ "$active" != "$venv" ] || active=

# True if the active python3 has every needed module. It looks from `/`, because in the checkout itself
# hetero_tf is always found, and only looks: importing TensorFlow would take seconds.
active_is_complete() {
    (cd / && exec python3 -c '
import sys
from importlib.util import find_spec
specs = map(find_spec, sys.argv[1:])
sys.exit(sys.version_info < (3, 10) or not all(spec and spec.origin for spec in specs))' $needed) >/dev/null 2>&1
}

# True if .venv was installed to the end from the setup.py of today (`ready` holds a copy of it) and has lost no module.
venv_is_ready() {
    [ -x "$venv/bin/python" ] && [ -r "$venv/ready" ] && [ "$(cat "$venv/ready")" = "$(cat "$root/setup.py")" ] || return
    set -- "$venv"/lib/python3*/site-packages
    for name in ${needed#hetero_tf }; do
        [ -e "$1/$name" ] || [ -e "$1/$name.py" ] || {
            echo "hetero_tf: $venv is damaged: $name is missing; it is not used until it is made again" >&2
            rm -f "$venv/ready"
            return 1
        }
    done
}

# Sets $python to the first interpreter that TensorFlow has wheels for, best one that can make environments.
find_python() {
    python=
    for name in python3 python3.13 python3.12 python3.11 python3.10 python; do
        case $("$name" -I -c '
import sys
if (3, 10) <= sys.version_info[:2] <= (3, 13):
    from importlib.util import find_spec
    print("complete" if find_spec("venv") and (find_spec("ensurepip") or find_spec("pip")) else "bare")' 2>/dev/null) in
            complete) python=$name; return ;;
            bare) python=${python:-$name} ;;
        esac
    done
    [ -n "$python" ]
}

if [ -z "$active" ] && venv_is_ready; then
    python=$venv/bin/python
elif active_is_complete; then
    python=python3
elif venv_is_ready; then
    python=$venv/bin/python
elif find_python; then
    "$python" "$root/bin/environment.py" "$root" || exit $?
    python=$venv/bin/python
else
    echo "hetero_tf: no Python 3.10, 3.11, 3.12 or 3.13 was found on PATH (python3 is:" \
        "$(python3 --version 2>/dev/null || echo missing)); install one of them with its venv module and pip," \
        "then run this command again." >&2
    exit 1
fi

# The code of this checkout runs, also where the environment holds a copy installed from somewhere else.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
