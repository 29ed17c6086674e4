package trial_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox/egress"
	"github.com/berth-eval/berth/plugins/task"
)

// ask defines a shell function that requests / of a host through the proxy in
// the variables, and succeeds if it gets a response.
const ask = `ask() { bash -c 'exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:} || exit 1
printf "CONNECT $1:80 HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n" >&3; cat <&3' - "$1" | grep -q served; }
none() { ! grep -v -w lo /proc/net/route | grep -v Iface; }
`

// Each phase reaches the hosts that it lists, and only through the core.
func TestListsOfHosts(t *testing.T) {
	t.Parallel()
	testlevel.Program(t, "bash", "bash") // whose /dev/tcp is the client here
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }))
	t.Cleanup(server.Close)
	b := newBench(t, does(ask+"none && ask good.test && ! ask tests.test && ! ask setup.test && ! ask evil.test && ! ask 127.0.0.1"),
		tests(ask+"none && ask tests.test && ! ask good.test && ! ask down.test"))
	s := &b.task.Stages[0]
	b.task.Environment.Network = task.Network{Mode: task.NetworkAllow, Allow: []string{"setup.test"}}
	s.Setup = []task.Command{{Argv: []string{"sh", "-c", ask + "ask setup.test && ! ask good.test"}}}
	s.Agent.Network = &task.Network{Mode: task.NetworkAllow, Allow: []string{"good.test"}}
	s.Verify.Network = &task.Network{Mode: task.NetworkAllow, Allow: []string{"tests.test", "down.test"}}
	in := b.input()
	in.Egress = egress.Options{
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			if name == "evil.test" {
				t.Errorf("%s was looked up", name)
			}
			if name == "down.test" {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}
	r, err := trial.Run(t.Context(), in)
	testlevel.Must(t, err)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if len(r.Modified) > 0 || r.Granted == nil || !strings.Contains(r.Granted.How, "CONNECT") {
		t.Errorf("modified %q, granted %+v", r.Modified, r.Granted)
	}
	const offline = "the verification could not reach down.test, good.test (look up down.test: no such host), "
	if !slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == "tests_offline" && strings.HasPrefix(f.Text, offline) }) {
		t.Errorf("no finding of the tests' downloads in %s", pretty(r.Findings))
	}
	for _, host := range []string{"evil.test", "127.0.0.1", "tests.test", "setup.test"} {
		if !slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == "host_refused" && strings.HasPrefix(f.Text, host+" ") }) {
			t.Errorf("no finding of %s in %s", host, pretty(r.Findings))
		}
	}
}
