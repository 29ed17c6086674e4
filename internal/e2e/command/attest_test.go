package command

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

// The attack suite is as documented on this machine: a few attacks here, all of
// them with BERTH_TEST=all. Each succeeds without guards first.
func TestTheAttackSuiteIsAsDocumented(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	args := []string{"attest", "--json"}
	want := 5
	if testlevel.All() {
		want = 40
	} else {
		for _, name := range []string{"r1-*", "t6-replaced-tool", "h1-*", "f5-*"} {
			args = append(args, "--attack", name)
		}
	}
	r := berth(t, t.TempDir(), args...)
	r.want(t, 0)
	res := answer[types.Attest](t, r, "cli-attest")
	if len(res.Attacks) < want || len(res.Differences) != 0 || res.Environment != "local" {
		t.Errorf("%+v", res)
	}
	for _, a := range res.Attacks {
		if a.Missing == "" && (!a.Unguarded || len(a.Modes) != 5) {
			t.Errorf("%s: succeeded without guards: %v, in %d modes", a.Name, a.Unguarded, len(a.Modes))
		}
	}
}

// A difference in either direction is an error, and names the attack and the
// mode. So is an attack that does not succeed without guards.
func TestADifferenceFromTheTableOfAttacks(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	table := e2etest.Read(t, filepath.Join(tree.Root, "examples", "attacks", "attacks.yaml"))
	_, entry, _ := strings.Cut(table, "  - name: t10-build-file\n")
	entry, _, _ = strings.Cut(entry, "  - name: ")
	better := strings.Replace(entry, "live: not held", "live: detected", 1)
	worse := strings.Replace(better, "separate: not held", "separate: held", 1)
	dir := t.TempDir()
	e2etest.Write(t, dir, map[string]string{"table.yaml": "attacks:\n  - name: honest\n    control: true\n  - name: t10-build-file\n" + worse +
		"  - name: t14-printed-result\n    unguarded: copied\n" + strings.TrimPrefix(entry, "    ids: [T10]\n")})
	r := berth(t, dir, "attest", "--expect", "table.yaml", "--json")
	r.want(t, 1)
	res := answer[types.Attest](t, r, "cli-attest")
	for _, mode := range []string{"live", "separate"} {
		if !slices.ContainsFunc(res.Differences, func(d string) bool { return strings.HasPrefix(d, "t10-build-file in "+mode+": not held") }) {
			t.Errorf("no difference in %s: %q", mode, res.Differences)
		}
	}
	if !slices.ContainsFunc(res.Differences, func(d string) bool {
		return strings.HasPrefix(d, "t14-printed-result: it does not succeed without guards")
	}) {
		t.Errorf("nothing about an attack that does nothing: %q", res.Differences)
	}
	if len(res.Differences) != 3 {
		t.Errorf("%q", res.Differences)
	}
}
