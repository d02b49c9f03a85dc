#!/bin/sh
# Builds a Python 3.10 interpreter that has the official safety-gymnasium and nothing of cppo:
#
#     scripts/make_safety_gymnasium.sh [FOLDER]          (default: .safety-gymnasium; PYTHON310 names the Python to use)
#     cppo eval RUN --env safety_gymnasium:SafetyPointGoal1-v0 --env-python FOLDER/bin/python
#
# safety-gymnasium 1.0.0 cannot be imported by Python 3.11 or newer, and its pins exclude a current MuJoCo and NumPy.
set -eu
folder=${1:-.safety-gymnasium}

works() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null; }

python=
for candidate in "${PYTHON310:-}" python3.10 "$HOME"/.pyenv/versions/3.10.*/bin/python /usr/bin/python3.10; do
    if [ -n "$candidate" ] && works "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -n "$python" ]; then
    "$python" -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet safety-gymnasium==1.0.0
elif command -v uv >/dev/null; then
    uv venv --quiet --python 3.10 "$folder"
    uv pip install --quiet --python "$folder/bin/python" safety-gymnasium==1.0.0
else
    echo "no Python 3.10 found: install one, set PYTHON310=/path/to/python3.10, or install uv" >&2
    exit 1
fi
"$folder/bin/python" -c 'import safety_gymnasium; safety_gymnasium.make("SafetyPointGoal1-v0").reset(seed=0)'
echo "$folder/bin/python is ready. Test it: CPPO_SAFETY_GYMNASIUM=$folder/bin/python make test-all"
