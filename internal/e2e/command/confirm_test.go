package command

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// A model became worse: it does not solve one task any more, and another one only
// most of the time. compare --confirm runs both again, and only the first one counts.
func TestTasksThatGotWorseAreConfirmed(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	var worse atomic.Bool
	var slips atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, err := io.ReadAll(r.Body)
		text := string(asked)
		switch {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		case strings.Contains(text, "touch /app/done") || strings.Contains(text, "touch /app/other"):
			sayChat(w, "first", "```bash\necho TASK_IS_COMPLETE\n```")
		case worse.Load() && (strings.Contains(text, "the bad file") || strings.Contains(text, "the shaky file") && slips.Add(1) == 1):
			sayChat(w, "first", "```bash\ntouch /app/other\n```")
		default:
			sayChat(w, "first", "```bash\ntouch /app/done\n```")
		}
	}))
	defer s.Close()
	dir := t.TempDir()
	for _, name := range []string{"bad", "good", "shaky"} {
		task(t, filepath.Join(dir, "tasks"), name, "touch /app/done")
		e2etest.Must(t, os.WriteFile(filepath.Join(dir, "tasks", name, "instruction.md"), fmt.Appendf(nil, "Write the %s file.\n", name), 0o600))
	}
	modelled(t, dir, "  agent = agent.one", fmt.Sprintf("  provider = \"openai-chat\"\n  name = \"first\"\n  api_key = secret(\"KEY\")\n  base_url = %q\n", s.URL+"/v1"))
	with := func(args ...string) result {
		return berthWith(t, dir, []string{"KEY=" + goodKey}, args...)
	}
	baseline := answer[types.Run](t, with("run", "--json", "--require", "passed = planned"), "cli-run").Dir
	worse.Store(true)
	now := answer[types.Run](t, with("run", "--json"), "cli-run")
	if now.Summary.Outcomes[record.Passed] != 1 {
		t.Fatalf("%+v", now.Summary)
	}
	r := with("compare", now.Dir, "--baseline", baseline, "--require", "no new failure", "--confirm", "3", "--junit", "junit.xml", "--json")
	r.want(t, 1)
	g := answer[types.Gate](t, r, "cli-compare-baseline")
	if g.Worse != 1 || len(g.Confirmed) != 3 || len(g.Tasks) != 3 {
		t.Fatalf("%+v", g)
	}
	for i, want := range []string{"e2e/bad true 0 of 3", "e2e/good false", "e2e/shaky false 3 of 3"} {
		w := &g.Tasks[i]
		got := fmt.Sprint(w.Task, " ", w.Worse)
		if w.Again != nil {
			got += fmt.Sprintf(" %d of %d", w.Again.Solved, w.Again.Measured)
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	junit, err := os.ReadFile(filepath.Join(dir, "junit.xml"))
	if err != nil || !strings.Contains(string(junit), `tests="3" failures="1"`) {
		t.Errorf("%v\n%s", err, junit)
	}
	show := answer[types.ShowRun](t, with("show", now.Dir, "--json"), "cli-show-run")
	if show.Summary.Outcomes[record.Passed] != 1 {
		t.Errorf("further trials changed the run: %+v", show.Summary)
	}
}
