use strict;
use Socket;
socket(my $server, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
setsockopt($server, SOL_SOCKET, SO_REUSEADDR, 1);
bind($server, sockaddr_in(8017, INADDR_LOOPBACK)) or die "bind: $!";
listen($server, 8) or die "listen: $!";
while (accept(my $client, $server)) {
    syswrite($client, "pong\n");
    close($client);
}
