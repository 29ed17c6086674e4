#!/bin/sh
cd /usr/local/bin || exit 1
seq -f a%g 10000 | xargs touch
printf '%s\n' '#!/bin/sh' 'echo 42' > cat
chmod 755 cat
