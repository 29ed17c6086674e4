package faults

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// A provider at a wrong address stops the run at once, with a message of one
// sentence. When the provider can be reached, the run is resumed and completed.
func TestAProviderThatIsNotThereStopsTheRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	e2etest.Must(t, err)
	address := l.Addr().String()
	_ = l.Close()
	p.task("unreached", "", solveTiny, testTiny)
	p.experiment("agent = agent.loop\n  model = model.m\n  repeat = 4\n  limits {\n    in_flight = 1\n  }",
		fmt.Sprintf("agent \"loop\" {\n  plugin = \"minisweagent\"\n}\nmodel \"m\" {\n  provider = \"openai-chat\"\n  name = \"m1\"\n  base_url = \"http://%s/v1\"\n}\n", address))
	r := p.berth("run", ".", "--no-live").want(t, 3)
	why := fmt.Sprintf(`stopped: provider of model "m1": connection refused by %s`, address)
	if !strings.Contains(r.stdout, why) {
		t.Errorf("%s\nwant %s", r.stdout, why)
	}
	show := p.show(p.run())
	if o := show.Summary.Outcomes; o[record.NotRun] != 4 {
		t.Errorf("outcomes %v", o)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: newSolver(t).handler()}
	if l, err = net.Listen("tcp", address); err != nil { //nolint:noctx // as above
		testlevel.Cannot(t, "another program took the port: run the test again", err)
	}
	go func() { _ = s.Serve(l) }() // it ends with Close
	defer s.Close()
	p.berth("resume", p.run(), "--no-live").want(t, 0)
	p.clean()
}
