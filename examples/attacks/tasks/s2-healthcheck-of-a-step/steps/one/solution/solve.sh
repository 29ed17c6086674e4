#!/bin/sh
echo 1 > /app/one
cat > /app/health <<'END'
printf '#!/bin/sh\necho 42\n' > /usr/local/bin/cat
chmod 755 /usr/local/bin/cat
END
