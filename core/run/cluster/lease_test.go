package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/core/run/cluster"
)

// root makes the folders that leases need.
func root(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"leases", "pilots"} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	return dir
}

// race lets eight claimers claim the same attempts at the same time, and returns
// how many attempts had more than one winner, and how many had none.
func race(t *testing.T, claim func(who int, name string) bool) (twice, never int) {
	t.Helper()
	const attempts, claimers = 200, 8
	winners := make([]atomic.Int32, attempts)
	start := make([]sync.WaitGroup, attempts) // all claimers begin an attempt together
	for i := range start {
		start[i].Add(claimers)
	}
	var all sync.WaitGroup
	for who := range claimers {
		all.Go(func() {
			for i := range attempts {
				start[i].Done()
				start[i].Wait()
				if claim(who, strconv.Itoa(i)) {
					winners[i].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i := range winners {
		switch n := winners[i].Load(); {
		case n > 1:
			twice++
		case n == 0:
			never++
		}
	}
	return twice, never
}

func TestOneOfManyClaimersGetsAnAttempt(t *testing.T) {
	t.Parallel()
	dir := root(t)
	claimers := make([]*cluster.Claimer, 8)
	for i := range claimers {
		name := "pilot-" + strconv.Itoa(i)
		claimers[i] = cluster.NewTestClaimer(dir, filepath.Join(dir, "pilots", name), name)
	}
	twice, never := race(t, func(who int, name string) bool {
		mine, err := claimers[who].Claim(name)
		if err != nil {
			t.Error(err)
		}
		return mine
	})
	if twice+never > 0 {
		t.Errorf("%d attempts have two holders, %d have none", twice, never)
	}
}

// The server made the link, the answer got lost, and the repeated request says
// that the name is taken: that is how a link over NFS may end.
func TestALostAnswerIsNoLostAttempt(t *testing.T) { //nolint:paralleltest // it replaces the link
	for _, tt := range []struct {
		name   string
		link   func(from, to string) error
		mine   bool
		answer error
	}{
		{"made, and reported as taken", func(from, to string) error {
			if err := os.Link(from, to); err != nil {
				return err
			}
			return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EEXIST}
		}, true, nil},
		{"made, and reported as failed", func(from, to string) error {
			if err := os.Link(from, to); err != nil {
				return err
			}
			return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EIO}
		}, true, nil},
		{"reported as made, and another's", func(_, to string) error {
			dir := filepath.Dir(filepath.Dir(to))
			other := cluster.NewTestClaimer(dir, filepath.Join(dir, "pilots", "other"), "other")
			cluster.SetLink(t, os.Link)
			if mine, err := other.Claim(filepath.Base(to)); err != nil || !mine {
				return errors.New("the other one has it not")
			}
			return nil
		}, false, nil},
		{"reported as taken, and not seen yet", func(from, to string) error {
			return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EEXIST}
		}, false, cluster.ErrUndecided},
		{"not possible", func(from, to string) error {
			return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EPERM}
		}, false, syscall.EPERM},
	} {
		t.Run(tt.name, func(t *testing.T) { //nolint:paralleltest // it replaces the link
			dir := root(t)
			c := cluster.NewTestClaimer(dir, filepath.Join(dir, "pilots", "me"), "me")
			cluster.SetLink(t, tt.link)
			mine, err := c.Claim("a-1")
			if mine != tt.mine || !errors.Is(err, tt.answer) {
				t.Errorf("mine %v, %v; want %v, %v", mine, err, tt.mine, tt.answer)
			}
		})
	}
}
