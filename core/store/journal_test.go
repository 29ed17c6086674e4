package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
)

// entries makes n entries with their lines.
func entries(t testing.TB, n int) (all []Entry, data []byte, ends []int) {
	t.Helper()
	for i := range n {
		e := Entry{Kind: AttemptEnded, Seq: i + 1, Time: time.Unix(int64(i), 0).UTC(), Trial: "t<&>\u2028", Attempt: 1, Brief: &Brief{Outcome: record.Passed}}
		b, err := Seal(&e)
		testlevel.Must(t, err)
		all, data = append(all, e), append(data, b...)
		ends = append(ends, len(data))
	}
	return all, data, ends
}

// However much of a journal reached the disk, exactly its whole lines are read.
func TestACutJournalLosesTheTornLineOnly(t *testing.T) {
	t.Parallel()
	all, data, ends := entries(t, 4)
	for n := range len(data) + 1 {
		j, err := readJournal(bytes.NewReader(data[:n]))
		testlevel.Must(t, err)
		whole := 0
		for whole < len(ends) && ends[whole] <= n {
			whole++
		}
		if !reflect.DeepEqual(j.Entries, all[:whole]) && whole > 0 || len(j.Entries) != whole {
			t.Fatalf("cut at %d: read %d entries, want %d", n, len(j.Entries), whole)
		}
		torn := 0
		if whole == 0 && n > 0 || whole > 0 && n > ends[whole-1] {
			torn = 1
		}
		if j.Torn != torn || j.Damaged != 0 {
			t.Fatalf("cut at %d: torn %d, damaged %d, want torn %d", n, j.Torn, j.Damaged, torn)
		}
	}
}

// A changed byte loses at most its line, and is never accepted.
func TestAChangedByteCostsItsLine(t *testing.T) {
	t.Parallel()
	all, data, ends := entries(t, 3)
	for i := range data {
		for _, flip := range []byte{1, 0x20, 0x80} {
			bad := bytes.Clone(data)
			bad[i] ^= flip
			j, err := readJournal(bytes.NewReader(bad))
			testlevel.Must(t, err)
			line, _ := slices.BinarySearch(ends, i+1)
			joined := i == ends[line]-1 // the end of the line: two lines become one
			for _, e := range j.Entries {
				if !has(all, e) {
					t.Fatalf("byte %d changed by %#x: believed %+v", i, flip, e)
				}
			}
			for k, e := range all {
				touched := k == line || joined && k == line+1
				if !touched && !has(j.Entries, e) {
					t.Fatalf("byte %d changed by %#x: entry %d is lost, too", i, flip, k)
				}
			}
		}
	}
}

func has(all []Entry, e Entry) bool {
	return slices.ContainsFunc(all, func(a Entry) bool { return reflect.DeepEqual(a, e) })
}

func TestAJournalGoesOnAfterATornLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "j.jsonl")
	j, err := createJournal(file)
	testlevel.Must(t, err)
	testlevel.Must(t, j.append(Entry{Kind: Noted, Note: "a"}, true))
	// The effect of a full disk: a part of a line, and an error.
	if _, err = j.f.WriteString(`{"sum":"0000`); err != nil {
		t.Fatal(err)
	}
	j.torn = true
	testlevel.Must(t, errors.Join(j.append(Entry{Kind: Noted, Note: "b"}, true), j.close()))
	f, err := os.Open(file)
	testlevel.Must(t, err)
	defer f.Close()
	got, err := readJournal(f)
	if err != nil || len(got.Entries) != 2 || got.Torn+got.Damaged != 1 || got.Entries[1].Note != "b" {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestALongLineIsSkipped(t *testing.T) {
	t.Parallel()
	all, data, _ := entries(t, 2)
	long := append(bytes.Repeat([]byte("x"), 3*maxEntry), '\n')
	j, err := readJournal(bytes.NewReader(slices.Concat(long, data)))
	if err != nil || !reflect.DeepEqual(j.Entries, all) {
		t.Errorf("read %d entries, %v", len(j.Entries), err)
	}
}

func TestManyWritersOfOneJournal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "j.jsonl")
	j, err := createJournal(file)
	testlevel.Must(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if e := j.append(Entry{Kind: Noted, Note: "x"}, true); e != nil {
					t.Error(e)
				}
			}
		})
	}
	wg.Wait()
	testlevel.Must(t, j.close())
	b, err := os.ReadFile(file)
	testlevel.Must(t, err)
	got, err := readJournal(bytes.NewReader(b))
	if err != nil || len(got.Entries) != 200 || got.Torn+got.Damaged != 0 {
		t.Errorf("%d entries, torn %d, damaged %d, %v", len(got.Entries), got.Torn, got.Damaged, err)
	}
}

func FuzzReadJournal(f *testing.F) {
	_, data, _ := entries(f, 3)
	f.Add(data)
	f.Add([]byte("{}\n\n\x00\n"))
	f.Add([]byte(`{"sum":"00000000","entry":{"kind":"noted"}}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := readJournal(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("bytes cannot fail: %v", err)
		}
		again := 0
		for _, e := range j.Entries {
			if e.Kind == "" {
				t.Errorf("took an entry of no kind: %+v", e)
			}
			again++
		}
		if again+j.Torn+j.Damaged > bytes.Count(b, []byte("\n"))*2+2 {
			t.Errorf("%d entries, %d torn and %d damaged lines in %d lines", again, j.Torn, j.Damaged, bytes.Count(b, []byte("\n")))
		}
	})
}
