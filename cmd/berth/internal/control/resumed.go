package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/store"
)

// Resume gives a run in progress the limits that people set with Set before, and
// describes which ones differ from l. The last change of a limit counts. What
// was paused, drained or cancelled continues.
func Resume(notes []store.Entry, l *experiment.RunLimits) (said []string) {
	for _, name := range Limits {
		i := lastSet(notes, name)
		if i < 0 {
			continue
		}
		by := notes[i].Intervention
		most := new(by.Set[name])
		if *most < 0 {
			most = nil
		}
		if checkLimit(name, most) != nil {
			continue // no version of this program wrote it
		}
		before := limitOf(l, name)
		if (before == nil) == (most == nil) && (before == nil || *before == *most) {
			continue
		}
		setLimit(l, name, most)
		said = append(said, fmt.Sprintf("%s is %s, as %s set it on %s", name, number(most), by.User, notes[i].Time.Format(time.DateTime)))
	}
	return said
}

// lastSet returns the index of the last note that set a limit; -1: there is none.
func lastSet(notes []store.Entry, name string) int {
	for i, n := range slices.Backward(notes) {
		if n.Intervention == nil {
			continue
		}
		if _, set := n.Intervention.Set[name]; set {
			return i
		}
	}
	return -1
}
