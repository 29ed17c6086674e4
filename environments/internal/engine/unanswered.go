package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// answerTime is how long an engine may go on working for clients that are gone.
const answerTime = time.Minute

// answered waits until an engine has done all that clients asked of it that have
// ended since, for instance because they were killed. Podman goes on creating a
// container for such a client, and the container is in no list before it is
// complete. waited is true if there was such a request.
//
// The caller must have got an answer from the engine, which by then has accepted
// every connection that was made before.
func (r *remote) answered(ctx context.Context) (waited bool, err error) {
	path, err := SocketPath(r.address)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for unanswered(path) > 0 {
		waited = true
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return true, fmt.Errorf("%s is still working on a request of a process that has ended, and may create something: run berth gc again later", r.name)
		}
	}
	return waited, nil
}

// unanswered counts the connections of the server at a socket whose clients are
// gone. A server closes such a connection when it has dealt with its requests. It
// counts none where the kernel does not tell, or if the server is in another
// network namespace.
func unanswered(path string) (n int) {
	at, err := os.Stat(path)
	if err != nil {
		return 0
	}
	names, err := abandoned()
	if err != nil {
		return 0
	}
	same := map[string]bool{}
	for _, name := range names {
		known, seen := same[name]
		if !seen {
			other, err := os.Stat(name)
			known = err == nil && os.SameFile(at, other)
			same[name] = known
		}
		if known {
			n++
		}
	}
	return n
}

// abandoned returns the names of Unix sockets that are connected and whose other
// ends are closed, as the kernel lists them (man 7 sock_diag).
func abandoned() (names []string, err error) {
	const (
		established  = 1
		show         = 1<<0 | 1<<2 // the name, and the other end
		head         = 16          // bytes before the attributes: struct unix_diag_msg
		attrName     = 0
		attrPeer     = 2
		attrShutdown = 6
		bothWays     = 3
	)
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	request := make([]byte, 24) // struct unix_diag_req
	request[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(request[4:], 1<<established)
	binary.NativeEndian.PutUint32(request[12:], show)
	all, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump}, Data: request,
	})
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if len(m.Data) < head {
			continue
		}
		attributes, err := netlink.NewAttributeDecoder(m.Data[head:])
		if err != nil {
			continue
		}
		name, gone, shut := "", false, false
		for attributes.Next() {
			switch attributes.Type() {
			case attrName:
				name = strings.TrimRight(string(attributes.Bytes()), "\x00")
			case attrPeer:
				gone = attributes.Uint32() == 0
			case attrShutdown:
				shut = attributes.Uint8() == bothWays
			}
		}
		if attributes.Err() == nil && name != "" && gone && shut {
			names = append(names, name)
		}
	}
	return names, nil
}
