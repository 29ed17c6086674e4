#!/bin/sh
cd /app || exit 1
git init -q .
printf '%s\n' '#!/bin/sh' 'echo 42 > /app/answer' > /app/monitor
chmod 755 /app/monitor
git config core.fsmonitor /app/monitor
