package plugin

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
)

// kept collects lines.
type kept struct {
	mu    sync.Mutex
	lines []Line
}

func (k *kept) keep(l Line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, l)
}

// find waits for a line whose text contains part.
func (k *kept) find(t *testing.T, part string) (found Line) {
	t.Helper()
	testlevel.Eventually(t, part, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		i := slices.IndexFunc(k.lines, func(l Line) bool { return strings.Contains(l.Text, part) })
		if i >= 0 {
			found = k.lines[i]
		}
		return i >= 0
	})
	return found
}

// say lets a plugin write a line in a call of an attempt.
func say(t *testing.T, s agent.Session, attempt, line string) {
	t.Helper()
	if _, err := s.Turn(ForAttempt(t.Context(), attempt), agent.Message{Turn: 1, Text: "stderr " + line}, &notes{}); err != nil {
		t.Fatal(err)
	}
}

func TestOutputIsKeptWithoutSecretsAndByAttempt(t *testing.T) {
	t.Parallel()
	h, j := newHost(t, Options{Dirs: []string{write(t, "odd", "odd")}})
	k := &kept{}
	h.Keep(redact.New("sesame-sesame", `quoted"sesame`, "sésame-😀-sesame"), k.keep)
	s := open(t, h)
	say(t, s, "one/1", "plain sesame-sesame")
	if l := k.find(t, "plain"); l.Text != "plain [secret]" || l.Attempt != "one/1" || l.Plugin != "odd" || l.Stream != "stderr" || l.PID == 0 || l.Time.IsZero() {
		t.Errorf("a line of text is %+v", l)
	}
	say(t, s, "two/1", "from whom")
	if l := k.find(t, "from whom"); l.Attempt != "" {
		t.Errorf("the process has served two attempts, and the line is said to be of %q", l.Attempt)
	}
	say(t, s, "two/1", `{"@level":"error","@message":"record","@attempt":"one/1","key":"quoted\"sesame"}`)
	if l := k.find(t, "record"); l.Level != "error" || l.Attempt != "one/1" || l.Fields["key"] != "[secret]" {
		t.Errorf("a record is %+v", l)
	}
	say(t, s, "two/1", `{"@level":"error","@message":"escaped s\u00E9same-\ud83d\ude00-sesame","deep":[{"k":"\u0073esame-sesame"}]}`)
	if l := k.find(t, "escaped"); l.Text != "escaped [secret]" || fmt.Sprint(l.Fields) != "map[deep:[map[k:[secret]]]]" {
		t.Errorf("a record with escapes is %+v", l)
	}
	say(t, s, "two/1", `{"config": "s\u00e9same-\ud83d\ude00-sesame"} printed`)
	if l := k.find(t, "printed"); l.Text != `{"config": "[secret]"} printed` {
		t.Errorf("JSON of Python is %+v", l)
	}
	say(t, s, "two/1", `{"@level":"info","@message":"invented","@attempt":"three/1"}`)
	if l := k.find(t, "invented"); l.Attempt != "" {
		t.Errorf("an attempt that the process has not served is believed: %+v", l)
	}
	_, err := s.Turn(t.Context(), agent.Message{Turn: 1, Text: "stderr last sesame-sesame"}, &notes{})
	if err == nil {
		_, err = s.Turn(t.Context(), agent.Message{Turn: 2, Text: "die"}, &notes{})
	}
	if err == nil || !strings.Contains(err.Error(), "last [secret]") {
		t.Errorf("%v; want the last words, without the secret", err)
	}
	if strings.Contains(j.String(), "sesame") {
		t.Errorf("a secret is in the log:\n%s", j)
	}
}
