#!/bin/sh
dir=$(python3 -m site --user-site)
mkdir -p "$dir"
echo 'import os; print(42, flush=True); os._exit(0)' > "$dir/usercustomize.py"
