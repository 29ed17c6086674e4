package conform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/conformance"
)

// described is a plugin with its description.
type described struct {
	host  *plugin.Host
	entry *plugin.Entry
}

// describedClauses hold for plugins of every kind.
var describedClauses = []conformance.Clause[described]{
	conformance.New("it has a version, and a doc for itself and each option",
		"a result that names a plugin that cannot be identified", func(t *conformance.T, d described) {
			if d.entry.Version == "" {
				t.Errorf("has no version")
			}
			if strings.TrimSpace(d.entry.Doc) == "" {
				t.Errorf("has no doc")
			}
			for _, f := range d.entry.Schema.Fields {
				if f.Doc == "" {
					t.Errorf("option %q of its configuration has no doc", f.Name)
				}
			}
		}),
	conformance.New("the same configuration gets the same answer twice", "a plan that depends on what was planned before", func(t *conformance.T, d described) {
		first, err1 := d.validate(t, `{}`)
		second, err2 := d.validate(t, `{}`)
		if err1 != nil || err2 != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("first %+v, %v; then %+v, %v", first, err1, second, err2)
		}
	}),
	conformance.New("an unknown key of a configuration is a problem that names it", "a misspelt option that silently does nothing", func(t *conformance.T, d described) {
		const key = "an_option_that_no_plugin_has"
		ps, err := d.validate(t, `{"`+key+`": true}`)
		t.Must("validate", err)
		for _, p := range ps {
			if strings.Contains(string(p.Path)+p.Summary+p.Detail, key) {
				return
			}
		}
		t.Errorf("problems %+v; want one that names %s", ps, key)
	}),
	conformance.New("a configuration that is not an object is reported, and does not crash the plugin",
		"a plugin that ends, and with it every other attempt", func(t *conformance.T, d described) {
			for _, raw := range []string{`[]`, `"text"`, `{"a": [`} {
				if ps, err := d.validate(t, raw); err == nil && len(ps) == 0 {
					t.Errorf("accepts %s", raw)
				}
			}
			_, err := d.validate(t, `{}`)
			t.Check("afterwards", err)
		}),
}

func (d described) validate(t *conformance.T, raw string) ([]config.Problem, error) {
	return d.host.Validate(t.Context(), d.entry.Kind, d.entry.Name, json.RawMessage(raw))
}

// ClausesOfAll are the names of the clauses that hold for plugins of every kind.
func ClausesOfAll() []string {
	return append(conformance.Names(describedClauses), conformance.Names(leftClauses)...)
}

// markKey is a variable in the environment of a plugin under test. Its
// descendants inherit it, also in another session or process group.
const markKey = "BERTH_PLUGIN_TEST"

// marked is the processes of the binary under test.
func (b *bench) marked() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(append([]byte{0}, text...), []byte("\x00"+b.mark+"\x00")) {
			continue // another user's, or it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// load is what the processes of the binary under test come to.
func (b *bench) load() (l conformance.Load) {
	for _, pid := range b.marked() {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		alive := false
		for _, f := range threads {
			text, _ := os.ReadFile(f)
			_, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
			alive = alive || len(state) > 0 && state[0] != 'Z'
			l.Running = l.Running || len(state) > 0 && state[0] == 'R'
		}
		if alive {
			l.Processes++
		}
	}
	return l
}

// leftTime is how long the descendants of a plugin may take to end after it.
const leftTime = 3 * time.Second

// leftClauses are tried once, after everything else.
var leftClauses = []conformance.Clause[*bench]{{
	Name: "no process of the plugin is left when it has ended", Guards: "programs that stay on the machine after a run, in their own session",
	Run: func(t *conformance.T, b *bench) {
		b.host.Stop()
		for end := time.Now().Add(conformance.Patience(leftTime)); len(b.marked()) > 0 && time.Now().Before(end) && t.Context().Err() == nil; {
			time.Sleep(20 * time.Millisecond)
		}
		for _, pid := range b.marked() {
			argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("process %d is left: %q", pid, strings.ReplaceAll(strings.TrimRight(string(argv), "\x00"), "\x00", " "))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	},
}}
