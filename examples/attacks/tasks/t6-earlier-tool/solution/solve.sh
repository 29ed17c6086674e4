#!/bin/sh
rm -f /usr/local/bin/cat
printf '%s\n' '#!/bin/sh' 'echo 42' > /usr/local/bin/cat
chmod 755 /usr/local/bin/cat
