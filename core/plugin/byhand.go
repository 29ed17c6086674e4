package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/runtimedir"
)

// errNobody means that no process serves a plugin that was started by hand.
var errNobody = errors.New("no process serves there: start the plugin again with " + plugins.ReattachFlag + ", or unset " + plugins.ReattachEnv)

// readByHand adds the processes that text, NAME=ADDRESS,…, names. They are
// binaries whose path is the address.
func (h *Host) readByHand(ctx context.Context, text string) error {
	for entry := range strings.SplitSeq(text, ",") {
		name, address, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok || name == "" || !filepath.IsAbs(address) {
			return fmt.Errorf("%q is not NAME=ADDRESS: copy the line that the plugin printed", entry)
		}
		i := slices.IndexFunc(h.byHand, func(b *binary) bool { return b.path == address })
		if i < 0 {
			i, h.byHand = len(h.byHand), append(h.byHand, newBinary(h, program{path: address}))
		}
		h.byHand[i].byHand = append(h.byHand[i].byHand, name)
	}
	for _, b := range h.byHand {
		list, protocol, err := b.ask(ctx)
		if err == nil && (protocol < plugins.OldestProtocol || protocol > plugins.Protocol) {
			err = errors.New(mismatch(b.byHand[0], protocol))
		}
		if err != nil {
			return err
		}
		for _, name := range b.byHand {
			if !slices.ContainsFunc(list, func(d plugins.Description) bool { return d.Name == name }) {
				return fmt.Errorf("the process at %s serves no plugin %q: copy the line that it printed", b.path, name)
			}
		}
		b.serves = slices.DeleteFunc(list, func(d plugins.Description) bool { return !slices.Contains(b.byHand, d.Name) })
		b.protocol, b.digest = protocol, record.Reattached
	}
	return nil
}

// attach connects to a process that was started by hand. The process that it
// returns ends for us when the connection ends, and is never killed.
func (h *Host) attach(ctx context.Context, b *binary) (*process, error) {
	switch info, err := os.Lstat(b.path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("plugin %s: %w", b.path, errNobody)
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("plugin %s: it is not a socket: copy the line that the plugin printed", b.path)
	}
	if err := runtimedir.Make(filepath.Dir(b.path)); err != nil { // it exists
		return nil, fmt.Errorf("plugin %s: the folder of its socket must be closed to other users: %w", b.path, err)
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", b.path)
	}
	conn, err := grpc.NewClient("passthrough:plugin", append(fault.DialOptions(), grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0))...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.startTimeout)
	defer cancel()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		switch {
		case state == connectivity.TransientFailure:
			return nil, errors.Join(fmt.Errorf("plugin %s: %w", b.path, errNobody), conn.Close())
		case !conn.WaitForStateChange(ctx, state):
			return nil, errors.Join(fmt.Errorf("plugin %s: it did not answer within %s: is it stopped in a debugger?", b.path, h.startTimeout), conn.Close())
		}
	}
	p := &process{child: newChild(b.path, nil, b.log, h.output.Load), conn: conn, started: time.Now()}
	go func() { //nolint:contextcheck // it lives as long as the connection
		for state := conn.GetState(); state == connectivity.Ready; state = conn.GetState() {
			conn.WaitForStateChange(context.Background(), state)
		}
		_ = conn.Close() // it would connect again, to a process without our sessions
		close(p.done)
	}()
	return p, nil
}
