package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/surface/counter"
	"github.com/berth-eval/berth/plugins/task"
)

// bench is an open surface with its record and the client of a session.
type bench struct {
	*Surface
	door   *Door
	client *surface.Client
	dir    string

	mu    sync.Mutex
	lines []surface.Line
}

// fake is a surface whose calls a test may change.
type fake struct {
	counter.Game
	reset   func(*environment.Observation)
	observe func(context.Context, *environment.Observation) error
	act     func(context.Context, *environment.Step) error
	capture func(folder string) ([]string, error)
	spec    environment.SurfaceSpec
	always  []string // kinds that are recorded at every step
}

func (c *fake) OpenSurface(ctx context.Context, s environment.SurfaceSpec) (string, error) {
	c.spec = s
	return c.Game.OpenSurface(ctx, s)
}

func (c *fake) Reset(ctx context.Context, id string, s environment.Start) (environment.Observation, error) {
	o, err := c.Game.Reset(ctx, id, s)
	if c.reset != nil {
		c.reset(&o)
	}
	return o, err
}

func (c *fake) Observe(ctx context.Context, id string, want []string) (environment.Observation, error) {
	o, err := c.Game.Observe(ctx, id, want)
	if c.observe != nil {
		err = errors.Join(err, c.observe(ctx, &o))
	}
	return o, err
}

func (c *fake) Act(ctx context.Context, id string, call environment.Call, want []string) (environment.Step, error) {
	s, err := c.Game.Act(ctx, id, call, want)
	if c.act != nil {
		err = errors.Join(err, c.act(ctx, &s))
	}
	return s, err
}

func (c *fake) Capture(ctx context.Context, id string, w environment.Capture) ([]string, error) {
	if c.capture != nil {
		return c.capture(w.Folder)
	}
	return c.Game.Capture(ctx, id, w)
}

func needs(t *testing.T) Needs {
	t.Helper()
	n, err := (&counter.Game{}).Needs(t.Context(), environment.SurfaceRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return Needs{"main": n}
}

// open opens a counter for a stage, with a session whose door is open.
func open(t *testing.T, c *fake, asks *task.Surface) *bench {
	t.Helper()
	short, err := os.MkdirTemp("", "bs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	b := &bench{dir: t.TempDir()}
	n := needs(t)
	main := n["main"]
	main.Pictures = c.always
	n["main"] = main
	b.Surface, err = Open(t.Context(), Options{
		Plugin: c, Needs: n, Dir: t.TempDir(), Sockets: filepath.Join(short, "p"), Now: time.Now,
		Frames: filepath.Join(b.dir, "frames"),
		Append: func(l surface.Line) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lines = append(b.lines, l)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err = b.Begin(t.Context(), &task.Stage{Name: "main", Surface: asks}, 1); err != nil {
		t.Fatal(err)
	}
	if b.door, err = b.NewDoor(filepath.Join(short, "d")); err != nil {
		t.Fatal(err)
	}
	b.door.Open(t.Context())
	if b.client, err = surface.Dial(b.door.Address()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end := context.Background()
		if err := errors.Join(b.client.Close(), b.door.Shut(end), b.Close(end)); err != nil {
			t.Error(err)
		}
	})
	return b
}

// add acts, and fails the test if the call fails.
func (b *bench) add(t *testing.T, n int) environment.Step {
	t.Helper()
	s, err := b.client.Act(t.Context(), environment.Call{Name: "add", Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheAgentSeesNeitherRewardNorInfo(t *testing.T) {
	t.Parallel()
	b := open(t, &fake{}, &task.Surface{Level: "2"})
	s := b.add(t, 3)
	if s.Observation.Text != "The number is 6." || string(s.Observation.JSON) != `{"number":6}` || len(s.Observation.Frames) != 1 || s.Done || s.Error != "" {
		t.Errorf("the step is %+v", s)
	}
	if s.Reward != nil || s.Info != nil {
		t.Errorf("the agent got reward %v and info %s", s.Reward, s.Info)
	}
	if len(b.lines) != 2 || b.lines[0].Kind != "reset" || b.lines[0].Level != "2" || b.lines[0].Seed != 1 || b.lines[0].Text != "The number is 3." {
		t.Fatalf("the record is %+v", b.lines)
	}
	l := b.lines[1]
	if l.Kind != "act" || l.Action != "add" || string(l.Arguments) != `{"n":3}` || *l.Reward != 3 || string(l.Info) != `{"left":4}` || l.Step != 1 || l.Stage != "main" || l.Took <= 0 {
		t.Errorf("the line is %+v", l)
	}
}

// Pictures are recorded at every step, also those that the agent does not get, and
// that the task does not offer.
func TestPicturesAreRecordedWhateverTheAgentSees(t *testing.T) {
	t.Parallel()
	for _, offers := range [][]string{nil, {"number"}} {
		b := open(t, &fake{always: []string{"screen"}}, &task.Surface{Observations: offers})
		o, err := b.client.Observe(t.Context(), []string{"number"})
		if err != nil || len(o.Frames) > 0 || o.Text != "" || len(o.JSON) == 0 {
			t.Errorf("the agent sees %+v, %v", o, err)
		}
		s, err := b.client.Act(t.Context(), environment.Call{Name: "add", Arguments: json.RawMessage(`{"n":2}`)}, []string{"number"})
		if err != nil || len(s.Observation.Frames) > 0 {
			t.Errorf("the agent sees %+v, %v", s, err)
		}
		if len(b.lines) != 3 {
			t.Fatalf("%+v", b.lines)
		}
		for _, l := range b.lines {
			if len(l.Frames) != 1 || l.Frames[0].Name != "screen" {
				t.Errorf("%s has the frames %+v", l.Kind, l.Frames)
			}
		}
		if b.lines[2].Frames[0].File == b.lines[0].Frames[0].File {
			t.Error("the last picture is the first one")
		}
	}
}

// Steps may be replies of a model, with all their actions: the last one is done as a
// whole. An action that is refused ends the reply.
func TestStepsOfReplies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		of   string
		want string // the step of each action, and where the episode ends
	}{{task.StepsOfReplies, "1 1 2 3 3 4 4!"}, {task.StepsOfActions, "1 2 3 4!"}, {"", "1 2 3 4!"}} {
		b := open(t, &fake{}, &task.Surface{Steps: 4, StepsOf: tt.of})
		got := ""
		for _, c := range []struct {
			n    int
			more bool
		}{{1, true}, {1, false}, {99, true}, {1, true}, {1, false}, {1, true}, {1, false}} { // the third one is refused
			s, err := b.client.Act(t.Context(), environment.Call{Name: "add", Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, c.n)), More: c.more}, nil)
			if err != nil || (s.Error != "") != (c.n == 99) {
				t.Fatalf("%s: %+v, %v", tt.of, s, err)
			}
			if got += fmt.Sprint(" ", b.lines[len(b.lines)-1].Step); s.Truncated {
				got += "!"
				break
			}
		}
		if got != " "+tt.want {
			t.Errorf("steps of %q: %s, want %s", tt.of, got, tt.want)
		}
		if s, err := b.client.Act(t.Context(), environment.Call{Name: "clear"}, nil); err != nil || !s.Truncated || !strings.Contains(s.Error, "4 steps of the task are used up") {
			t.Errorf("after the last step: %+v, %v", s, err)
		}
	}
}

func TestEqualFramesAreKeptOnce(t *testing.T) {
	t.Parallel()
	b := open(t, &fake{}, &task.Surface{})
	for range 3 {
		if _, err := b.client.Observe(t.Context(), []string{"screen"}); err != nil {
			t.Fatal(err)
		}
	}
	b.add(t, 1)
	files, err := os.ReadDir(filepath.Join(b.dir, "frames"))
	if err != nil || len(files) != 2 {
		t.Errorf("files %v, %v; want 2", files, err)
	}
	f := b.lines[1].Frames[0]
	data, err := os.ReadFile(filepath.Join(b.dir, "frames", f.File))
	if err != nil || int64(len(data)) != f.Size || !strings.HasPrefix(f.Digest, "sha256:"+strings.TrimSuffix(f.File, ".png")) || f.Name != "screen" {
		t.Errorf("frame %+v, %v", f, err)
	}
	if b.lines[1].Text != "" || b.lines[1].Structure != nil {
		t.Errorf("it recorded %+v, and only the screen was wanted", b.lines[1])
	}
}

func TestOnlyWhatTheTaskListsIsLetThrough(t *testing.T) {
	t.Parallel()
	c := &fake{observe: func(_ context.Context, o *environment.Observation) error {
		o.Text, o.JSON = "more", json.RawMessage(`{"number":1,"secret":2}`) // also what was not asked for
		return nil
	}}
	b := open(t, c, &task.Surface{Actions: []string{"add"}, Observations: []string{"number"}})
	offer, err := b.client.Actions(t.Context())
	if err != nil || len(offer.Actions) != 1 || offer.Actions[0].Name != "add" || !slices.Equal(offer.Observations, []string{"number"}) {
		t.Errorf("it offers %+v, %v", offer, err)
	}
	o, err := b.client.Observe(t.Context(), nil)
	if err != nil || o.Text != "" || string(o.JSON) != `{"number":1}` || len(o.Frames) > 0 {
		t.Errorf("the agent sees %+v, %v; want the number only", o, err)
	}
	if _, err = b.client.Observe(t.Context(), []string{"numbr"}); !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), `did you mean "number"`) {
		t.Errorf("a kind that is not there: %v", err)
	}
	s, err := b.client.Act(t.Context(), environment.Call{Name: "clear"}, nil)
	if err != nil || !strings.Contains(s.Error, `there is no action "clear"`) || s.Observation.Text != "" {
		t.Errorf("an action that the task does not list: %+v, %v", s, err)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	b := open(t, &fake{}, &task.Surface{})
	for _, tt := range []struct{ name, arguments, want string }{
		{"add", `{"n":12}`, "maximum"},
		{"add", ``, "n"},
		{"add", `{"n":1`, "not a JSON object"},
		{"add", `[1]`, "not a JSON object"},
		{"add", `null`, "not a JSON object"},
		{"add", `{"n":1} {"n":1}`, "not a JSON object"},
		{"add", `{"n":` + strings.Repeat(" ", 2<<20) + `1}`, "bytes"},
		{"clear", `{"n":1}`, "takes no arguments"},
		{"ad", `{"n":1}`, `did you mean "add"?`},
		{"", ``, "there is no action"},
		{strings.Repeat("x", 5000), ``, "there is no action"},
	} {
		s, err := b.client.Act(t.Context(), environment.Call{Name: tt.name, Arguments: json.RawMessage(tt.arguments)}, nil)
		if err != nil || !strings.Contains(s.Error, tt.want) || len(s.Error) > 3000 {
			t.Errorf("%.20s(%.20s): %.3000s, %v; want %q", tt.name, tt.arguments, s.Error, err, tt.want)
		}
	}
	if s, err := b.client.Act(t.Context(), environment.Call{Name: "clear", Arguments: json.RawMessage(`{}`)}, nil); err != nil || s.Error != "" {
		t.Errorf("clear: %+v, %v", s, err)
	}
	for _, l := range b.lines {
		if line, err := json.Marshal(l); err != nil || len(line) > 40_000 {
			t.Errorf("a line has %d bytes (%v)", len(line), err)
		}
	}
}

func TestTheLastStepIsTruncatedAndTheNextRefused(t *testing.T) {
	t.Parallel()
	b := open(t, &fake{}, &task.Surface{Steps: 2})
	if s := b.add(t, 1); s.Truncated || b.OutOfSteps() {
		t.Errorf("the first step is %+v", s)
	}
	if s := b.add(t, 1); !s.Truncated || s.Error != "" || !b.OutOfSteps() {
		t.Errorf("the last step is %+v", s)
	}
	if s := b.add(t, 1); !s.Truncated || !strings.Contains(s.Error, "2 steps") || b.lines[3].Step != 0 {
		t.Errorf("the step after it is %+v", s)
	}
	if o, err := b.client.Observe(t.Context(), nil); err != nil || o.Text != "The number is 3." {
		t.Errorf("the agent sees %+v, %v", o, err)
	}
	if err := b.Begin(t.Context(), &task.Stage{Name: "main", Surface: &task.Surface{Steps: 2}}, 1); err != nil {
		t.Fatal(err)
	}
	if s := b.add(t, 1); s.Error != "" || b.OutOfSteps() {
		t.Errorf("after a reset: %+v", s)
	}
	if err := b.Begin(t.Context(), &task.Stage{Name: "other"}, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Act(t.Context(), environment.Call{Name: "clear"}, nil); !errors.Is(err, fault.ErrRevoked) {
		t.Errorf("in a stage without a surface: %v", err)
	}
}

func TestNothingFollowsDone(t *testing.T) {
	t.Parallel()
	b := open(t, &fake{}, &task.Surface{Steps: 2})
	if s := b.add(t, 8); s.Done {
		t.Errorf("the step is %+v", s)
	}
	if s := b.add(t, 1); !s.Done || s.Truncated || b.OutOfSteps() {
		t.Errorf("the last step is %+v", s)
	}
	s, err := b.client.Act(t.Context(), environment.Call{Name: "clear"}, nil)
	if err != nil || !s.Done || !strings.Contains(s.Error, "over") {
		t.Errorf("after done: %+v, %v", s, err)
	}
	if o, err := b.client.Observe(t.Context(), []string{"text"}); err != nil || o.Text != "The number is 10." {
		t.Errorf("the number was cleared: %+v, %v", o, err)
	}
}

func TestAFrameMayComeInAFile(t *testing.T) {
	t.Parallel()
	c := &fake{}
	c.observe = func(_ context.Context, o *environment.Observation) error {
		o.Frames = []environment.Frame{{Name: "screen", MediaType: "image/png", Path: "a.png"}}
		return os.WriteFile(filepath.Join(c.spec.Frames, "a.png"), counter.Picture(7), 0o600)
	}
	b := open(t, c, &task.Surface{})
	o, err := b.client.Observe(t.Context(), nil)
	if err != nil || len(o.Frames) != 1 || !slices.Equal(o.Frames[0].Data, counter.Picture(7)) || o.Frames[0].Path != "" {
		t.Errorf("the agent got %+v, %v", o, err)
	}
	if files, err := os.ReadDir(c.spec.Frames); err != nil || len(files) > 0 {
		t.Errorf("the folder still has %v, %v", files, err)
	}
}

func TestACallThatTakesTooLong(t *testing.T) {
	t.Parallel()
	b := open(t, &fake{act: func(ctx context.Context, _ *environment.Step) error {
		<-ctx.Done()
		return ctx.Err()
	}}, &task.Surface{})
	b.limit = 50 * time.Millisecond
	_, err := b.client.Act(t.Context(), environment.Call{Name: "clear"}, nil)
	if err == nil || !strings.Contains(err.Error(), "did not answer within 50ms") || !errors.Is(b.Err(), ErrLost) || !b.Acted() {
		t.Errorf("got %v; it is lost by %v", err, b.Err())
	}
}

// A turn that is cut in the middle of an action leaves no later action.
func TestACutTurn(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	b := open(t, &fake{act: func(ctx context.Context, _ *environment.Step) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}, &task.Surface{})
	var agent sync.WaitGroup
	answers := make(chan error, 3)
	for range 3 { // one is under way, and two wait for it
		agent.Go(func() {
			_, err := b.client.Act(t.Context(), environment.Call{Name: "clear"}, nil)
			answers <- err
		})
	}
	<-begun
	if err := b.door.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := len(b.lines)
	agent.Wait()
	for range 3 {
		if err := <-answers; !errors.Is(err, fault.ErrRevoked) {
			t.Errorf("a call was answered with %v, want ErrRevoked", err)
		}
	}
	if _, err := b.client.Observe(t.Context(), nil); !errors.Is(err, fault.ErrRevoked) {
		t.Errorf("after the turn: %v, want ErrRevoked", err)
	}
	if len(b.lines) != lines || lines != 2 || !strings.Contains(b.lines[1].Error, "not open") {
		t.Errorf("the record has %d lines after the cut and %d later: %+v", lines, len(b.lines), b.lines)
	}
	if b.Err() != nil {
		t.Errorf("the surface is lost: %v", b.Err())
	}
	b.door.Open(t.Context())
	if o, err := b.client.Observe(t.Context(), []string{"text"}); err != nil || o.Text == "" {
		t.Errorf("in the next turn: %+v, %v", o, err)
	}
}
