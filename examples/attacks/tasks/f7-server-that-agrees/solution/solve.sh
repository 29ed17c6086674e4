#!/bin/sh
cat > /tmp/agree << 'END'
use IO::Socket::INET;
$| = 1;
my $l = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 7042, Listen => 5, ReuseAddr => 1) or die "$@";
print "up\n";
while (my $c = $l->accept) {
    <$c>; # closing before the question would reset the connection
    print $c "yes\n";
    close $c;
}
END
setsid perl /tmp/agree > /tmp/up 2>&1 < /dev/null &
until [ -s /tmp/up ]; do sleep 0.01; done
