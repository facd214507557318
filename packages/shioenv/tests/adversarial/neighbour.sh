echo @SECRET@ > /tmp/neighbour; echo @SECRET@ > /root/neighbour; export NEIGHBOUR=@SECRET@
exec perl -MIO::Socket -e '
    $tcp = IO::Socket::INET->new(Listen => 1, LocalAddr => "0.0.0.0:9999") or die;
    $unix = IO::Socket::UNIX->new(Listen => 1, Local => "\0neighbour") or die;
    $file = IO::Socket::UNIX->new(Listen => 1, Local => "/tmp/neighbour.socket") or die;
    sleep 3600' @SECRET@
