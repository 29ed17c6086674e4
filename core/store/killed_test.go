package store_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// copies is a worker that publishes one attempt after the other to a shared disk, until
// it is killed. A naive one copies the files of an attempt as its folder lists them.
func copies(dir string, naive bool) error {
	publish := func(name string) error {
		to := filepath.Join(dir, "shared", name)
		s, err := store.Stage(filepath.Join(dir, "here", name), to, "w", 1)
		if err = errors.Join(err, os.MkdirAll(to, 0o755)); err != nil {
			return err
		}
		for _, file := range []string{record.StepsFile, record.TurnsFile, record.VerdictsFile} {
			err = errors.Join(err, s.Append(file, strings.Repeat("x", 1_000_000)))
		}
		return errors.Join(err, s.Publish(record.Result{Version: 1, Outcome: record.Passed}), s.Remove())
	}
	err := publish("0")
	for i := 1; err == nil; i++ {
		fmt.Fprintln(os.Stdout, "published")
		if shared := filepath.Join(dir, "shared"); naive {
			err = os.CopyFS(filepath.Join(shared, strconv.Itoa(i)), os.DirFS(filepath.Join(shared, "0")))
		} else {
			err = publish(strconv.Itoa(i))
		}
	}
	return err
}

// torn counts the attempts that have a result, and those of them that do not have all
// their files.
func torn(t *testing.T, dir string) (published, torn int) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "shared", "*", record.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range all {
		var want store.Checksums
		b, err := os.ReadFile(filepath.Join(filepath.Dir(result), store.ChecksumsFile))
		if err == nil {
			err = json.Unmarshal(b, &want)
		}
		got, failed := store.ChecksumsOf(filepath.Dir(result))
		if err != nil || failed != nil || !maps.Equal(got.Files, want.Files) {
			torn++
		}
	}
	return len(all), torn
}

// A worker is killed at random instants while it publishes attempts. Each attempt that
// counts has all its files. With a worker that copies them in any order, some do not.
func TestAKilledWorkerLeavesNoResultWithoutItsFiles(t *testing.T) {
	t.Parallel()
	kill := func(naive bool) (published, damaged int) {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=copies|%s|%t", helperEnv, dir, naive))
		out, err := cmd.StdoutPipe()
		if err = errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		if line, failed := bufio.NewReader(out).ReadString('\n'); line != "published\n" {
			t.Fatalf("the worker said %q, %v", line, failed)
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // the instant of a kill is random
		if err = cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() //nolint:errcheck // it was killed
		return torn(t, dir)
	}
	kills, damaged := 0, 0
	for ; damaged == 0 && kills < 200; kills++ {
		_, damaged = kill(true)
	}
	if damaged == 0 {
		t.Errorf("after %d kills, every naive copy is whole: the test proves nothing", kills)
	}
	for range max(kills, 10) {
		if published, damaged := kill(false); damaged > 0 || published == 0 {
			t.Errorf("of %d published attempts, %d do not have all their files", published, damaged)
		}
	}
	t.Logf("a naive copy was torn after %d kills", kills)
}
