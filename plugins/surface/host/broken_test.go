package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/surface/counter"
	"github.com/berth-eval/berth/plugins/task"
)

// isLost observes once more, and checks that the surface is lost by that.
func (b *bench) isLost(t *testing.T, want string, breach bool) {
	t.Helper()
	_, err := b.client.Observe(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the agent got %v, want %q", err, want)
	}
	select {
	case <-b.Lost():
	default:
		t.Error("it is not lost")
	}
	if err = b.Err(); !errors.Is(err, ErrLost) || errors.Is(err, ErrBreach) != breach {
		t.Errorf("it is lost by %v; want a breach: %v", err, breach)
	}
	if _, err = b.client.Act(t.Context(), environment.Call{Name: "clear"}, nil); err == nil {
		t.Error("it is still used")
	}
	if l := b.lines[len(b.lines)-1]; l.Kind != "observe" || !strings.Contains(l.Error, want) {
		t.Errorf("the record ends with %+v", l)
	}
}

func TestASurfaceThatIsBrokenIsNotUsedAnyMore(t *testing.T) {
	t.Parallel()
	picture := counter.Picture(1)
	frame := func(f environment.Frame) func(context.Context, *environment.Observation) error {
		return func(_ context.Context, o *environment.Observation) error {
			o.Frames = []environment.Frame{f}
			return nil
		}
	}
	outside := filepath.Join(t.TempDir(), "secret.png")
	if err := os.WriteFile(outside, picture, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		observe func(context.Context, *environment.Observation) error
		files   func(dir string) error
		breach  bool
		want    string
	}{
		"an error":                {observe: func(context.Context, *environment.Observation) error { return errors.New("it crashed") }, want: "it crashed"},
		"a frame of another type": {observe: frame(environment.Frame{Name: "screen", MediaType: "text/html", Data: []byte("<p>")}), breach: true, want: "text/html"},
		"a frame that is another": {observe: frame(environment.Frame{Name: "screen", MediaType: "image/jpeg", Data: picture}), breach: true, want: "not image/jpeg"},
		"an empty frame":          {observe: frame(environment.Frame{Name: "screen", MediaType: "image/png"}), breach: true, want: "not image/png"},
		"a path out of its folder": {
			observe: frame(environment.Frame{Name: "screen", MediaType: "image/png", Path: "../" + filepath.Base(filepath.Dir(outside)) + "/secret.png"}), breach: true, want: "frame",
		},
		"an absolute path": {observe: frame(environment.Frame{Name: "screen", MediaType: "image/png", Path: outside}), breach: true, want: "frame"},
		"a link": {
			observe: frame(environment.Frame{Name: "screen", MediaType: "image/png", Path: "link.png"}), breach: true, want: "link",
			files: func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "link.png")) },
		},
		"a frame of 1 GB": {
			observe: frame(environment.Frame{Name: "screen", MediaType: "image/png", Path: "large.png"}), breach: true, want: "bytes",
			files: func(dir string) error {
				f, err := os.Create(filepath.Join(dir, "large.png"))
				if err != nil {
					return err
				}
				return errors.Join(f.Truncate(1<<30), f.Close())
			},
		},
		"too much text": {observe: func(_ context.Context, o *environment.Observation) error {
			o.Text = strings.Repeat("x", surface.MaxText+1)
			return nil
		}, want: "bytes"},
		"a structure that is not an object": {observe: func(_ context.Context, o *environment.Observation) error {
			o.JSON = json.RawMessage(`[1]`)
			return nil
		}, breach: true, want: "not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &fake{observe: tt.observe}
			b := open(t, c, &task.Surface{})
			if tt.files != nil {
				if err := tt.files(c.spec.Frames); err != nil {
					t.Fatal(err)
				}
			}
			b.isLost(t, tt.want, tt.breach)
			if _, err := os.Stat(outside); err != nil {
				t.Error(err)
			}
		})
	}
}
