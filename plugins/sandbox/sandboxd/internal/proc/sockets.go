package proc

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Socket is a listening socket in our network namespace.
type Socket struct {
	Network string // tcp, udp, unix
	Address string // ip:port, a path, or @name
	Inode   uint64
}

// The kernel's socket statistics, sock_diag(7).
const (
	diagByFamily  = 20 // SOCK_DIAG_BY_FAMILY
	stateListen   = 10 // TCP_LISTEN
	stateClose    = 7  // TCP_CLOSE: a UDP socket that is bound and not connected
	inetRequest   = 56 // sizeof(struct inet_diag_req_v2)
	unixRequest   = 24 // sizeof(struct unix_diag_req)
	inetMessage   = 72 // sizeof(struct inet_diag_msg)
	unixMessage   = 16 // sizeof(struct unix_diag_msg)
	showUnixName  = 1  // UDIAG_SHOW_NAME
	attributeName = 0  // UNIX_DIAG_NAME
)

// maxSockets is the largest number of sockets that are listed, far more than
// usual programs open.
const maxSockets = 1000

// Listening lists TCP and Unix sockets that accept connections, and bound UDP
// sockets.
//
// It asks the kernel over netlink. Reading /proc/net/tcp would walk the hash
// table of established connections, which all namespaces share and whose size
// depends on the machine's memory. That takes a millisecond even if there are
// no sockets.
func Listening() (out []Socket) {
	add := func(s Socket) {
		if len(out) < maxSockets {
			out = append(out, s)
		}
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2})
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		for protocol, state := range map[byte]uint32{unix.IPPROTO_TCP: stateListen, unix.IPPROTO_UDP: stateClose} {
			q := make([]byte, inetRequest)
			q[0], q[1] = family, protocol
			binary.NativeEndian.PutUint32(q[4:], 1<<state)
			dump(fd, q, func(m []byte) {
				if s, ok := parseInet(m, protocol); ok {
					add(s)
				}
			})
		}
	}
	q := make([]byte, unixRequest)
	q[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(q[4:], 1<<stateListen)
	binary.NativeEndian.PutUint32(q[12:], showUnixName)
	dump(fd, q, func(m []byte) {
		if s, ok := parseUnix(m); ok {
			add(s)
		}
	})
	return out
}

// dump sends one request and calls each with every answer.
func dump(fd int, request []byte, each func([]byte)) {
	q := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(request))
	binary.NativeEndian.PutUint32(q[0:], uint32(len(q)+len(request)))
	binary.NativeEndian.PutUint16(q[4:], diagByFamily)
	binary.NativeEndian.PutUint16(q[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(fd, append(q, request...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return
	}
	b := make([]byte, 32<<10)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil || !messages(b[:n], each) {
			return
		}
	}
}

// messages splits a datagram into messages. It returns false at the end of a
// dump.
func messages(b []byte, each func([]byte)) bool {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		kind := binary.NativeEndian.Uint16(b[4:])
		if kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR || size < unix.SizeofNlMsghdr || size > len(b) {
			return false
		}
		each(b[unix.SizeofNlMsghdr:size])
		b = b[min(len(b), (size+3)&^3):]
	}
	return true
}

// parseInet reads struct inet_diag_msg: family, state, timer, retrans, then
// struct inet_diag_sockid with ports and addresses. The inode is at its end.
func parseInet(m []byte, protocol byte) (s Socket, ok bool) {
	if len(m) < inetMessage {
		return s, false
	}
	port := binary.BigEndian.Uint16(m[4:])
	var ip netip.Addr
	switch m[0] {
	case unix.AF_INET:
		ip = netip.AddrFrom4([4]byte(m[8:12]))
	case unix.AF_INET6:
		ip = netip.AddrFrom16([16]byte(m[8:24]))
	default:
		return s, false
	}
	if port == 0 {
		return s, false
	}
	s.Network = "tcp"
	if protocol == unix.IPPROTO_UDP {
		s.Network = "udp"
	}
	s.Address = net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
	s.Inode = uint64(binary.NativeEndian.Uint32(m[68:]))
	return s, true
}

// parseUnix reads struct unix_diag_msg and its attribute with the name.
func parseUnix(m []byte) (s Socket, ok bool) {
	if len(m) < unixMessage || m[0] != unix.AF_UNIX {
		return s, false
	}
	s = Socket{Network: "unix", Inode: uint64(binary.NativeEndian.Uint32(m[4:]))}
	for a := m[unixMessage:]; len(a) >= 4; {
		size, kind := int(binary.NativeEndian.Uint16(a)), binary.NativeEndian.Uint16(a[2:])
		if size < 4 || size > len(a) {
			break
		}
		if name := a[4:size]; kind == attributeName && len(name) > 0 {
			if name[0] == 0 {
				s.Address = "@" + string(name[1:])
			} else {
				s.Address = string(bytes.TrimRight(name, "\x00"))
			}
		}
		a = a[min(len(a), (size+3)&^3):]
	}
	return s, true
}
