package sandbox_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }

// The path an attempt takes: connect, a session, detach, settle, grade, end.
func TestAttempt(t *testing.T) {
	t.Parallel()
	b := sandboxtest.Start(t, sandboxtest.Options{Unconnected: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := host.Connect(ctx, b.Folder, b.Init, 30*time.Second)
	testlevel.Must(t, err)
	defer s.Close()
	if _, err = s.StartService(ctx, host.Service{Name: "main", Argv: []string{"sh", "-c", "sleep infinity"}}); err != nil {
		t.Fatal(err)
	}
	agent := host.Session{ID: "agent", Dir: "/app", Env: []string{"TASK=1"}}
	shell, err := s.Shell(ctx, agent)
	testlevel.Must(t, err)
	defer shell.Close()
	r, err := shell.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", "echo $TASK > answer; setsid sleep 9101 & until grep -qs ^sleep /proc/$!/cmdline; do sleep 0.01; done"}})
	if err != nil || !r.OK() {
		t.Fatalf("%+v, %v", r, err)
	}
	testlevel.Must(t, s.Detach(ctx, agent.ID))
	if _, err = s.Settle(ctx, []string{agent.ID}, nil); err != nil {
		t.Fatal(err)
	}
	ps, err := s.Processes(ctx)
	testlevel.Must(t, err)
	left := ps.Since(nil)
	if len(left) != 1 || !strings.Contains(strings.Join(left[0].Argv, " "), "sleep 9101") {
		t.Errorf("left by the agent: %+v, want the one sleep and not the service", left)
	}
	verifier, err := s.Shell(ctx, host.Session{ID: "verifier", Dir: "/app", Grading: true})
	testlevel.Must(t, err)
	defer verifier.Close()
	var out bytes.Buffer
	r, err = verifier.Exec(ctx, sandbox.Command{
		Argv: []string{"sh", "-c", "cat answer; (setsid sleep 9102 >/dev/null 2>&1 &)"}, Stdout: &out, Sweep: true,
	})
	if err != nil || !r.OK() || out.String() != "1\n" || len(r.Swept) != 1 {
		t.Errorf("%+v, %v, %q; want its daemon swept", r, err, out.String())
	}
	if data, err := verifier.Read(ctx, "/app/answer", 10); err != nil || string(data) != "1\n" {
		t.Errorf("read %q, %v", data, err)
	}
}
