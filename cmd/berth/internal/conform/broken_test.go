package conform_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/cmd/berth/internal/conform"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent/agenttest"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/environment/environmenttest"
	"github.com/berth-eval/berth/plugins/surface/surfacetest"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
)

// broken says which clause each plugin of internal/brokenplugins breaks. Every
// clause of the kits of agents and verifiers has a row, and those of environments
// have theirs in brokenBoxes; a clause that no plugin breaks cannot fail.
var broken = []struct {
	plugin, clause string
	shells         bool // it is tried in sandboxes of bubblewrap
	cases          bool // it is tried with a work whose verdict is known
}{
	{plugin: "nameless", clause: "it has a version, and a doc for itself and each option"},
	{plugin: "moody", clause: "the same configuration gets the same answer twice"},
	{plugin: "lax-agent", clause: "an unknown key of a configuration is a problem that names it"},
	{plugin: "lax-agent", clause: "a configuration that is not an object is reported, and does not crash the plugin"},
	{plugin: "littering", clause: "no process of the plugin is left when it has ended"},

	{plugin: "wavering", clause: "check gives the same answer twice"},
	{plugin: "homeless", clause: "the answer of check is well-formed"},
	{plugin: "hasty", clause: "a session without a turn can be closed"},
	{plugin: "idle", clause: "a turn does what was asked, and ends with done", shells: true},
	{plugin: "aloof", clause: "a turn does what was asked, and ends with done", shells: true},
	{plugin: "unskilled", clause: "its model learns of a skill, if it supports them", shells: true},
	{plugin: "unserved", clause: "it asks an MCP server for its tools, if it supports them", shells: true},
	{plugin: "tireless", clause: "a turn does what was asked, and ends with done"},
	{plugin: "rambler", clause: "steps are steps of a valid trajectory"},
	{plugin: "boastful", clause: "artifacts are files of the scratch folder"},
	{plugin: "once", clause: "a second message continues the session"},
	{plugin: "drowsy", clause: "a second message continues the session", shells: true},
	{plugin: "brief", clause: "a message of 200 KiB is accepted"},
	{plugin: "unstoppable", clause: "a turn that is cut off ends soon"},
	{plugin: "sulking", clause: "a message after a turn that was cut off is accepted"},
	{plugin: "oblivious", clause: "a shell that refuses ends the turn", shells: true},
	{plugin: "tidying", clause: "the view is not changed"},
	{plugin: "curious", clause: "logs of a killed program are read without harm"},
	{plugin: "jealous", clause: "concurrent sessions do not mix"},

	{plugin: "hopeless", clause: "a submission that can be judged gets a verdict"},
	{plugin: "nan", clause: "a verdict has a decision and finite scores"},
	{plugin: "scoreless", clause: "a verdict has a decision and finite scores"},
	{plugin: "undecided", clause: "a verdict has a decision and finite scores"},
	{plugin: "strict", clause: "known submissions get the expected verdict", cases: true},
	{plugin: "generous", clause: "nothing to judge is never a pass"},
	{plugin: "fickle", clause: "the same work gets the same verdict"},
	{plugin: "crowded", clause: "each of many concurrent requests gets its own answer"},
	{plugin: "talkative", clause: "a handoff contains nothing of the references"},
	{plugin: "roundless", clause: "a verifier that judges between turns answers there"},
	{plugin: "lodger", clause: "a verifier that judges between turns answers there", shells: true},
	{plugin: "homebody", clause: "it can judge with the setting that gives it its own sandbox", shells: true},
	{plugin: "wordless", clause: "it has the capabilities that it announces"},
	{plugin: "scribbler", clause: "the view is not changed"},
	{plugin: "blind", clause: "a view that is not there is an error"},
	{plugin: "spinning", clause: "a cancel ends Verify soon"},
	{plugin: "lax-verifier", clause: "settings that are not JSON are an error"},
	{plugin: "trusting", clause: "links, pipes and huge files in the attempt do no harm"},
	{plugin: "resentful", clause: "after a failure the next request works"},
	{plugin: "offhand", clause: "a shell that refuses is an error, not a verdict", shells: true},

	{plugin: "restless", clause: "needs are the same each time"},
	{plugin: "unschooled", clause: "needs name actions that can be used, and kinds"},
	{plugin: "kindless", clause: "needs name actions that can be used, and kinds"},
	{plugin: "sole", clause: "each surface has its own id"},
	{plugin: "blank", clause: "a reset shows something"},
	{plugin: "dicey", clause: "the same level and seed give the same state"},
	{plugin: "nudging", clause: "observing changes nothing"},
	{plugin: "lavish", clause: "an observation has only what was asked for"},
	{plugin: "forged", clause: "what is shown can be used"},
	{plugin: "unwilling", clause: "an action that fits is done"},
	{plugin: "eager", clause: "an unknown action is a step with an error, and changes nothing"},
	{plugin: "gullible", clause: "arguments that do not fit are a step with an error"},
	{plugin: "spiteful", clause: "an unknown action is a step with an error, and changes nothing"},
	{plugin: "dicey", clause: "a reset after actions gives the first state again"},
	{plugin: "sole", clause: "surfaces do not share their state"},
	{plugin: "lonely", clause: "many concurrent calls are answered"},
	{plugin: "sulky", clause: "after an action that was cancelled the surface works"},
	{plugin: "hospitable", clause: "a call with an unknown id is an error"},
	{plugin: "touchy", clause: "a surface can be closed twice"},
	{plugin: "immortal", clause: "a closed surface can no longer be used"},
	{plugin: "inventive", clause: "an unknown capture is an error, and writes nothing"},
}

// short is the factor for the timeouts of clauses that are expected to fail.
// Without it, each plugin that does not stop takes as long as the kit waits for
// a plugin on a busy machine.
const short = "0.2" // the kit waits by a factor, which is the product's: these wait in vain

// TestKitsFindWhatIsBroken shows that each clause can fail.
//
// One after the other: some of them use a whole processor.
func TestKitsFindWhatIsBroken(t *testing.T) {
	t.Setenv(conformance.PatienceVariable, short)
	cases := known(t)
	for _, tt := range broken {
		t.Run(tt.plugin+": "+tt.clause, func(t *testing.T) {
			o := conform.Options{Only: tt.clause}
			if tt.shells {
				o.Shells = "sound"
			}
			if tt.cases {
				o.Cases = []string{cases}
			}
			results, err := try(t, tt.plugin, o)
			failed := slices.ContainsFunc(results, func(r conform.Result) bool { return r.Clause == tt.clause && r.Status == conformance.Fail })
			if !failed {
				t.Errorf("results are %+v, error %v; want that clause to fail", results, err)
			}
		})
	}
}

// TestEveryClauseCanFail holds the table against the kits.
func TestEveryClauseCanFail(t *testing.T) {
	t.Parallel()
	names := slices.Concat(conformance.Names(agenttest.Clauses()), conformance.Names(verifiertest.Clauses()),
		conformance.Names(surfacetest.Clauses()), conformance.Names(environmenttest.Clauses()), conform.ClausesOfAll())
	catches := map[string][]string{}
	for _, tt := range broken {
		catches[tt.clause] = append(catches[tt.clause], tt.plugin)
	}
	for _, tt := range brokenBoxes {
		catches[tt.clause] = append(catches[tt.clause], tt.plugin)
	}
	for _, name := range names {
		if len(catches[name]) == 0 {
			t.Errorf("no plugin of the table breaks the clause %q", name)
		}
		t.Logf("| %s | %s |", name, strings.Join(catches[name], ", "))
	}
}

// TestWhatWorksPasses: what the kit gives a plugin to work with suffices.
func TestWhatWorksPasses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		plugin string
		o      conform.Options
	}{
		{plugin: "caller", o: conform.Options{Shells: "sound"}}, // its model calls its tool
		{plugin: "owner", o: conform.Options{Shells: "sound"}},
		{plugin: "judge", o: conform.Options{Cases: []string{known(t)}}},
		{plugin: "sound"},
	} {
		t.Run(tt.plugin, func(t *testing.T) {
			t.Parallel()
			if tt.plugin == "sound" {
				bwrap(t)
			}
			results, err := try(t, tt.plugin, tt.o)
			passed := 0
			for _, r := range results {
				switch r.Status {
				case conformance.Fail:
					t.Errorf("%s: %q", r.Clause, r.Detail)
				case conformance.Pass:
					passed++
				case conformance.Skip:
				}
			}
			if err != nil || passed < 15 {
				t.Errorf("%d clauses passed, error %v", passed, err)
			}
		})
	}
}

// TestTheFirstHangIsTheLast: each further clause would wait as long.
func TestTheFirstHangIsTheLast(t *testing.T) {
	t.Setenv(conformance.PatienceVariable, short)
	results, err := try(t, "hanging", conform.Options{})
	last := results[len(results)-1]
	if err != nil || !last.Hung || last.Status != conformance.Fail || last.Clause != "a submission that can be judged gets a verdict" {
		t.Errorf("the last of %d results is %+v, error %v", len(results), last, err)
	}
}

// TestWhatWasNotSeenAtWorkIsNotTested: the clauses that a plugin passes without
// a sandbox, or without its configuration, say little.
func TestWhatWasNotSeenAtWorkIsNotTested(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ plugin, only, err string }{
		{"caller", "", "it was not seen at work on this machine, so the clauses that passed say little: it needs a shell, and no sandbox can be made here: berth doctor says why"},
		{"demanding", "", "cannot be tested without a configuration: word: \"word\" is required"},
		{"strict", "no such clause", `no clause has "no such clause" in its name`},
	} {
		_, err := try(t, tt.plugin, conform.Options{Only: tt.only})
		if err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %v; want %q", tt.plugin, err, tt.err)
		}
		if refused := errors.Is(err, environment.ErrRefused); refused != (tt.plugin == "caller") {
			t.Errorf("%s: refused is %t", tt.plugin, refused)
		}
	}
}

// known is a folder with works whose verdict is known.
func known(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good/case.json":                         `{"want": "pass"}`,
		"good/view/attempt/artifacts/answer.txt": "42\n",
		"none/case.json":                         `{"want": "fail"}`,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func bwrap(t *testing.T) {
	t.Helper()
	testlevel.Program(t, "bwrap", "bubblewrap")
}

// try tests a plugin of internal/brokenplugins.
func try(t *testing.T, plugin string, o conform.Options) (results []conform.Result, err error) {
	t.Helper()
	dir := t.TempDir()
	o.Binary, o.Sandboxd, o.Log, o.Dirs = filepath.Join(dir, plugin), filepath.Join(built, "sandboxd"), zerolog.Nop(), []string{}
	if o.Shells != "" {
		bwrap(t)
		o.Dirs = []string{filepath.Join(dir, "shells")}
		if err = errors.Join(os.Mkdir(o.Dirs[0], 0o700), os.Symlink(filepath.Join(built, "broken"), filepath.Join(o.Dirs[0], plugins.ProgramPrefix+o.Shells))); err != nil {
			t.Fatal(err)
		}
	}
	// The plugin host starts the link's target under the link's name.
	if err = os.Symlink(filepath.Join(built, "broken"), o.Binary); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err = conform.Test(ctx, o, func(r conform.Result) { results = append(results, r) })
	return results, err
}
