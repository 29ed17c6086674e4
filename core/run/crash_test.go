package run_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/testlevel"
)

// helperEnv makes this test binary a process that will be killed. Its value is
// the folder for the run, and a file that says which attempts were published.
const helperEnv = "BERTH_TEST_ROLE"

const crashTrials = 100

// helper begins or resumes the run, with attempts that write a little and take
// a moment.
func helper() int {
	dir, told, _ := strings.Cut(os.Getenv(helperEnv), "|")
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log, err := os.OpenFile(told, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(err)
	}
	p := trials(crashTrials)
	runs, err := filepath.Glob(filepath.Join(dir, "*", store.ManifestFile))
	if err != nil {
		return fail(err)
	}
	var r *store.Run
	if len(runs) == 0 {
		_, r, err = newRun(dir, crashTrials)
	} else {
		r, err = store.Open(filepath.Dir(runs[0]), "test", false)
	}
	if err != nil {
		return fail(err)
	}
	fmt.Fprintln(os.Stdout, "open")
	eight := 8
	f := &fake{attempt: func(_ context.Context, j run.Job) record.Result {
		for range 3 {
			if e := j.Attempt.Append(record.StepsFile, strings.Repeat("x", 200)); e != nil {
				panic(e)
			}
			time.Sleep(rand.N(2 * time.Millisecond)) // so that a kill meets it between any two steps
		}
		return record.Result{Outcome: record.Passed}
	}}
	_, err = run.Schedule(context.Background(), run.Options{
		Plan: p, Store: r, Executor: f, Limits: experiment.RunLimits{Places: experiment.Places{InFlight: &eight}},
		Watch: func(e run.Event) {
			if e.Kind == run.Ended {
				_, _ = fmt.Fprintf(log, "%s %d\n", e.Trial.ID, e.Attempt)
			}
		},
	})
	if err == nil {
		err = r.Close()
	}
	if err != nil {
		return fail(err)
	}
	return 0
}

// A run that is killed at random moments until it is done loses nothing that
// was published and counts nothing twice.
func TestKillsLoseNothingAndCountNothingTwice(t *testing.T) {
	testlevel.Long(t, "test-race")
	t.Parallel()
	dir, told := t.TempDir(), filepath.Join(t.TempDir(), "published")
	kills := 0
	for done := false; !done; {
		if kills > 200 {
			t.Fatal("the run does not come to its end")
		}
		done = onePeriod(t, dir, told, time.Duration(1+kills)*30*time.Millisecond) // longer periods, so that a slow machine makes progress too
		if !done {
			kills++
		}
		stillThere(t, dir, told)
	}
	_, x, err := store.Read(oneRun(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Trials) != crashTrials {
		t.Errorf("after %d kills: %d trials", kills, len(x.Trials))
	}
	if kills < 3 {
		t.Errorf("only %d kills: the test proves little", kills)
	}
	all, lost := 0, 0
	for _, tr := range x.Trials {
		if o := tr.Outcome(); o != record.Passed {
			t.Errorf("trial %s has the outcome %s", tr.ID, o)
		}
		published := 0
		for _, a := range tr.Attempts {
			if a.Result != nil {
				published++
			} else {
				lost++
			}
		}
		all += published
		if published != 1 {
			t.Errorf("trial %s has %d published attempts", tr.ID, published)
		}
	}
	t.Logf("%d kills, %d attempts published, %d lost to kills, %d torn lines", kills, all, lost, x.Torn)
}

// onePeriod runs the helper until it ends or is killed, and reports whether it
// ended. Most kills happen while attempts run, some before.
func onePeriod(t *testing.T, dir, told string, within time.Duration) (done bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir+"|"+told)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if rand.N(6) > 0 {
		_, _ = bufio.NewReader(stdout).ReadString('\n') // it was killed or has begun
	}
	kill := time.AfterFunc(rand.N(within), func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
	defer kill.Stop()
	if err = cmd.Wait(); err == nil {
		return true
	}
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !st.Signaled() {
		t.Fatalf("the helper ended by itself: %v: %s", err, stderr.String())
	}
	return false
}

func oneRun(t *testing.T, dir string) string {
	t.Helper()
	runs, err := filepath.Glob(filepath.Join(dir, "*", store.ManifestFile))
	if err != nil || len(runs) > 1 {
		t.Fatalf("runs: %q, %v", runs, err)
	}
	if len(runs) == 0 {
		return "" // killed before there was a plan: nothing had begun
	}
	return filepath.Dir(runs[0])
}

// stillThere checks that every attempt that the helper knew to be published
// still is.
func stillThere(t *testing.T, dir, told string) {
	t.Helper()
	folder := oneRun(t, dir)
	b, err := os.ReadFile(told)
	if folder == "" || err != nil {
		return
	}
	_, x, err := store.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	if x.Damaged > 0 {
		t.Fatalf("%d damaged lines", x.Damaged)
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		id, _, _ := strings.Cut(sc.Text(), " ")
		if tr := x.Trial(id); len(id) == 64 && tr.Outcome() != record.Passed {
			t.Fatalf("trial %s was published and is %s", id, tr.Outcome())
		}
	}
}
