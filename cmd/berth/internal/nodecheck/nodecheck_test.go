package nodecheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/core/run/cluster"
)

// oneNode runs the end on the node in this process: both ends are real, the way to
// the node is not. The real Slurm is in internal/e2e/slurm.
type oneNode struct {
	node  *Node  // nil: the job ends at once
	print string // what the job prints
	waits string // the job waits for ever
	over  chan error
}

func (o *oneNode) Try(ctx context.Context, file string, _ ...string) (string, error) {
	if o.waits != "" {
		return "7", nil
	}
	if o.node != nil {
		go func() { o.over <- o.node.Work(ctx) }()
	}
	return "7", os.WriteFile(file, []byte(o.print), 0o600)
}

func (o *oneNode) State(context.Context) ([]cluster.JobState, error) {
	if o.waits == "" {
		return nil, nil
	}
	return []cluster.JobState{{Job: "7", Waits: o.waits}}, nil
}

func node(t *testing.T, dir string) *Node {
	t.Helper()
	scratch := t.TempDir()
	return &Node{
		Dir:     dir,
		Scratch: func(string) (string, error) { return scratch, nil },
		Digest: func(file string) (string, error) {
			b, err := os.ReadFile(file)
			return string(b), err
		},
		Doctor: func(context.Context) (*output.Doctor, error) {
			return &output.Doctor{Environments: []output.DoctorEnvironment{{Name: "local", OK: true}}}, nil
		},
	}
}

func look(t *testing.T, o *oneNode, dir string, q Request) *Seen {
	t.Helper()
	o.over = make(chan error, 1)
	q.UID = os.Getuid()
	c := Check{
		Dir: dir, Scheduler: o, Request: q, Wait: time.Minute, Late: 10 * time.Second, Every: 10 * time.Millisecond,
		Say: func(text string) { t.Log(text) },
	}
	if o.node == nil {
		c.Late = 50 * time.Millisecond
	}
	if o.waits != "" {
		c.Wait = 100 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := c.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if o.node != nil && o.waits == "" {
		if err = <-o.over; err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var needs = Needs{Environments: []string{"local"}}

func TestBothEndsOfAGoodFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte("digest"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := look(t, &oneNode{node: node(t, dir)}, dir, Request{Files: map[string]string{file: "digest"}, Folders: []string{dir}})
	d := s.Findings("login", &needs, nil)
	for _, c := range d.Checks {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Text)
		}
	}
	r := s.Report
	if r.Relay.Address == "" {
		t.Errorf("the relay was not found: %+v", r.Relay)
	}
	if left, _ := filepath.Glob(filepath.Join(r.Scratch.Dir, "*")); len(left) > 0 {
		t.Errorf("left in the scratch folder: %v", left)
	}
}

func TestWhatANodeDoesNotHaveIsSaidWithARemedy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := node(t, dir)
	n.Scratch = func(string) (string, error) { return "", errors.New("it is on NFS") }
	n.Doctor = func(context.Context) (*output.Doctor, error) {
		return &output.Doctor{Environments: []output.DoctorEnvironment{{Name: "local"}}}, nil
	}
	s := look(t, &oneNode{node: n}, dir, Request{Files: map[string]string{file: "digest", dir + "/none": ""}, Folders: []string{dir + "/tasks"}})
	s.Report.Relay = reach(t.Context(), uplink.Place{Addresses: []string{"127.0.0.1:1"}})
	want := needs
	want.Environments, want.Relayed = []string{"local", "podman"}, true
	d := s.Findings("login", &want, nil)
	for name, text := range map[string]string{
		"programs": file, "programs and tasks": dir + "/tasks: no such file or directory; open " + dir + "/none", "scratch": "NFS", "connection": "127.0.0.1:1",
		"environment local": "cannot make sandboxes", "environment podman": "does not have it",
	} {
		if c := find(d, name); c == nil || c.OK || c.Remedy == "" || !strings.Contains(c.Text, text) {
			t.Errorf("%s: %+v, wanted %q and a remedy", name, c, text)
		}
	}
	if d.Ready {
		t.Error("it is called ready")
	}
}

func find(d *output.DoctorCluster, name string) *output.DoctorCheck {
	for i := range d.Checks {
		if d.Checks[i].Name == name {
			return &d.Checks[i]
		}
	}
	return nil
}

// The scratch folder of a node is not one that the submitting machine has as well.
func TestASharedScratchFolderIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := look(t, &oneNode{node: node(t, dir)}, dir, Request{Host: "another", Scratch: t.TempDir()})
	d := s.Findings("another", &needs, nil)
	if c := find(d, "scratch"); c == nil || c.OK || !strings.Contains(c.Text, "so it is shared") || d.Ready {
		t.Errorf("%+v", d.Checks)
	}
}

func TestAJobWithoutAReport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job  oneNode
		text string
	}{
		"ended":   {oneNode{print: "module: not found\n"}, "left no report; it printed: module: not found"},
		"silent":  {oneNode{}, "left no report"},
		"waiting": {oneNode{waits: "the partition is down"}, "did not start within 100ms: the partition is down"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := look(t, &c.job, dir, Request{})
			printed, _ := os.ReadFile(Out(dir)) //nolint:errcheck // a job that waits prints nothing
			d := s.Findings("login", &needs, printed)
			if d.Ready || len(d.Checks) != 1 || !strings.Contains(d.Checks[0].Text, c.text) || d.Checks[0].Remedy == "" {
				t.Errorf("%+v", d)
			}
		})
	}
}
