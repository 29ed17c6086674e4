package numbers_test

import (
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// passed is made with an attempt that passed in every trial.
func passed(name string, trials ...[3]string) numbers.Run {
	r := made(name, `{}`, trials...)
	for _, t := range r.Index.Trials {
		t.Attempts = []store.AttemptState{{Number: 1, Result: &store.Brief{Outcome: record.Passed, Score: new(1.0)}}}
	}
	return r
}

// A task that changed between two runs is left out once: it is none of the tasks
// that only one of them has.
func TestAChangedTaskIsLeftOutOnce(t *testing.T) {
	t.Parallel()
	before := passed("before", [3]string{"1", "one", "aaaaaaaaaa"}, [3]string{"2", "two", "bbbbbbbbbb"})
	after := passed("after", [3]string{"3", "one", "aaaaaaaaaa"}, [3]string{"4", "two", "cccccccccc"}, [3]string{"5", "three", "dddddddddd"})
	c, err := numbers.Compare([]numbers.Run{before, after}, &numbers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Pairs[0]; p.Tasks != 1 || p.Changed != 1 || p.Left != [2]int{0, 1} || !strings.Contains(p.Sentence, "1 task × 1, 2 others left out") {
		t.Errorf("%+v", p)
	}
	if c, err = numbers.Compare([]numbers.Run{before, after}, &numbers.Options{Force: true}); err != nil || c.Pairs[0].Tasks != 2 || c.Pairs[0].Changed != 0 {
		t.Errorf("by name: %+v, %v", c, err)
	}
	again := passed("again", [3]string{"6", "two", "cccccccccc"}, [3]string{"7", "four", "eeeeeeeeee"})
	if _, err = numbers.Compare([]numbers.Run{before, again}, &numbers.Options{}); err == nil || !strings.Contains(err.Error(), "Compare them by name with --force") {
		t.Errorf("no task is the same: %v", err)
	}
}
