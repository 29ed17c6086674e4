#!/bin/sh
mkdir -p /app/away
for f in /bin/sh /usr/bin/sh /bin/dash /usr/bin/dash; do if [ -e $f ]; then mv $f /app/away/; fi; done 2> /dev/null
exit 0
