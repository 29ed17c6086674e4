package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/surface/counter"
	"github.com/berth-eval/berth/plugins/task"
)

func TestCaptures(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		capture string
		take    func(folder string) ([]string, error)
		want    string
	}{
		"good":              {capture: "export"},
		"unknown":           {capture: "nothing", want: "no capture"},
		"nothing":           {capture: "export", take: func(string) ([]string, error) { return nil, nil }, want: "the capture is empty"},
		"a missing file":    {capture: "export", take: func(string) ([]string, error) { return []string{"a"}, nil }, want: "no such file"},
		"out of the folder": {capture: "export", take: func(string) ([]string, error) { return []string{"../x"}, nil }, want: "x"},
		"a link": {capture: "export", take: func(dir string) ([]string, error) {
			return []string{"l"}, os.Symlink(secret, filepath.Join(dir, "l"))
		}, want: "link"},
		"a link beside it": {capture: "export", take: func(dir string) ([]string, error) {
			return []string{"a"}, errors.Join(os.WriteFile(filepath.Join(dir, "a"), nil, 0o600), os.Symlink(secret, filepath.Join(dir, "l")))
		}, want: "not a regular file"},
		"too large": {capture: "export", take: func(dir string) ([]string, error) {
			return []string{"a"}, errors.Join(os.WriteFile(filepath.Join(dir, "a"), nil, 0o600), os.WriteFile(filepath.Join(dir, "b"), make([]byte, surface.MaxCapture+1), 0o600))
		}, want: "more than"},
		"late": {capture: "export", take: func(string) ([]string, error) {
			time.Sleep(100 * time.Millisecond) // longer than the limit of this case
			return []string{"a"}, nil
		}, want: "did not end within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, &fake{capture: tt.take}, &task.Surface{})
			if name == "late" {
				b.limit = 10 * time.Millisecond
			}
			dir, kept := t.TempDir(), ""
			failed := b.Captures(t.Context(), []task.Capture{{Name: tt.capture}}, dir, func(folder, name string) error {
				data, err := os.ReadFile(filepath.Join(folder, "export.json"))
				kept = name + string(data)
				return err
			})
			if tt.want == "" && (len(failed) > 0 || kept != `export{"number":1}`) || tt.want != "" && (len(failed) != 1 || !strings.Contains(failed[0].Error(), tt.want) || kept != "") {
				t.Errorf("kept %q, failed %v; want %q", kept, failed, tt.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
			if b.Err() != nil {
				t.Errorf("a capture that failed lost the surface: %v", b.Err())
			}
		})
	}
}

func TestWhatATaskAsksForInVain(t *testing.T) {
	t.Parallel()
	n := needs(t)["main"]
	for name, tt := range map[string]struct {
		asks task.Surface
		n    environment.SurfaceNeeds
		want string
	}{
		"nothing":      {n: n},
		"all":          {asks: task.Surface{Actions: []string{"add"}, Observations: []string{"screen"}}, n: n},
		"a slip":       {asks: task.Surface{Actions: []string{"ad"}}, n: n, want: `the surface has no action "ad". The task asks for it. Did you mean "add"?`},
		"another kind": {asks: task.Surface{Observations: []string{"axtree"}}, n: n, want: `no kind of observation "axtree". The task asks for it. Known: text, number, screen.`},
		"a refusal":    {asks: task.Surface{Actions: []string{"ad"}}, n: environment.SurfaceNeeds{Refusals: []string{"no such level"}}, want: "the surface refuses: no such level"},
		"no schema":    {n: environment.SurfaceNeeds{Actions: []environment.Action{{Name: "x", Schema: json.RawMessage(`{"type":"dog"}`)}}}, want: "the schema of action"},
		"twice":        {n: environment.SurfaceNeeds{Actions: []environment.Action{{Name: "x"}, {Name: "x"}}}, want: `two actions with the name "x"`},
	} {
		ps := Problems(tt.n, &tt.asks)
		if tt.want == "" && len(ps) > 0 || tt.want != "" && (len(ps) != 1 || !strings.Contains(ps[0].String(), tt.want)) {
			t.Errorf("%s: %+v, want %q", name, ps, tt.want)
		}
	}
}

func TestFurnish(t *testing.T) {
	t.Parallel()
	n := Needs{"a": {Mounts: []environment.Mount{{Source: "/b", Target: "/x"}}, ShmMiB: 64, MemoryMiB: 512}, "b": {Mounts: []environment.Mount{{Source: "/b", Target: "/x"}}, ShmMiB: 32}}
	spec := environment.Spec{Limits: environment.Limits{MemoryMiB: 512}}
	if ps := n.Furnish(&spec); len(ps) > 0 || len(spec.Mounts) != 1 || spec.Limits.ShmMiB != 64 {
		t.Errorf("got %+v, %+v", spec, ps)
	}
	spec.Limits.MemoryMiB = 511
	if ps := n.Furnish(&spec); len(ps) != 1 || !strings.Contains(ps[0].String(), "512 MiB of memory. The sandbox has 511 MiB.") {
		t.Errorf("with too little memory: %+v", ps)
	}
}

// A plugin reaches a port inside at an address on the host, as long as its
// surface is open.
func TestPorts(t *testing.T) {
	t.Parallel()
	short, err := os.MkdirTemp("", "bs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	c := &fake{}
	n := needs(t)["main"]
	n.Ports = map[string]int{"cdp": 9222}
	s, err := Open(t.Context(), Options{
		Plugin: c, Needs: Needs{"main": n}, Dir: t.TempDir(), Sockets: filepath.Join(short, "p"), Now: time.Now,
		Dial: func(_ context.Context, port int) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = fmt.Fprintf(theirs, "port %d", port)
				_ = theirs.Close()
			}()
			return ours, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(c.spec.Ports["cdp"], "unix:")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "port 9222" {
		t.Errorf("got %q, %v", got, err)
	}
	if err = s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the address is still there")
	}
}

// patient notes how long its Reset may take.
type patient struct {
	counter.Game
	left time.Duration
}

func (p *patient) Reset(ctx context.Context, id string, s environment.Start) (environment.Observation, error) {
	end, _ := ctx.Deadline()
	p.left = time.Until(end)
	return p.Game.Reset(ctx, id, s)
}

// What is in a picture of the surface is kept as it is without a mask, and the agent
// sees it either way.
func TestFramesAreKeptMasked(t *testing.T) {
	t.Parallel()
	const secret = "of-the-surface-4f1d9b7a"
	for name, mask := range map[string]func([]byte) []byte{"without a mask": nil, "with a mask": redacted} {
		shown := append(counter.Picture(1), secret...)
		b := open(t, &fake{observe: func(_ context.Context, o *environment.Observation) error {
			o.Frames = []environment.Frame{{Name: "screen", MediaType: "image/png", Data: shown}}
			return nil
		}}, &task.Surface{})
		b.o.Mask = mask
		seen, err := b.client.Observe(t.Context(), []string{"screen"})
		if err != nil || len(seen.Frames) != 1 || !bytes.Equal(seen.Frames[0].Data, shown) {
			t.Errorf("%s: the agent sees %v, %v", name, seen.Frames, err)
		}
		var kept []byte
		err = filepath.WalkDir(filepath.Join(b.dir, "frames"), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				var one []byte
				one, err = os.ReadFile(path)
				kept = append(kept, one...)
			}
			return err
		})
		if err != nil || len(kept) == 0 || bytes.Contains(kept, []byte(secret)) != (mask == nil) {
			t.Errorf("%s: kept %q, %v", name, kept, err)
		}
	}
}

func redacted(b []byte) []byte {
	return bytes.ReplaceAll(b, []byte("of-the-surface-4f1d9b7a"), []byte("***********************"))
}

// A surface that waits for its page may ask for more time for a reset.
func TestAResetMayTakeLonger(t *testing.T) {
	t.Parallel()
	b := open(t, &fake{}, &task.Surface{})
	p := &patient{}
	b.o.Plugin = p
	var err error
	if b.id, err = p.OpenSurface(t.Context(), environment.SurfaceSpec{Frames: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	for _, more := range []time.Duration{0, time.Hour} {
		n := b.o.Needs["main"]
		n.ResetTime = more
		b.o.Needs["main"] = n
		if err = b.Begin(t.Context(), &task.Stage{Name: "main", Surface: &task.Surface{}}, 1); err != nil {
			t.Fatal(err)
		}
		if p.left > more+surface.CallTime || p.left < more+surface.CallTime/2 {
			t.Errorf("with %s more, a reset has %s", more, p.left)
		}
	}
	if ps := Problems(environment.SurfaceNeeds{ResetTime: 2 * time.Hour}, &task.Surface{}); len(ps) != 1 {
		t.Errorf("a reset of two hours: %v", ps)
	}
}
