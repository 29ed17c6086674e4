package agenttest

import (
	"cmp"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/trajectory"
)

type clause = conformance.Clause[Subject]

// patience is how long an agent may take to notice that its turn is over, on an
// idle machine.
const patience = 5 * time.Second

// needsClauses are about Check.
var needsClauses = []clause{
	conformance.New("check gives the same answer twice", "a plan that asks for one thing and a run that gets another", func(t *conformance.T, s Subject) {
		if first, second := s.needs(t), s.needs(t); !reflect.DeepEqual(first, second) {
			t.Errorf("first %+v; then %+v", first, second)
		}
	}),
	conformance.New("the answer of check is well-formed", "a bundle at a relative path, or a dialect that no gateway speaks", func(t *conformance.T, s Subject) {
		needs := s.needs(t)
		for _, d := range needs.Dialects {
			switch d {
			case model.DialectAnthropic, model.DialectOpenAI, model.DialectOpenAIChat, model.DialectGemini:
			default:
				t.Errorf("speaks dialect %q, which no gateway offers", d)
			}
		}
		for _, b := range needs.Bundles {
			if !filepath.IsAbs(b.Source) || !path.IsAbs(b.Target) {
				t.Errorf("bundle %+v: both paths must be absolute", b)
			}
		}
		for _, l := range needs.Logs {
			if !path.IsAbs(l) {
				t.Errorf("log path %q is not absolute", l)
			}
		}
	}),
}

// sessionClauses are about sessions and turns. Where no session can be opened, they
// are skipped.
var sessionClauses = whereAble([]clause{
	conformance.New("a turn does what was asked, and ends with done", "an agent that answers each call correctly, and never does any work", works).Within(30 * time.Second).AsProof(),
	conformance.New("a session without a turn can be closed",
		"an attempt that fails between open and the first turn", func(t *conformance.T, s Subject) { s.open(t, nil).close() }),
	conformance.New("steps are steps of a valid trajectory", "a trajectory.json that no reader of the format accepts", func(t *conformance.T, s Subject) {
		o := s.open(t, nil)
		o.whole()
		if len(o.steps) == 0 {
			return // an agent that does nothing records no trajectory
		}
		for i := range o.steps {
			o.steps[i].StepID = int64(i + 1)
		}
		data, err := json.Marshal(trajectory.Trajectory{Agent: trajectory.Agent{Name: "kit", Version: "1"}, Steps: o.steps})
		t.Must("steps", err)
		for _, v := range trajectory.Validate(data) {
			t.Errorf("%s", v)
		}
	}),
	conformance.New("artifacts are files of the scratch folder", "an artifact that names a file of the host", func(t *conformance.T, s Subject) {
		o := s.open(t, nil)
		o.whole()
		for _, a := range o.artifacts {
			if !filepath.IsLocal(a) {
				t.Errorf("artifact %q leaves the scratch folder", a)
			} else if _, err := os.Lstat(filepath.Join(o.setup.Scratch, a)); err != nil {
				t.Errorf("artifact %q: %v", a, err)
			}
		}
	}),
	conformance.New("a second message continues the session", "a simulated user whose answer starts everything anew, or is refused", func(t *conformance.T, s Subject) {
		o, needs := s.open(t, nil), s.needs(t)
		_, err := o.turn(t.Context(), 1)
		t.Check("turn 1", err)
		// The kit's model does not say the same twice in a conversation.
		works := (needs.Shell || needs.Terminal) && o.setup.Shell != "" && len(o.setup.Models) == 0 && s.role() == agent.RoleAgent
		if works {
			_, err = o.shell().Exec(t.Context(), sandbox.Command{Argv: []string{"rm", "-f", path.Join(workdir, answer)}})
			t.Must("remove "+answer, err)
		}
		_, err = o.turn(t.Context(), 2)
		t.Check("turn 2", err)
		if works {
			o.written()
		}
		o.close()
	}),
	conformance.New("a message of 200 KiB is accepted", "a long instruction that dies on the limit of an argument list", func(t *conformance.T, s Subject) {
		o := s.open(t, nil)
		_, err := o.Turn(t.Context(), agent.Message{Stage: "main", Turn: 1, Text: strings.Repeat(instruction+"# \u00e4\u20ac\n", 2500)}, o)
		t.Check("turn", err)
		o.close()
	}),
	conformance.New("a turn that is cut off ends soon", "an agent that works on after its deadline, while it is graded", func(t *conformance.T, s Subject) {
		o := s.open(t, nil)
		t.Calms(s.Load, patience, func() {
			o.cut(o.revoke)
			t.Ends("close", patience, func() { _ = o.Close(t.Context(), "", o) })
		})
	}).Within(25 * time.Second),
	conformance.New("a message after a turn that was cut off is accepted",
		"a user who speaks after a timeout, and an agent that cannot continue", func(t *conformance.T, s Subject) {
			if !s.needs(t).KeepsSession {
				t.Skipf("it does not say that it keeps its session")
			}
			o := s.open(t, nil)
			o.cut(func() {})
			if y, err := o.turn(t.Context(), 2); err != nil || y.End == agent.Crashed {
				t.Errorf("the turn after one that was cut off: %+v, %v", y, err)
			}
			_ = o.Close(t.Context(), "", o)
		}).Within(25 * time.Second),
	conformance.New("a shell that refuses ends the turn", "an agent that waits forever for a sandbox that was lost", func(t *conformance.T, s Subject) {
		if needs := s.needs(t); !needs.Shell && !needs.Terminal {
			return // it has no shell that could be lost
		}
		o := s.open(t, nil)
		o.revoke()
		t.Ends("turn", patience, func() {
			if y, err := o.turn(t.Context(), 1); err == nil && y.End == agent.Done {
				t.Errorf("got %+v without a shell; want an error, or a yield that is not done", y)
			}
		})
		_ = o.Close(t.Context(), "", o)
	}).Within(15*time.Second).Unless(func(s Subject) bool { return s.Shell == nil }, "no sandbox can be made here: berth doctor says why"),
	conformance.New("the view is not changed", "an agent that changes what its verifier or its next turn reads", func(t *conformance.T, s Subject) {
		o := s.open(t, nil)
		t.Unchanged(o.setup.View, func() { o.whole() })
	}),
	conformance.New("logs of a killed program are read without harm",
		"a link or a pipe among the collected logs that hangs the end of an attempt", func(t *conformance.T, s Subject) {
			logs := t.TempDir()
			t.Write(logs, map[string]string{"torn.jsonl": "{\"type\": \"assist\xff\xfe"})
			t.Must("make a link", os.Symlink("/dev/zero", filepath.Join(logs, "session.jsonl")))
			o := s.open(t, nil)
			_, _ = o.turn(t.Context(), 1)
			t.Ends("close", patience, func() { _ = o.Close(t.Context(), logs, o) })
		}),
	conformance.New("concurrent sessions do not mix", "steps of one attempt in the trajectory of another", eight),
	conformance.New("its model learns of a skill, if it supports them",
		"an agent that announces skills and leaves them out, so that its tasks are harder than those of others", func(t *conformance.T, s Subject) {
			if !s.needs(t).Skills {
				return // the core says in the first message where they are
			}
			const dir, mark = "/tmp/kit-skills", "KIT-SKILL-MARK"
			o := s.open(t, func(setup *agent.Setup) {
				setup.Skills = []string{dir}
				shell := (&session{t: t, setup: *setup}).shell()
				_, err := shell.Exec(t.Context(), sandbox.Command{Argv: []string{"mkdir", "-p", dir + "/tables"}})
				t.Must("place a skill", err)
				text := "---\nname: tables\ndescription: " + mark + " how tables are read\n---\nRead them.\n"
				t.Must("place a skill", shell.WriteFile(t.Context(), dir+"/tables/SKILL.md", []byte(text), sandbox.FileOptions{}))
			})
			o.whole()
			if !s.Seen(mark) {
				t.Errorf("Check says that it supports skills, and no request to its model had the description of the skill in Setup.Skills")
			}
		}).Within(30*time.Second).Unless(unseen, notSeen),
	conformance.New("it asks an MCP server for its tools, if it supports them",
		"an agent that announces MCP servers and leaves them out, so that its tasks are harder than those of others", func(t *conformance.T, s Subject) {
			if !slices.Contains(s.needs(t).MCP, "stdio") {
				return // the core says in the first message how the server is started
			}
			const file = "/tmp/kit-server"
			var shell *sandbox.Client
			o := s.open(t, func(setup *agent.Setup) {
				setup.Servers = []agent.Server{{Name: "kit", Transport: "stdio", Command: "sh", Args: []string{file}}}
				shell = (&session{t: t, setup: *setup}).shell()
				t.Must("place a server", shell.WriteFile(t.Context(), file, []byte(server), sandbox.FileOptions{}))
			})
			o.whole()
			if _, err := shell.Stat(t.Context(), file+".asked"); err != nil {
				t.Errorf("Check says that it supports MCP servers with stdio, and it did not ask the one in Setup.Servers for its tools: %v", err)
			}
		}).Within(time.Minute).Unless(func(s Subject) bool { return s.Shell == nil }, "there is no sandbox here"),
})

// server is an MCP server in a shell. It makes a file when it is asked for its tools:
// some agents tell their model of them only when it searches for tools.
const server = `while IFS= read -r line; do
	id=$(printf %s "$line" | sed -n 's/.*"id": *\([0-9][0-9]*\).*/\1/p; s/.*"id": *\("[^"]*"\).*/\1/p')
	version=$(printf %s "$line" | sed -n 's/.*"protocolVersion": *"\([^"]*\)".*/\1/p')
	[ -n "$id" ] || continue # a notification
	case $line in
	*'"initialize"'*) result='{"protocolVersion":"'$version'","capabilities":{"tools":{}},"serverInfo":{"name":"kit","version":"1"}}' ;;
	*'"tools/list"'*) : >"$0.asked"; result='{"tools":[{"name":"kit_tool","description":"does nothing","inputSchema":{"type":"object","properties":{}}}]}' ;;
	*) result='{}' ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
`

// unseen reports whether it cannot be seen what an agent tells its model.
func unseen(s Subject) bool { return s.Seen == nil || s.Shell == nil }

const notSeen = "the requests to its model cannot be seen here"

// whereAble skips clauses where no session can be opened.
func whereAble(all []clause) []clause {
	for i := range all {
		own := all[i].Skip
		all[i].Skip = func(s Subject) (why string) {
			if own != nil {
				why = own(s)
			}
			return cmp.Or(why, unable(&s))
		}
	}
	return all
}

// works runs one turn and looks for the file that it asks for.
func works(t *conformance.T, s Subject) {
	o, needs := s.open(t, nil), s.needs(t)
	var before int64
	if s.Asked != nil {
		before = s.Asked()
	}
	y := o.whole()
	if s.Asked != nil && len(needs.Dialects) > 0 && s.Asked() == before {
		t.Errorf("Check says that it needs a model, and it sent no request to it in the turn")
	}
	if y.End != agent.Done {
		t.Errorf("the turn ended with %+v; want done", y)
	}
	if needs.Shell || needs.Terminal { // without, it can write no file
		o.written()
	}
	if s.role() == agent.RoleUser && y.Message == "" {
		t.Errorf("the user said nothing to %q", instruction)
	}
	for _, line := range o.lines {
		t.Logf("it logs: %s", line)
	}
}

// eight runs eight sessions at once. Each must end like a session that runs
// alone and record as many steps.
func eight(t *conformance.T, s Subject) {
	alone := s.open(t, nil)
	want := alone.whole()
	var all sync.WaitGroup
	for range 8 {
		o := s.open(t, nil)
		all.Go(func() {
			got, err := o.turn(t.Context(), 1)
			if err != nil || got.End != want.End {
				t.Errorf("among others %+v, %v; alone %+v", got, err, want)
			}
			_ = o.Close(t.Context(), "", o)
			if len(s.Models) == 0 && len(o.steps) != len(alone.steps) {
				t.Errorf("among others %d steps, alone %d", len(o.steps), len(alone.steps))
			}
		})
	}
	all.Wait()
}
