#!/bin/sh
printf '#!/bin/sh\necho 42 > /app/answer\n' > /app/monitor
chmod 755 /app/monitor
git config --global core.fsmonitor /app/monitor
