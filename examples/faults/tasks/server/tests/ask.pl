use strict;
use Socket;
socket(my $s, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
connect($s, sockaddr_in(8017, INADDR_LOOPBACK)) or die "connect: $!\n";
my $answer = <$s>;
print $answer // "";
