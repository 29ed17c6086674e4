package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m.Run, sandboxtest.Inside{})) }

// talker is a dialog in words: what the CLI says is a step, what it asks is
// answered, and "over" is the end of a turn.
type talker struct {
	echo

	talk *Talk
}

func (k *talker) Begin(t *Talk) {
	k.talk = t
	if t.Fresh {
		t.Send([]byte("hello\n"))
	}
	t.Send([]byte("do " + t.Run.Message + "\n"))
}

func (k *talker) Line(line []byte) {
	switch verb, rest, _ := strings.Cut(string(line), " "); verb {
	case "ask":
		k.talk.Send([]byte("answer " + rest + "\n"))
	case "over":
		k.talk.Yield(agent.Yield{End: agent.Done, Message: k.said, Reason: rest}, nil)
	default:
		k.echo.Line(line)
	}
}

func (k *talker) Stop() { k.talk.Send([]byte("stop\n")) }

// talking is a session with a program for sh that speaks so, in a real sandbox.
func talking(t *testing.T, program string, k *talker, limits agent.Limits) *session {
	t.Helper()
	s := &session{
		scaffold: Scaffold{Start: func(*Run) (Start, error) { return Start{Argv: []string{"/bin/sh", "-c", program}}, nil }},
		setup:    agent.Setup{Workdir: "/", Scratch: t.TempDir(), Limits: limits}, model: model.Endpoint{Name: "m"},
		shell: sandboxtest.Start(t, sandboxtest.Options{}).Shell("agent"), close: func() error { return nil }, looked: true,
	}
	s.book = newTranscript("m", "", s.setup.Scratch)
	k.book = s.book
	s.dialog = k
	return s
}

// The words of a program that greets, and then does what it is told, by one
// process in all turns.
const talkative = `mkdir -p /var/lib; n=0
while read -r verb rest; do
	case $verb in
	hello) echo "session $$" ;;
	do) n=$((n + 1)); echo "ask how"; read -r _ how; echo "say $rest $n by $$ $how"; [ "$rest" != leave ] || exit 3; echo "over $$"; echo "say late" ;;
	esac
done`

func TestADialogGoesOnWithOneProcess(t *testing.T) {
	t.Parallel()
	s := talking(t, talkative, &talker{}, agent.Limits{})
	r := &recorded{}
	var pids []string
	for i, text := range []string{"first", "second"} {
		y, err := s.Turn(t.Context(), agent.Message{Turn: i + 1, Text: text}, r)
		if err != nil || y.End != agent.Done || !strings.HasPrefix(y.Message, text+" ") || !strings.HasSuffix(y.Message, " how") {
			t.Fatalf("turn %d: %+v, %v", i+1, y, err)
		}
		pids = append(pids, y.Reason)
	}
	if pids[0] != pids[1] || s.book.Session != pids[0] {
		t.Errorf("processes %q, session %q", pids, s.book.Session)
	}
	y, err := s.Turn(t.Context(), agent.Message{Turn: 3, Text: "leave"}, r)
	if err != nil || y.End != agent.Crashed || y.ExitCode != 3 {
		t.Errorf("a program that ends: %+v, %v", y, err)
	}
	if y, err = s.Turn(t.Context(), agent.Message{Turn: 4, Text: "more"}, r); err != nil || y.End != agent.Crashed || !strings.Contains(y.Reason, "earlier turn") {
		t.Errorf("after its end: %+v, %v", y, err)
	}
	if first, missing := os.ReadFile(s.setup.Scratch + "/stdout.jsonl"); missing != nil || !strings.Contains(string(first), "say first 1") {
		t.Errorf("kept %q, %v", first, missing)
	}
}

func TestADialogIsStoppedWhenItsStepsAreUsedUp(t *testing.T) {
	t.Parallel()
	const counts = `mkdir -p /var/lib; while read -r verb rest; do
	case $verb in do) echo "say one"; echo "say two"; echo "say three" ;; stop) echo "over stopped" ;; esac
done`
	s := talking(t, counts, &talker{}, agent.Limits{MaxSteps: 2})
	y, err := s.Turn(t.Context(), agent.Message{Turn: 1}, &recorded{})
	if err != nil || y.End != agent.MaxSteps || s.program == nil {
		t.Errorf("%+v, %v; want that it stopped, and lives", y, err)
	}
	stubborn := talking(t, strings.Replace(counts, "over stopped", "say never", 1), &talker{}, agent.Limits{MaxSteps: 2})
	stubborn.patience = time.Millisecond // it never answers: a shorter wait loses nothing
	if y, err = stubborn.Turn(t.Context(), agent.Message{Turn: 1}, &recorded{}); err != nil || y.End != agent.MaxSteps || stubborn.program != nil {
		t.Errorf("%+v, %v; want that it was killed", y, err)
	}
}
