package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/internal/testlevel"
)

// foreign writes the journal of a process that did not record its end.
func foreign(t *testing.T, dir string, p node.Process) {
	t.Helper()
	e, err := json.Marshal(store.Entry{Kind: store.WriterBegan, Seq: 1, Time: time.Now().UTC(), Process: &p})
	testlevel.Must(t, err)
	sum := crc32.Checksum(e, crc32.MakeTable(crc32.Castagnoli))
	line := fmt.Sprintf("{\"sum\":\"%08x\",\"entry\":%s}\n", sum, e)
	testlevel.Must(t, os.WriteFile(filepath.Join(dir, store.JournalDir, "20000101-foreign-1.jsonl"), []byte(line), 0o600))
}

// In a shared folder the lock of this machine does not cover other machines.
func TestABerthOnAnotherMachineIsSeen(t *testing.T) {
	t.Parallel()
	self := node.Self()
	for name, tt := range map[string]struct {
		process node.Process
		busy    bool
	}{
		"another machine":            {node.Process{Host: "node17", PID: 99, Boot: "other"}, true},
		"another container here":     {node.Process{Host: self.Host, PID: 99, Boot: self.Boot, Namespace: "pid:[1]"}, true},
		"here, before it was booted": {node.Process{Host: self.Host, PID: 1, Boot: "other", Namespace: self.Namespace}, false},
		"here, gone":                 {node.Process{Host: self.Host, PID: 1 << 22, Boot: self.Boot, Namespace: self.Namespace}, false},
		"here, its number is reused": {node.Process{Host: self.Host, PID: os.Getpid(), Start: self.Start + 1, Boot: self.Boot, Namespace: self.Namespace}, false},
		"here, alive":                {self, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := create(t, 1)
			testlevel.Must(t, r.Close())
			foreign(t, r.Dir, tt.process)
			r2, err := store.Open(r.Dir, "test", false)
			if !tt.busy {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				if err = r2.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			var busy *store.BusyError
			if !errors.As(err, &busy) || !strings.Contains(err.Error(), tt.process.String()) {
				t.Fatalf("got %v", err)
			}
			takenOver(t, r.Dir, tt.process == self)
		})
	}
}

// takenOver passes the user's word that the other process is gone, which is
// ignored if that is known to live.
func takenOver(t *testing.T, dir string, lives bool) {
	t.Helper()
	r, err := store.Open(dir, "test", true)
	var busy *store.BusyError
	switch {
	case lives && !errors.As(err, &busy):
		t.Errorf("the user's word is taken against what is seen: %v", err)
	case !lives && err != nil:
		t.Fatalf("with the user's word: %v", err)
	case !lives:
		if err = r.Close(); err != nil {
			t.Error(err)
		}
	}
}
