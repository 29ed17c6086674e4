package numbers_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/core/store"
)

// made is a run of one cell with these trials: id, task, digest.
func made(name, identity string, trials ...[3]string) numbers.Run {
	m := &store.Manifest{Header: store.Header{Run: name}, Cells: []store.Cell{{
		Key: "agent=a", Slug: "a", Agent: "a", Choices: map[string]string{"agent": "a"}, Identity: map[string]json.RawMessage{"d": json.RawMessage(identity)},
	}}}
	for _, t := range trials {
		m.Trials = append(m.Trials, store.Trial{ID: t[0], Task: t[1], TaskDigest: "sha256:" + t[2], Dataset: "d", Repetition: 1})
	}
	x := &store.Index{}
	for i := range m.Trials {
		x.Trials = append(x.Trials, &store.TrialState{Trial: &m.Trials[i]})
	}
	return numbers.Run{Dir: "/runs/" + name, Manifest: m, Index: x}
}

func TestSeveralRunsAreTakenAsOne(t *testing.T) {
	t.Parallel()
	first := made("first", `{"x":1}`, [3]string{"1", "one", "aaaaaaaaaa"}, [3]string{"2", "two", "bbbbbbbbbb"})
	more := made("more", `{"x":1}`, [3]string{"3", "three", "cccccccccc"}, [3]string{"4", "two", "dddddddddd"})
	more.Index.Damaged = 2
	other := made("other", `{"x":2}`, [3]string{"5", "one", "aaaaaaaaaa"})
	j, err := numbers.Join([]numbers.Run{first, more, other})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range j.Trials {
		got = append(got, j.Cells[j.Trials[i].Cell].Name+" "+j.Trials[i].TaskName)
	}
	if want := "a one, a two (bbbbbbbb), a three, a two (dddddddd), other/a one"; strings.Join(got, ", ") != want {
		t.Errorf("trials %q, want %s", got, want)
	}
	if notes := strings.Join(j.Notes, "; "); !strings.Contains(notes, "1 task has another content") ||
		!strings.Contains(notes, "more: 2 records could not be read") || !strings.Contains(notes, "cell other/a") {
		t.Errorf("notes %q", j.Notes)
	}
}

func TestTheSameTrialInTwoRunsIsAnError(t *testing.T) {
	t.Parallel()
	_, err := numbers.Join([]numbers.Run{made("first", `{}`, [3]string{"1", "one", "a"}), made("again", `{}`, [3]string{"1", "one", "a"})})
	if err == nil || !strings.Contains(err.Error(), "first and again both have the trial of task one in cell agent=a, repetition 1") ||
		!strings.Contains(err.Error(), "berth compare /runs/first /runs/again") {
		t.Errorf("%v", err)
	}
}
